"""Nearest neighbours among the training documents: an expert to mix in, and evidence to show."""

from collections.abc import Mapping

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from abalone.device import choose_device
from abalone.errors import InputError, as_input_error
from abalone.evaluation.matrices import Labels, Scores, read_labels
from abalone.evaluation.neighbours_in_numpy import label_shares, vote_logits, vote_logits_in_blocks
from abalone.losses.checks import check_columns, check_finite, check_matrix, check_temperature
from abalone.losses.kernel import unit_rows

Embeddings = np.ndarray | Tensor
"""Floating point, [n, d]; compared by cosine."""

QUERIES, REFERENCES = 2048, 16384  # a block of similarities takes 128 MiB, however many documents there are


class NearestNeighbours:
    """A label's probability is the share of it among the k most similar training documents.

    Neighbour i counts softmax(cosine_i / τ), so that close ones count more. A document of length 0 is similar to
    none: every cosine is 0.

    Args:
        k: neighbours; all documents where there are fewer.
        temperature: τ. Of k from 10 to 100 and τ from 0.02 to 0.1, on arXiv abstracts embedded by MiniLM as it is
            published, more neighbours and a higher τ are better, and beyond 60 neighbours nothing is gained.
        fp16: keep embeddings as float16, which halves memory and file and moves cosines by less than 0.001.
        device: where to compare; `auto` takes a GPU if there is one.

    Reference:
        Su, Wang & Dai, "Contrastive Learning-Enhanced Nearest Neighbor Mechanism for Multi-Label Text
        Classification", ACL 2022.

    Example:
        >>> neighbours = NearestNeighbours(k=2).fit(np.eye(3), np.array([[1, 0], [1, 1], [0, 1]]))
        >>> neighbours.predict_proba(np.array([[1.0, 1.0, 0.0]])).round(3).tolist()
        [[1.0, 0.5]]
    """

    def __init__(self, k: int = 60, temperature: float = 0.1, *, fp16: bool = False, device: str = "auto") -> None:
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        with as_input_error():
            self.k, self.temperature, self.fp16 = k, check_temperature(temperature), fp16
        self.device = choose_device(device)
        self._embeddings: Tensor | None = None  # [N, d], rows of length 1
        self._labels = csr_array((0, 0))  # [N, L]

    def fit(self, embeddings: Embeddings, labels: Labels) -> "NearestNeighbours":
        """Remember training documents: embeddings [N, d] and labels [N, L]."""
        rows, truth = _read_embeddings(embeddings), read_labels("labels", labels)
        if len(rows) != truth.shape[0]:
            raise InputError(
                "embeddings and labels must have the same number of rows, "
                f"got shapes {tuple(rows.shape)} and {truth.shape}"
            )
        self._embeddings = unit_rows(rows).to(self.device, torch.float16 if self.fp16 else torch.float32)
        self._labels = truth
        return self

    @torch.inference_mode()
    def neighbours(self, embeddings: Embeddings, k: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Find the most similar training documents, nearest first.

        Args:
            embeddings: [n, d].
            k: how many; those of the constructor by default.

        Returns:
            Their rows in training [n, k] and cosines [n, k].
        """
        references = self._fitted()
        k = self.k if k is None else k
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        queries = _read_embeddings(embeddings)
        with as_input_error():
            check_columns("embeddings", queries, references.shape[1], "those in training")
        blocks = [_nearest(block, references, min(k, len(references))) for block in unit_rows(queries).split(QUERIES)]
        rows, cosines = (torch.cat(parts).cpu().numpy() for parts in zip(*blocks, strict=True))
        return rows, cosines

    def predict_proba(self, embeddings: Embeddings) -> np.ndarray:
        """Return probabilities [n, L] of embeddings [n, d]; float32."""
        shares: np.ndarray = self.shares(embeddings).toarray()
        return shares

    def shares(self, embeddings: Embeddings) -> csr_array:
        """Return the probabilities as a sparse matrix: the neighbours of a document carry few of many labels."""
        return label_shares(*self.neighbours(embeddings), self._labels, self.temperature)

    def logits(self, embeddings: Embeddings) -> np.ndarray:
        """Return logits [n, L] for mixing; a share of 0 or 1 among the neighbours is clipped at 0.5/(k + 1)."""
        return vote_logits(self.shares(embeddings).toarray(), self.k)

    def logits_in_blocks(self, embeddings: Embeddings) -> Scores:
        """Return `logits`, computed block by block where documents and labels are many."""
        return vote_logits_in_blocks(self.shares(embeddings), self.k)

    def state(self) -> dict[str, Tensor]:
        """Return everything as tensors, for safetensors."""
        embeddings = self._fitted()
        return {
            "embeddings": embeddings.cpu(),
            "labels.indices": torch.from_numpy(self._labels.indices.astype(np.int32)),
            "labels.indptr": torch.from_numpy(self._labels.indptr.astype(np.int64)),
            "labels.columns": torch.tensor(self._labels.shape[1]),
            "k": torch.tensor(self.k),
            "temperature": torch.tensor(self.temperature, dtype=torch.float64),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], *, device: str = "auto") -> "NearestNeighbours":
        """Read what `state` returned, on any device."""
        embeddings, indices, indptr = (state[name] for name in ("embeddings", "labels.indices", "labels.indptr"))
        fp16 = embeddings.dtype == torch.float16
        model = cls(int(state["k"]), float(state["temperature"]), fp16=fp16, device=device)
        model._embeddings = embeddings.to(model.device)
        ones = np.ones(len(indices), dtype=np.int64)
        shape = len(embeddings), int(state["labels.columns"])
        model._labels = csr_array((ones, indices.cpu().numpy(), indptr.cpu().numpy()), shape=shape)
        model._labels.check_format(full_check=True)  # products follow the indices wherever they point
        return model

    @property
    def num_labels(self) -> int:
        """The number of labels, L."""
        return int(self._labels.shape[1])

    def _fitted(self) -> Tensor:
        if self._embeddings is None:
            from sklearn.exceptions import NotFittedError

            raise NotFittedError("these NearestNeighbours are not fitted yet; call fit(embeddings, labels) first")
        return self._embeddings


def _nearest(queries: Tensor, references: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return rows and cosines of the k references [N, d] nearest to each query [Q, d], [Q, k] each, nearest first."""
    queries = queries.to(references.device)
    cosines = queries.new_empty(len(queries), 0)
    rows = torch.empty_like(cosines, dtype=torch.long)
    for start in range(0, len(references), REFERENCES):
        block = references[start : start + REFERENCES].float()  # products in fp16 would be slow on CPUs
        found, places = (queries @ block.T).topk(min(k, len(block)))
        cosines, rows = torch.cat([cosines, found], dim=1), torch.cat([rows, places + start], dim=1)
        cosines, places = cosines.topk(min(k, cosines.shape[1]))
        rows = rows.gather(1, places)
    return rows, cosines


@as_input_error()
def _read_embeddings(embeddings: Embeddings) -> Tensor:
    # Copied, as torch will not share memory that it may not write to, such as a read-only memory map.
    rows = embeddings.detach() if isinstance(embeddings, Tensor) else torch.from_numpy(np.array(embeddings))
    check_matrix("embeddings", rows, dims="[documents, dim]")
    check_finite("embeddings", rows)
    return rows.float()
