"""How sure a score, or the difference of two, can be with this many documents: the bootstrap, on equal draws."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array

from abalone.evaluation.checks import Labels, check_same_shape, read_labels
from abalone.evaluation.groups import THIRDS
from abalone.evaluation.metrics import Counts

SAMPLES = 1000
LEVEL = 0.95
DRAWN_AT_ONCE = 2**22  # documents, or labels: bounds the memory, and stays in the caches


@dataclass(frozen=True)
class Interval:
    """A value and its percentile interval over documents drawn with replacement."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, drawn: np.ndarray, level: float = LEVEL) -> "Interval":
        """From the values of the draws, [samples]."""
        low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
        return cls(float(value), float(low), float(high))


@dataclass(frozen=True)
class Drawn:
    """F1 scores of one run: on the documents as they are, and on every draw of them."""

    scores: dict[str, float]
    draws: dict[str, np.ndarray]  # [samples] each

    def intervals(self) -> dict[str, Interval]:
        """Of every score."""
        return {name: Interval.of(value, self.draws[name]) for name, value in self.scores.items()}

    def against(self, other: "Drawn") -> dict[str, Interval]:
        """Of every difference, this run minus the other, drawn with the same seed from the same documents."""
        return {
            name: Interval.of(value - other.scores[name], self.draws[name] - other.draws[name])
            for name, value in self.scores.items()
        }


def draw_scores(
    truth: Labels, predictions: Labels, thirds: np.ndarray, *, samples: int = SAMPLES, seed: int = 0
) -> Drawn:
    """`micro_f1`, `macro_f1` and `macro_f1_head`, `_medium`, `_tail`, over documents drawn with replacement.

    They speak of the documents, not of training: other seeds vary on top. With labels that have a test document or two
    the macro interval leans low, since a draw without them scores 0 there.

    Args:
        truth, predictions: [n, L].
        thirds: [L], the third of each label.
        samples: how often to draw.
        seed: runs that are drawn with the same seed can be compared draw by draw.
    """
    truth, predictions = read_labels("truth", truth), read_labels("predictions", predictions)
    check_same_shape("truth", truth, "predictions", predictions)
    documents, labels = truth.shape
    by_label = [m.T.astype(np.float64) for m in (truth.multiply(predictions), predictions, truth)]  # [L, n] each
    rng = np.random.default_rng(seed)
    step = max(1, DRAWN_AT_ONCE // max(documents, labels))
    blocks = [
        _scores(_drawn_counts(by_label, rng, documents, min(step, samples - start)), thirds)
        for start in range(0, samples, step)
    ]
    scores = {name: float(value) for name, value in _scores(Counts.of(truth, predictions), thirds).items()}
    return Drawn(scores, {name: np.concatenate([block[name] for block in blocks]) for name in scores})


def _drawn_counts(by_label: list[csc_array], rng: np.random.Generator, documents: int, samples: int) -> Counts:
    """[samples, L]."""
    places = rng.integers(documents, size=(samples, documents)) * samples + np.arange(samples)[:, None]
    weights = np.bincount(places.ravel(), minlength=documents * samples).reshape(documents, samples)  # [n, samples]
    return Counts(*((matrix @ weights).T for matrix in by_label))


def _scores(counts: Counts, thirds: np.ndarray) -> dict[str, np.ndarray]:
    f1 = counts.f1()  # [..., L]
    scores = {"micro_f1": counts.pooled().f1(), "macro_f1": f1.mean(-1)}
    for third, name in enumerate(THIRDS):
        if np.any(thirds == third):
            scores[f"macro_f1_{name}"] = f1[..., thirds == third].mean(-1)
    return scores
