"""Metrics of predictions: F1 and its parts, over all labels, by third and by label, and of a ranking.

Values are scikit-learn's (`zero_division=0`). The F1 family comes from three counts per label, taken on sparse
matrices. Ranking metrics follow from the place of each positive among the scores of its row, which takes one sort and
no loop over rows.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from abalone.errors import InputError
from abalone.evaluation.matrices import (
    EVERY,
    Computed,
    Labels,
    Scores,
    check_same_shape,
    of_labels,
    read_labels,
    read_one_per_label,
    read_probability_scores,
    row_blocks,
    transposed,
)

Predictions = Labels | Computed
"""0/1 of any type, [n, L]: dense, sparse, or computed block by block."""


def evaluate(
    truth: Labels,
    predictions: Predictions,
    *,
    probabilities: Scores | None = None,
    frequencies: np.ndarray | None = None,
    scored: np.ndarray | None = None,
) -> dict[str, float]:
    """Return the metrics of the field in one dictionary.

    Always `micro_f1`, `macro_f1`, `hamming_loss` and `micro_`/`macro_` `precision` and `recall`. A label that is
    neither present nor predicted has F1 = 0 and counts: macro averages are over all labels, as in the paper.
    `macro_f1_present` is over the labels that a document carries: of few documents it says more.

    Args:
        truth, predictions: [n, L]. Predictions and probabilities may be computed block by block (`Computed`).
        probabilities: [n, L]; adds `precision_at_1`, `_3`, `_5` (ties count in proportion; always over k, even
            where L < k), `ranking_loss` (ties count as wrong) and `mean_average_precision` (over the labels that
            have a positive).
        frequencies: [L], training documents of each label; adds `macro_f1_head`, `_medium` and `_tail`. A third
            without a scored label has no entry.
        scored: [L] of bool; labels that are False are left out of everything. The thirds stay those of all labels.

    Example:
        >>> truth = np.array([[1, 0], [1, 1], [0, 1]])
        >>> scores = evaluate(truth, np.array([[1, 0], [1, 0], [0, 1]]))
        >>> round(scores["micro_f1"], 4), round(scores["macro_f1"], 4), round(scores["hamming_loss"], 4)
        (0.8571, 0.8333, 0.1667)
    """
    truth, predictions = _read_pair(truth, predictions)
    columns = _scored_columns(scored, truth.shape[1])
    counts = Counts.of(truth, predictions).of_labels(columns)
    scores = _count_scores(counts, truth.shape[0], _thirds(frequencies, columns, truth.shape[1]))
    values = {name: float(score) for name, score in scores.items()}
    if probabilities is not None:
        probabilities = read_probability_scores("probabilities", probabilities)
        check_same_shape("truth", truth, "probabilities", probabilities)
        if scored is not None:
            truth, probabilities = truth[:, columns], of_labels(probabilities, columns)
        values |= ranking_scores(truth, probabilities)
    return values


@dataclass(frozen=True)
class LabelScore:
    """The scores of one label."""

    name: str
    train_frequency: int | None
    support: int  # documents that carry it
    predicted: int  # documents that are said to carry it
    precision: float
    recall: float
    f1: float
    threshold: float | None = None


def per_label(
    truth: Labels,
    predictions: Predictions,
    label_names: list[str] | tuple[str, ...],
    frequencies: np.ndarray | None = None,
    thresholds: np.ndarray | None = None,
) -> list[LabelScore]:
    """Score each label, in label order; `sorted(table, key=attrgetter("f1"))` sorts it.

    Args:
        truth, predictions: [n, L].
        label_names: L names.
        frequencies: [L], training documents of each label.
        thresholds: [L], as in `Thresholds.values`; only shown.
    """
    truth, predictions = _read_pair(truth, predictions)
    labels = truth.shape[1]
    names = read_one_per_label("label_names", np.asarray(label_names, dtype=object), labels)
    known = None if frequencies is None else read_one_per_label("frequencies", frequencies, labels)
    cuts = None if thresholds is None else read_one_per_label("thresholds", thresholds, labels)
    counts = Counts.of(truth, predictions)
    precision, recall, f1 = counts.precision(), counts.recall(), counts.f1()
    return [
        LabelScore(
            name=names[label],
            train_frequency=None if known is None else int(known[label]),
            support=int(counts.support[label]),
            predicted=int(counts.predicted[label]),
            precision=float(precision[label]),
            recall=float(recall[label]),
            f1=float(f1[label]),
            threshold=None if cuts is None else float(cuts[label]),
        )
        for label in range(labels)
    ]


@dataclass(frozen=True)
class Counts:
    """The counts that F1 is computed from, [..., L]: true positives, predictions, positives."""

    hits: np.ndarray
    predicted: np.ndarray
    support: np.ndarray

    @classmethod
    def of(cls, truth: csr_array, predictions: csr_array | Computed) -> "Counts":
        """Count; what is not computed is as `read_labels` gives it."""
        if isinstance(predictions, Computed):
            # Not all at once even as sparse ones: a model that knows nothing yet predicts every other label.
            blocks = [
                cls.of(truth[rows], read_labels("predictions", predictions[rows, EVERY]))
                for rows in row_blocks(truth.shape)
            ]
            counts = np.array([(block.hits, block.predicted, block.support) for block in blocks]).sum(axis=0)  # [3, L]
            return cls(*counts)
        matrices = truth.multiply(predictions), predictions, truth
        return cls(*(np.bincount(matrix.indices, minlength=truth.shape[1]) for matrix in matrices))

    def of_labels(self, columns: np.ndarray) -> "Counts":
        """Return the counts of some labels."""
        return Counts(self.hits[..., columns], self.predicted[..., columns], self.support[..., columns])

    def pooled(self) -> "Counts":
        """Sum over the labels, for micro averages; [...]."""
        return Counts(self.hits.sum(-1), self.predicted.sum(-1), self.support.sum(-1))

    def precision(self) -> np.ndarray:
        """Return the share of the predictions that are right; 0 where there are none."""
        return _share(self.hits, self.predicted)

    def recall(self) -> np.ndarray:
        """Return the share of the positives that are predicted; 0 where there are none."""
        return _share(self.hits, self.support)

    def f1(self) -> np.ndarray:
        """Return the harmonic mean of precision and recall; 0 where there is neither prediction nor positive."""
        return _share(2 * self.hits, self.predicted + self.support)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Divide part by whole; 0 where the whole is 0."""
    share: np.ndarray = part / np.maximum(whole, 1)
    return share


def _count_scores(counts: Counts, documents: int, thirds: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return the F1 family of counts [..., L], [...] each."""
    pooled, f1 = counts.pooled(), counts.f1()
    wrong = pooled.predicted + pooled.support - 2 * pooled.hits
    scores = {
        "micro_f1": pooled.f1(),
        "macro_f1": f1.mean(-1),
        "macro_f1_present": _share(f1.sum(-1), (counts.support > 0).sum(-1)),  # without a positive there is no hit
        "hamming_loss": wrong / (documents * f1.shape[-1]),
        "micro_precision": pooled.precision(),
        "micro_recall": pooled.recall(),
        "macro_precision": counts.precision().mean(-1),
        "macro_recall": counts.recall().mean(-1),
    }
    for third, name in enumerate(THIRDS if thirds is not None else ()):
        inside = thirds == third
        if np.any(inside):
            scores[f"macro_f1_{name}"] = f1[..., inside].mean(-1)
    return scores


def _read_pair(truth: Labels, predictions: Predictions) -> tuple[csr_array, csr_array | Computed]:
    truth = read_labels("truth", truth)
    if not isinstance(predictions, Computed):
        predictions = read_labels("predictions", predictions)
    check_same_shape("truth", truth, "predictions", predictions)
    return truth, predictions


def _scored_columns(scored: np.ndarray | None, labels: int) -> np.ndarray:
    if scored is None:
        return np.arange(labels)
    mask = read_one_per_label("scored", scored, labels)
    if mask.dtype != np.bool_ or not mask.any():
        raise InputError("scored must be True or False for each label, and True for at least one")
    return np.flatnonzero(mask)


def _thirds(frequencies: np.ndarray | None, columns: np.ndarray, labels: int) -> np.ndarray | None:
    if frequencies is None:
        return None
    thirds: np.ndarray = label_thirds(read_one_per_label("frequencies", frequencies, labels))[columns]
    return thirds


SORTED_AT_ONCE = 2**22  # scores; bounds the memory, and stays in the caches
CUTOFFS = (1, 3, 5)


def ranking_scores(truth: csr_array, probabilities: Scores) -> dict[str, float]:
    """Return `precision_at_1`, `_3` and `_5`, `ranking_loss` and `mean_average_precision`, as `evaluate` defines them.

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
    """The rank of each positive among the scores of its row; [P], an entry for each 1 of the truth."""

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
    """Return the columns of `Placement` for a block of rows."""
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
    """Search each value in its own stretch [start, stop) of `ascending`, as `np.searchsorted` does."""
    low, high = start.astype(np.int64), stop.astype(np.int64)
    while np.any(low < high):
        middle = (low + high) // 2
        found = ascending[np.minimum(middle, ascending.size - 1)]
        right = (low < high) & (found < values if side == "left" else found <= values)
        low, high = np.where(right, middle + 1, low), np.where(right, high, middle)
    return low


THIRDS = ("head", "medium", "tail")


def label_thirds(frequencies: np.ndarray) -> np.ndarray:
    """Return the third that each label belongs to: 0 head, 1 medium, 2 tail.

    Labels are ranked from the most frequent down, equally frequent ones in label order, and cut after ranks ⌈L/3⌉
    and ⌈2L/3⌉: what does not divide by three goes to the head, then to the medium third (53 labels: 18, 18, 17).
    With fewer than three labels the tail is empty.

    Args:
        frequencies: [L], training documents of each label.

    Returns:
        [L], indices into `THIRDS`.

    Example:
        >>> label_thirds(np.array([1, 900, 30, 30])).tolist()
        [2, 0, 0, 1]
    """
    frequencies = np.asarray(frequencies)
    if frequencies.ndim != 1:
        raise InputError(f"frequencies must be [labels], got shape {frequencies.shape}")
    if not np.all(frequencies >= 0):  # written so that NaN is refused too
        raise InputError("frequencies must be counts of at least 0")
    labels = len(frequencies)
    ranks = np.empty(labels, dtype=np.int64)
    ranks[np.argsort(-frequencies.astype(np.float64), kind="stable")] = np.arange(labels)
    return np.searchsorted([math.ceil(labels / 3), math.ceil(2 * labels / 3)], ranks, side="right")
