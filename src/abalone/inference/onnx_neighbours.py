"""The neighbours of an exported model, in its file's metadata. Torch is never imported."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import load
from scipy.sparse import csr_array

from abalone.evaluation.mixing import label_shares, vote_logits

if TYPE_CHECKING:
    from abalone.evaluation.neighbours import NearestNeighbours

TENSORS = "neighbours.safetensors"  # the name of the file in a model folder
QUERIES = 256  # documents compared at a time; with 100,000 training documents their cosines take 100 MB


@dataclass(frozen=True, eq=False)
class StoredNeighbours:
    """What `NearestNeighbours` knows and says.

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
    def found_in(cls, stored: Mapping[str, str]) -> "StoredNeighbours | None":
        """Those in a file's metadata, if there are any."""
        if TENSORS not in stored:
            return None
        tensors = load(b64decode(stored[TENSORS], validate=True))
        embeddings, indices = tensors["embeddings"].astype(np.float32), tensors["labels.indices"]
        labels = csr_array(
            (np.ones(len(indices), dtype=np.int64), indices, tensors["labels.indptr"]),
            shape=(len(embeddings), int(tensors["labels.columns"])),
        )
        labels.check_format(full_check=True)  # products follow the indices wherever they point
        return cls(embeddings, labels, int(tensors["k"]), float(tensors["temperature"]))

    def logits(self, embeddings: np.ndarray) -> np.ndarray:
        """[n, L] from [n, d]."""
        length = np.linalg.norm(embeddings, axis=1, keepdims=True)
        queries = embeddings / np.where(length > 0, length, 1)
        k = min(self.k, len(self.embeddings))
        shares = []
        for start in range(0, len(queries), QUERIES):
            cosines = queries[start : start + QUERIES] @ self.embeddings.T  # [Q, N]
            rows = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
            near = np.take_along_axis(cosines, rows, axis=1)
            shares.append(label_shares(rows, near, self.labels, self.temperature).toarray())
        return vote_logits(np.concatenate(shares), self.k)


def neighbours_as_text(neighbours: "NearestNeighbours") -> dict[str, str]:
    """The file of a model folder by its name, as metadata can hold it."""
    from safetensors.torch import save

    return {TENSORS: b64encode(save(neighbours.state())).decode()}
