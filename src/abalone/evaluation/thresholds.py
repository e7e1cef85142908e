"""Thresholds of probabilities, one for each label, chosen on validation documents."""

import math
from typing import get_args

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit, logit

from abalone.config import ThresholdObjective
from abalone.errors import InputError
from abalone.evaluation.decision import NEVER, Thresholds
from abalone.evaluation.matrices import (
    EVERY,
    Labels,
    Scores,
    check_same_shape,
    column_blocks,
    read_labels,
    read_probability_scores,
    row_blocks,
    transposed,
)
from abalone.evaluation.metrics import Placement

# Tried on arXiv abstracts: 53 labels; logistic regression and SVM on tf-idf, logistic regression on LSA; thresholds
# chosen on 500, 1,500 or 4,800 documents and scored on fresh ones. Against no shrinkage macro-F1 gains 1.9 to 2.2, 1.3
# to 1.7 and 0.4 to 0.8 points, micro-F1 (objective `micro`) 0.7 to 0.8, 0.2 to 0.3 and 0.0 to 0.1; flat from 20 to 100.
SHRINKAGE = 30.0
# How often a label may be given beside how often it occurs, whatever its probabilities promise. Fitted on one half of
# validation and scored on the other, cuts that know of promises gain 0.4 points of macro-F1 over break-even ones on
# arXiv abstracts (mean of 16 models and mixtures) and 1.0 on Reuters (of 9), and 0.1 and 1.0 points of micro-F1.
MOST_OFTEN = 1.5
# A label without a positive promises next to nothing, and half of that would be reached by ordinary documents. Fitted
# on 100, 300 or 1,000 of arXiv's 4,800 validation documents and scored on the others, macro-F1 gains 1.6, 0.3 and -0.1
# points and micro-F1 0.9, 0.1 and 0.0 (mean of 12 models and mixtures); on 150 or 388 of Reuters' 777, 6.1 and 0.2, and
# 9.1 and 2.2. Labels with few positives keep their promises: most have one, and halves cannot judge by one.
LEAST = 0.05
# What a threshold of 0 and of 1 are taken for in logit space, where both are infinitely far.
EDGES = (np.finfo(np.float64).tiny, 1 - np.finfo(np.float64).epsneg)


def fit_thresholds(
    probabilities: Scores,
    labels: Labels,
    *,
    objective: ThresholdObjective = "macro",
    shrinkage: float = SHRINKAGE,
    calibrated: bool = False,
) -> Thresholds:
    """Choose thresholds on documents that were not trained on.

    Each label's own best cut is exact: of all cuts midway between neighbouring probabilities the one with the
    highest F1 (the higher cut among equals). With few positives that cut is mostly noise, so it is drawn towards a
    safer one: in logit space, with weight n⁺/(n⁺ + shrinkage) on the label's own, n⁺ its positives. A label without
    a positive takes the safer cut. Which cut is safe follows from what is best for probabilities that are known:
    half of the F1 reached (Lipton et al.). For micro-F1 that is one value, so the safe cut is the best one common
    to all labels, which asks for labels that are about equally calibrated. For macro-F1 it is each label's own and
    a common cut would bury the rare ones: the safe cut is half of the F1 that the label's probabilities promise,
    if they are known to mean what they say (0.05 at least where there is no positive); else the break-even one (Yang),
    which predicts a label as often as it occurs (once at least) and asks for nothing but a count.

    Args:
        probabilities: [n, L], as an array or computed block by block.
        labels: [n, L].
        objective: `macro` for macro-F1, which each label improves by itself; `micro` for micro-F1, of which the
            cuts are the joint optimum; `half` for p ≥ 0.5 everywhere.
        shrinkage: as many positives as it takes for a label's own cut to count as much as the safer one; 0 turns
            it off.
        calibrated: whether probabilities mean what they say, as after `fit_temperatures`.

    Reference:
        Lipton, Elkan & Naryanaswamy, "Optimal Thresholding of Classifiers to Maximize F1 Measure", ECML PKDD 2014.
        Yang, "A Study of Thresholding Strategies for Text Categorization", SIGIR 2001.
    """
    if objective not in get_args(ThresholdObjective):
        raise InputError(f"objective must be one of {', '.join(get_args(ThresholdObjective))}, got {objective!r}")
    if not (math.isfinite(shrinkage) and shrinkage >= 0):
        raise InputError(f"shrinkage must be a finite number of at least 0, got {shrinkage}")
    probabilities, truth = read_probability_scores("probabilities", probabilities), read_labels("labels", labels)
    check_same_shape("probabilities", probabilities, "labels", truth)
    if objective == "half":
        return Thresholds(np.full(truth.shape[1], 0.5))
    by_label = truth.T.tocsr()  # [L, n]
    support = np.diff(by_label.indptr)
    if not support.any():
        raise InputError(f"labels of shape {truth.shape} hold no positive to choose thresholds by")
    if objective == "macro":
        fitted, safe = _cuts_label_by_label(probabilities, by_label, calibrated, exact=shrinkage == 0)
    else:
        fitted, safe = _micro_cuts(probabilities, by_label), np.full(len(support), _common_cut(probabilities, truth))
    own = safe.copy()
    own[support > 0] = fitted
    weight = support / np.maximum(support + shrinkage, 1)
    drawn = expit(weight * _logit(own) + (1 - weight) * _logit(safe))
    # A cut that is not drawn anywhere is kept to the last bit: it may lie between neighbouring floats.
    return Thresholds(np.where((weight == 1) | (own == safe), own, drawn))


def _logit(cut: np.ndarray) -> np.ndarray:
    value: np.ndarray = logit(np.clip(cut, *EDGES))
    return value


def _midway(below: np.ndarray, above: np.ndarray | float) -> np.ndarray:
    """Return a cut that separates two probabilities: below < cut ≤ above, also where no float lies between."""
    middle = (below.astype(np.float64) + above) / 2
    return np.where(middle > below, middle, above)


# A cut can only be best right at a positive: lowered past a negative it would gain nothing and cost precision.
# So each positive stands for a cut, and what that cut predicts and hits is where the positive stands in its column.


def _best_by_row(at: Placement, score: np.ndarray) -> np.ndarray:
    """Return the index of the best-scored positive of each row that has one; the highest cut among equals."""
    order = np.lexsort((at.scores, score, at.rows))
    return order[np.flatnonzero(np.diff(at.rows[order], append=-1))]


def _cuts_label_by_label(
    probabilities: Scores, by_label: csr_array, calibrated: bool, *, exact: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Find the macro cut of each label that has a positive, and the safe cut of every label.

    Where a label does best by being given to most documents though few carry it, its scores say nothing of it: unless
    `exact` cuts are wanted, its own cut is the safe one. Experts that count, such as neighbours, say the same of most
    documents, and a cut drawn ever so little below that would let all of them in.
    """
    safe_cuts = _promised_cuts if calibrated else _break_even_cuts
    blocks = []
    for columns in column_blocks(probabilities.shape):
        block, carried = probabilities[EVERY, columns], by_label[columns]
        support = np.diff(carried.indptr)
        own, given = _macro_cuts(block, carried)
        safe = safe_cuts(block, support)
        if not exact:
            blind = (given > len(block) / 2) & (support[support > 0] < len(block) / 4)
            own = np.where(blind, safe[support > 0], own)
        blocks.append((own, safe))
    fitted, safe = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return fitted, safe


def _macro_cuts(probabilities: np.ndarray, by_label: csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Find the cut with the highest F1 for each label that has a positive, and count the documents it gives it to."""
    at = Placement.of(by_label, probabilities.T)
    support = np.diff(by_label.indptr)
    best = _best_by_row(at, 2 * at.hits / (at.reached + support[at.rows]))
    return _midway(at.below[best], at.scores[best]), at.reached[best]


def _micro_cuts(probabilities: Scores, by_label: csr_array) -> np.ndarray:
    """Find the cuts with the highest joint micro-F1, for each label that has a positive.

    Micro-F1 is a ratio of two sums over labels, 2·hits / (predicted + positives). Dinkelbach's method: a ratio of at
    least F can be had if and only if 2·hits − F·predicted, which each label makes as large as it can by itself,
    reaches F·positives; the ratio had is the next F, until it no longer grows.
    """
    at = Placement.of(by_label, transposed(probabilities))
    reached_f1 = 0.0
    while True:
        gain = 2 * at.hits - reached_f1 * at.reached
        best = _best_by_row(at, gain)
        worth = gain[best] > 0  # else the label is better never predicted
        hits, predicted = at.hits[best][worth].sum(), at.reached[best][worth].sum()
        f1 = 2 * hits / (predicted + at.rows.size)
        if f1 <= reached_f1:
            break
        reached_f1 = f1
    columns = column_blocks(probabilities.shape)
    highest = np.concatenate([probabilities[EVERY, block].max(axis=0) for block in columns])[at.rows[best]]
    return np.where(worth, _midway(at.below[best], at.scores[best]), _midway(highest, NEVER))


def _common_cut(probabilities: Scores, truth: csr_array) -> float:
    """Find the one cut for all labels with the highest micro-F1; the highest cut among equals."""
    blocks = list(row_blocks(probabilities.shape))
    own = np.concatenate([probabilities[rows, EVERY][truth[rows].nonzero()] for rows in blocks])  # [P]
    cuts, positives = np.unique(own, return_counts=True)  # [C] both, ascending: as above, only a positive can be best
    pairs = np.zeros(len(cuts) + 1, dtype=np.int64)  # by how many of the cuts they reach
    for rows in blocks:
        reached = np.searchsorted(cuts, probabilities[rows, EVERY].ravel(), side="right")
        pairs += np.bincount(reached, minlength=len(pairs))
    hits, predicted = positives[::-1].cumsum()[::-1], pairs[::-1].cumsum()[::-1][1:]
    f1 = 2 * hits / (predicted + len(own))
    best = cuts[np.flatnonzero(f1 == f1.max())[-1:]]  # [1]
    below = np.zeros_like(best)
    for rows in blocks:
        block = probabilities[rows, EVERY]
        below = np.maximum(below, block.max(initial=0, where=block < best))
    return float(_midway(below, best)[0])


def _promised_cuts(probabilities: np.ndarray, support: np.ndarray) -> np.ndarray:
    """Return half of the highest F1 that each label can expect, were its probabilities right.

    A label whose probabilities are all the same would expect most of being given to every document: so each is given
    at most `MOST_OFTEN` times as often as it occurs. One that occurs nowhere would expect most of being given where it
    is a little less improbable: so its cut is at least `LEAST`.
    """
    descending = -np.sort(-probabilities.astype(np.float64), axis=0)  # [n, L]
    given = np.arange(1, len(descending) + 1)[:, None]
    expected_f1 = 2 * descending.cumsum(axis=0) / (given + descending.sum(axis=0))  # [n, L]
    most = np.minimum(MOST_OFTEN * np.maximum(support, 1), len(probabilities)).astype(int)
    promised = np.maximum(expected_f1.max(axis=0) / 2, np.where(support > 0, 0, LEAST))
    cuts: np.ndarray = np.maximum(promised, _break_even_cuts(probabilities, most))
    return cuts


def _break_even_cuts(probabilities: np.ndarray, support: np.ndarray) -> np.ndarray:
    """Return the cut of each label that as many documents reach as carry it, one at least."""
    documents, labels = probabilities.shape
    ascending = np.vstack([np.zeros(labels), np.sort(probabilities, axis=0)]).astype(np.float64)  # [1 + n, L]
    first = documents + 1 - np.maximum(support, 1)
    out, inside = ascending[first - 1, np.arange(labels)], ascending[first, np.arange(labels)]  # [L] both
    # Equals stay out together: let in, a label that scores the same everywhere would be given to every document.
    return np.where(out < inside, _midway(out, inside), np.nextafter(inside, NEVER))
