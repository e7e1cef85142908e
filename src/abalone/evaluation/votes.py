"""What a document's neighbours say of its labels. Without torch, so that an exported model can count them too."""

from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.special import softmax

from abalone.evaluation.blocks import Computed, Index, Scores, held
from abalone.evaluation.mixing import to_logits


def label_shares(rows: np.ndarray, cosines: np.ndarray, labels: csr_array, temperature: float) -> csr_array:
    """The share of each label among the neighbours, [n, L]: few entries a row, as these carry few of many labels.

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


def vote_logits(shares: np.ndarray, k: int) -> np.ndarray:
    """Logits [n, L] for mixing; what none or all of the k neighbours carry is clipped at half of one in k + 1."""
    return to_logits(shares, edge=0.5 / (k + 1))


def vote_logits_in_blocks(shares: csr_array, k: int) -> Scores:
    """`vote_logits` of sparse shares [n, L], computed block by block where documents and labels are many."""
    every: Any = shares  # the stubs know no index that is a slice or an array

    def block(rows: Index, columns: Index) -> np.ndarray:
        return vote_logits(every[rows][:, columns].toarray(), k)

    return held(Computed((shares.shape[0], shares.shape[1]), block))
