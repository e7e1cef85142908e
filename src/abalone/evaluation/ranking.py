"""How well probabilities rank: precision at k, ranking loss, mean average precision.

All follow from where each positive stands among the scores of its row, which takes one sort and no loop over rows.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from abalone.evaluation.blocks import EVERY, Scores, row_blocks, transposed

SORTED_AT_ONCE = 2**22  # scores; bounds the memory, and stays in the caches
CUTOFFS = (1, 3, 5)


def ranking_scores(truth: csr_array, probabilities: Scores) -> dict[str, float]:
    """`precision_at_1`, `_3` and `_5`, `ranking_loss` and `mean_average_precision`, as `evaluate` says.

    Args:
        truth: [n, L], as `read_labels` gives it.
        probabilities: [n, L].
    """
    documents, labels = truth.shape
    of_document = Placement.of(truth, probabilities)
    tied = of_document.reached - of_document.above
    scores = {
        f"precision_at_{k}": float(np.clip((k - of_document.above) / tied, 0, 1).sum() / (k * documents))
        for k in CUTOFFS
    }
    sizes = np.diff(truth.indptr)  # [n]
    wrong_pairs = np.bincount(of_document.rows, of_document.reached - of_document.hits, minlength=documents)
    scores["ranking_loss"] = float(np.mean(wrong_pairs / np.maximum(sizes * (labels - sizes), 1)))
    by_label = truth.T.tocsr()
    of_label = Placement.of(by_label, transposed(probabilities))
    support = np.diff(by_label.indptr)  # [L]
    precision = np.bincount(of_label.rows, of_label.hits / of_label.reached, minlength=labels)
    present = support > 0
    scores["mean_average_precision"] = float(np.mean(precision[present] / support[present])) if present.any() else 0.0
    return scores


@dataclass(frozen=True)
class Placement:
    """Where the positives of each row stand among the scores of that row; [P], an entry for each 1 of the truth."""

    rows: np.ndarray
    scores: np.ndarray
    above: np.ndarray  # scores of the row that are higher
    reached: np.ndarray  # scores of the row that are at least as high, its own among them
    hits: np.ndarray  # positives of the row that score at least as high, itself among them
    below: np.ndarray  # the next lower score of the row; 0 if there is none

    @classmethod
    def of(cls, truth: csr_array, scores: Scores) -> "Placement":
        """Sort the scores [rows, items], a block of rows at a time, and look the positives up."""
        step = max(1, SORTED_AT_ONCE // scores.shape[1])
        found = []
        for block in row_blocks(scores.shape):
            made, carried = scores[block, EVERY], truth[block]
            found += [
                _stand(carried[i : i + step], made[i : i + step], block.start + i) for i in range(0, len(made), step)
            ]
        return cls(*map(np.concatenate, zip(*found, strict=True)))


def _stand(truth: csr_array, scores: np.ndarray, first_row: int) -> tuple[np.ndarray, ...]:
    """The columns of `Placement` for a block of rows."""
    items = scores.shape[1]
    sizes = np.diff(truth.indptr)
    rows = np.repeat(np.arange(len(scores)), sizes)  # [P]
    own = scores[rows, truth.indices]
    start, stop = rows * items, (rows + 1) * items
    ascending = np.sort(scores, axis=1).ravel()
    low = _search(ascending, start, stop, own, side="left")
    high = _search(ascending, start, stop, own, side="right")
    below = np.where(low > start, ascending[np.maximum(low, 1) - 1], 0)
    ends = np.cumsum(sizes)[rows]
    hits = ends - _search(own[np.lexsort((own, rows))], ends - sizes[rows], ends, own, side="left")
    return rows + first_row, own, stop - high, stop - low, hits, below


def _search(ascending: np.ndarray, start: np.ndarray, stop: np.ndarray, values: np.ndarray, *, side: str) -> np.ndarray:
    """`np.searchsorted` of each value in its own stretch [start, stop) of `ascending`."""
    low, high = start.astype(np.int64), stop.astype(np.int64)
    while np.any(low < high):
        middle = (low + high) // 2
        found = ascending[np.minimum(middle, ascending.size - 1)]
        right = (low < high) & (found < values if side == "left" else found <= values)
        low, high = np.where(right, middle + 1, low), np.where(right, high, middle)
    return low
