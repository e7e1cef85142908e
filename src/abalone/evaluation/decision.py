"""The decision: mixture, calibration and thresholds, which turn the logits of models into labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit

from abalone.config import Config
from abalone.evaluation.calibration import TemperatureCalibration, fit_temperatures
from abalone.evaluation.matrices import EVERY, Computed, Index, Scores, held
from abalone.evaluation.metrics import label_thirds
from abalone.evaluation.mixing import Mixture
from abalone.evaluation.thresholds import Thresholds, fit_thresholds


@dataclass(frozen=True, eq=False)
class Decision:
    """How logits become labels.

    Args:
        thresholds: a label is given where its probability reaches its threshold.
        mixture: how much each expert weighs beside the classifier.
        calibration: turns logits into probabilities that mean what they say; plain σ without it.
        at_least_one: whether every document gets its most probable label.
    """

    thresholds: Thresholds
    mixture: Mixture = field(default_factory=Mixture)
    calibration: TemperatureCalibration | None = None
    at_least_one: bool = False

    def probabilities(self, logits: np.ndarray, experts: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return probabilities [n, L] from the classifier's logits and those of each expert."""
        logits = self.mixture.apply(logits, experts)
        probabilities: np.ndarray = expit(logits) if self.calibration is None else self.calibration.apply(logits)
        return probabilities

    def labels(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the labels that reach their thresholds, bool [n, L]."""
        if len(probabilities) == 0:
            return np.zeros(probabilities.shape, dtype=bool)
        return self.thresholds.apply(probabilities, at_least_one=self.at_least_one)

    def scores(self, logits: Scores, experts: Mapping[str, Scores]) -> Scores:
        """Return `probabilities` of matrices that may be computed block by block; an array where it is small."""

        def block(rows: Index, columns: Index) -> np.ndarray:
            others = {name: expert[rows, columns] for name, expert in experts.items()}
            return self._of_labels(columns).probabilities(logits[rows, columns], others)

        return held(Computed(logits.shape, block))

    def given(self, probabilities: Scores) -> Scores:
        """Return `labels` of probabilities that may be computed block by block; an array of bool where it is small."""

        def block(rows: Index, columns: Index) -> np.ndarray:
            return self.labels(probabilities[rows, EVERY])[:, columns]  # whole rows: one label at least is of them all

        return held(Computed(probabilities.shape, block))

    def _of_labels(self, columns: Index) -> "Decision":
        calibration = None if self.calibration is None else self.calibration.of_labels(columns)
        return replace(self, thresholds=Thresholds(self.thresholds.values[columns]), calibration=calibration)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "thresholds": self.thresholds.to_dict(),
            "mixture": self.mixture.to_dict(),
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "at_least_one": self.at_least_one,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Decision":
        """Read what `to_dict` returned."""
        calibration = stored["calibration"]
        return cls(
            Thresholds.from_dict(stored["thresholds"]),
            Mixture.from_dict(stored["mixture"]),
            None if calibration is None else TemperatureCalibration.from_dict(calibration),
            stored["at_least_one"],
        )


def fit_decision(
    logits: Scores,
    experts: Mapping[str, Scores],
    labels: csr_array,
    frequencies: np.ndarray,
    config: Config,
) -> Decision:
    """Choose weights, temperatures and thresholds on validation documents.

    Args:
        logits: of the classifier, [n, L]; these and the experts' as arrays or computed block by block.
        experts: logits of others to mix in, each [n, L].
        labels: [n, L].
        frequencies: [L], training documents of each label.
        config: what is wanted: `calibrate`, `thresholds`, `at_least_one`.
    """
    mixture = Mixture.chosen(logits, experts, labels, "micro" if config.thresholds == "micro" else "macro")
    mixed = mixture.scores(logits, experts)
    calibration = fit_temperatures(mixed, labels, label_thirds(frequencies)) if config.calibrate else None
    undecided = Decision(Thresholds(np.full(labels.shape[1], 0.5)), calibration=calibration)
    thresholds = fit_thresholds(
        undecided.scores(mixed, {}), labels, objective=config.thresholds, calibrated=config.calibrate
    )
    return Decision(thresholds, mixture, calibration, config.at_least_one)
