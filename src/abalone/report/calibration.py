"""Whether probabilities mean what they say, and what the thresholds that were chosen are worth."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from abalone.evaluation.decision import Decision
from abalone.evaluation.matrices import EVERY, Scores, of_labels, row_blocks
from abalone.evaluation.metrics import THIRDS, evaluate
from abalone.evaluation.thresholds import Thresholds, fit_thresholds

if TYPE_CHECKING:
    from abalone.report.runs import ReportedRun

BINS = 15  # those of `expected_calibration_error`


@dataclass(frozen=True)
class Reliability:
    """What probabilities say against what is true, over bins of equal width; empty bins are left out.

    Args:
        group: the labels it is about, a third or "all".
        said: mean probability of each bin.
        true: share of its (document, label) pairs that are positive.
        pairs: how many there are.
        error: the expected calibration error.
    """

    group: str
    said: list[float]
    true: list[float]
    pairs: list[int]
    error: float


def reliability(group: str, probabilities: Scores, truth: csr_array, bins: int = BINS) -> Reliability:
    """Bin the (document, label) pairs by probability.

    Args:
        group: what the labels are called.
        probabilities, truth: [n, L]; probabilities may be computed block by block.
        bins: how many.
    """
    pairs, said, true = np.zeros(bins, np.int64), np.zeros(bins), np.zeros(bins, np.int64)
    for rows in row_blocks(probabilities.shape):
        block = probabilities[rows, EVERY]
        place = np.minimum((block * bins).astype(np.int64), bins - 1)  # [r, L]
        pairs += np.bincount(place.ravel(), minlength=bins)
        said += np.bincount(place.ravel(), block.ravel(), minlength=bins)
        true += np.bincount(place[truth[rows].nonzero()], minlength=bins)
    filled = pairs > 0
    return Reliability(
        group=group,
        said=(said[filled] / pairs[filled]).tolist(),
        true=(true[filled] / pairs[filled]).tolist(),
        pairs=pairs[filled].tolist(),
        error=float(np.abs(said - true).sum() / pairs.sum()),
    )


def reliability_by_third(probabilities: Scores, truth: csr_array, thirds: np.ndarray) -> list[Reliability]:
    """Of all labels, then of head, medium and tail; a third without a label is left out."""
    found = [reliability("all", probabilities, truth)]
    for third, name in enumerate(THIRDS):
        inside = np.flatnonzero(thirds == third)
        if inside.size:
            found.append(reliability(name, of_labels(probabilities, inside), truth[:, inside]))
    return found


def threshold_worth(run: "ReportedRun") -> dict[str, dict[str, float]]:
    """Scores with 0.5 everywhere, with the thresholds that were chosen, and with the best ones in hindsight.

    Hindsight is each label's own best cut on these very documents: no honest choice reaches it, and the gap to it is
    what better thresholds could still bring. It is left out where no document carries a label.
    """
    truth, probabilities = run.scored.truth, run.scored.probabilities
    half = Decision(Thresholds(np.full(len(run.label_names), 0.5)), at_least_one=run.decision.at_least_one)
    given = {"half": half.given(probabilities), "chosen": run.scored.predictions}
    if truth.nnz:
        best = fit_thresholds(probabilities, truth, objective="macro", shrinkage=0)
        given["hindsight"] = Decision(best).given(probabilities)
    return {name: evaluate(truth, labels, frequencies=run.frequencies) for name, labels in given.items()}
