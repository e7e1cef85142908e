"""Nearest neighbours without torch: for ONNX files and evidence, and the votes of any neighbours as logits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.special import logit, softmax

from abalone.errors import InputError
from abalone.evaluation.matrices import Computed, Index, Scores, held, read_probabilities

COSINES = 2**24  # that are in memory at a time


@dataclass(frozen=True, eq=False)
class StoredNeighbours:
    """`NearestNeighbours` as stored in an ONNX file.

    Args:
        embeddings: of the training documents, [N, d], rows of length 1.
        labels: of the same, [N, L].
        k: neighbours that are asked.
        temperature: τ of their weights.
    """

    embeddings: np.ndarray
    labels: csr_array
    k: int
    temperature: float

    @classmethod
    def from_state(cls, state: Mapping[str, np.ndarray]) -> "StoredNeighbours":
        """Read what `NearestNeighbours.state` returned, as arrays."""
        embeddings, indices = state["embeddings"].astype(np.float32), state["labels.indices"]
        labels = csr_array(
            (np.ones(len(indices), dtype=np.int64), indices, state["labels.indptr"]),
            shape=(len(embeddings), int(state["labels.columns"])),
        )
        labels.check_format(full_check=True)  # products follow the indices wherever they point
        return cls(embeddings, labels, int(state["k"]), float(state["temperature"]))

    @property
    def num_labels(self) -> int:
        """Return L."""
        return int(self.labels.shape[1])

    def logits_in_blocks(self, embeddings: np.ndarray) -> Scores:
        """Return logits [n, L] of embeddings [n, d], computed block by block where they are many."""
        near = nearest(unit_rows(embeddings), self.embeddings.T, self.k)
        return vote_logits_in_blocks(label_shares(*near, self.labels, self.temperature), self.k)


def unit_rows(embeddings: np.ndarray) -> np.ndarray:
    """Return the rows with length 1, [n, d]; one of length 0 stays."""
    length = np.linalg.norm(embeddings, axis=1, keepdims=True)
    rows: np.ndarray = embeddings / np.where(length > 0, length, 1)
    return rows


def nearest(
    queries: np.ndarray | csr_array, references: np.ndarray | csr_array, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the places and cosines of the k references nearest to each query, [n, k] each, nearest first.

    Equally near ones come in order; all references where there are fewer than k.

    Args:
        queries: rows of length 1, [n, d]: embeddings, or tf-idf rows.
        references: columns of length 1, [d, N]; sparse ones by row, so that a query looks at its own words only.
        k: how many.
    """
    documents, k = references.shape[1], min(k, references.shape[1])
    places, cosines = np.empty((queries.shape[0], k), np.int64), np.empty((queries.shape[0], k), queries.dtype)
    step = max(1, COSINES // documents)
    for start in range(0, queries.shape[0], step):
        block: Any = queries[start : start + step] @ references  # [Q, N]
        for query, found in enumerate(block if isinstance(block, np.ndarray) else block.toarray(), start):
            last = np.partition(found, documents - k)[documents - k]
            near = np.flatnonzero(~(found < last))
            places[query] = near[np.argsort(-found[near], kind="stable")[:k]]
            cosines[query] = found[places[query]]
    return places, cosines


def label_shares(rows: np.ndarray, cosines: np.ndarray, labels: csr_array, temperature: float) -> csr_array:
    """Return the share of each label among the neighbours, [n, L]: few entries a row, as they carry few labels.

    Args:
        rows: of the neighbours among the training documents, [n, k].
        cosines: how similar they are, [n, k]; neighbour i counts softmax(cosine_i / τ).
        labels: of the training documents, [N, L].
        temperature: τ.
    """
    weights = softmax(cosines / np.float32(temperature), axis=1)  # [n, k]
    documents, k = rows.shape
    starts = np.arange(0, documents * k + 1, k)
    votes = csr_array((weights.ravel(), rows.ravel(), starts), shape=(documents, labels.shape[0]))
    shares = csr_array(votes @ labels.astype(np.float32))
    np.minimum(shares.data, 1, out=shares.data)  # sums of rounded weights can exceed it by a few last digits
    return shares


def to_logits(probabilities: np.ndarray, edge: float) -> np.ndarray:
    """Return logits [n, L] of probabilities [n, L] that may be 0 or 1.

    Args:
        probabilities: [n, L].
        edge: probabilities are clipped to [edge, 1 − edge], so that an expert that counts (0 of 50 neighbours) is
            not heard as one that is certain. Half of what one count gives is a good choice.
    """
    if not 0 < edge < 0.5:
        raise InputError(f"edge must lie between 0 and 0.5, got {edge}")
    values: np.ndarray = logit(np.clip(read_probabilities("probabilities", probabilities), edge, 1 - edge))
    return values


def vote_logits(shares: np.ndarray, k: int) -> np.ndarray:
    """Return logits [n, L] for mixing; a share of 0 or 1 among the k neighbours is clipped at 0.5/(k + 1)."""
    return to_logits(shares, edge=0.5 / (k + 1))


def vote_logits_in_blocks(shares: csr_array, k: int) -> Scores:
    """Return `vote_logits` of sparse shares [n, L], computed block by block where documents and labels are many."""
    every: Any = shares  # the stubs know no index that is a slice or an array

    def block(rows: Index, columns: Index) -> np.ndarray:
        return vote_logits(every[rows][:, columns].toarray(), k)

    return held(Computed((shares.shape[0], shares.shape[1]), block))
