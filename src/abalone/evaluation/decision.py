"""The decision: from the logits of a classifier and its experts to probabilities, and from these to labels.

Mixture, calibration and thresholds are fitted in `mixing.py`, `calibration.py` and `thresholds.py`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import expit

from abalone.errors import InputError
from abalone.evaluation.matrices import (
    EVERY,
    Computed,
    Index,
    Scores,
    check_same_shape,
    held,
    read_logits,
    read_one_per_label,
    read_probabilities,
)

NEVER = float(np.nextafter(1.0, 2.0))
"""The threshold that no probability reaches."""


@dataclass(frozen=True)
class Mixture:
    """The experts that are mixed in, in order, and their weights.

    Args:
        weights: names of experts and what each weighs beside everything mixed before it.

    Example:
        >>> both = Mixture({"lexical": 0.5, "neighbours": 0.2})
        >>> zeros, ones = np.zeros((1, 1)), np.ones((1, 1))
        >>> both.apply(zeros, {"lexical": ones, "neighbours": -ones}).round(3).tolist()
        [[0.2]]
    """

    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            _check_weight(f"weight of {name}", weight)

    @property
    def used(self) -> dict[str, float]:
        """The weights of the experts that weigh anything."""
        return {name: weight for name, weight in self.weights.items() if weight > 0}

    def apply(self, logits: np.ndarray, experts: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the mixed logits [n, L]; `experts` are logits by name, and those that weigh 0 may be left out."""
        for name, weight in self.used.items():
            if name not in experts:
                raise InputError(f"the mixture needs the logits of {name!r}, got those of {sorted(experts)}")
            logits = mix(logits, experts[name], weight)
        return logits

    def scores(self, logits: Scores, experts: Mapping[str, Scores]) -> Scores:
        """Call `apply` on matrices that may be computed block by block; an array where it is small."""

        def block(rows: Index, columns: Index) -> np.ndarray:
            return self.apply(logits[rows, columns], {name: expert[rows, columns] for name, expert in experts.items()})

        return held(Computed(logits.shape, block))

    def to_dict(self) -> dict[str, float]:
        """Return plain values, for JSON."""
        return dict(self.weights)

    @classmethod
    def from_dict(cls, stored: Mapping[str, float]) -> "Mixture":
        """Read what `to_dict` returned."""
        return cls({name: float(weight) for name, weight in stored.items()})


def mix(logits: np.ndarray, expert_logits: np.ndarray, weight: float) -> np.ndarray:
    """Return (1 − weight)·logits + weight·expert_logits, [n, L]: the weighted geometric mean of the odds.

    Example:
        >>> mix(np.array([[2.0, -1.0]]), np.array([[0.0, 1.0]]), 0.25).tolist()
        [[1.5, -0.5]]
    """
    _check_weight("weight", weight)
    logits, expert_logits = np.asarray(logits), np.asarray(expert_logits)
    check_same_shape("logits", logits, "expert_logits", expert_logits)
    mixed: np.ndarray = (1 - weight) * logits + weight * expert_logits
    return mixed


def _check_weight(name: str, weight: float) -> None:
    if not (math.isfinite(weight) and 0 <= weight <= 1):
        raise InputError(f"{name} must lie in [0, 1], got {weight}")


@dataclass(frozen=True, eq=False)
class TemperatureCalibration:
    """p = σ(logit / T), with a temperature T for each group of labels.

    A temperature above 1 takes confidence back, below 1 it adds some. The order of documents within a label does
    not change, so a label's own best threshold cuts at the same place; what becomes comparable are labels of
    different groups.

    Args:
        temperatures: [G].
        groups: [L], the group of each label, 0 … G − 1.

    Reference:
        Guo et al., "On Calibration of Modern Neural Networks", ICML 2017.

    Example:
        >>> calibration = TemperatureCalibration(np.array([2.0, 1.0]), np.array([0, 1]))
        >>> calibration.apply(np.array([[2.0, 2.0]])).round(3).tolist()
        [[0.731, 0.881]]
    """

    temperatures: np.ndarray
    groups: np.ndarray

    def __post_init__(self) -> None:
        temperatures, groups = np.array(self.temperatures, dtype=np.float64), np.array(self.groups)
        if temperatures.ndim != 1 or not np.all(np.isfinite(temperatures) & (temperatures > 0)):
            raise InputError(f"temperatures must be [groups], finite and above 0, got {temperatures}")
        check_groups(groups)
        if groups.max(initial=-1) >= len(temperatures):
            raise InputError(f"groups name group {groups.max()}, but there are {len(temperatures)} temperatures")
        object.__setattr__(self, "temperatures", temperatures)
        object.__setattr__(self, "groups", groups)

    def apply(self, logits: np.ndarray) -> np.ndarray:
        """Return calibrated probabilities [n, L] of logits [n, L]."""
        logits = read_logits("logits", logits)
        read_one_per_label("groups of the calibration", self.groups, logits.shape[1])
        probabilities: np.ndarray = expit(logits / self.temperatures[self.groups])
        return probabilities

    def of_labels(self, columns: slice | np.ndarray) -> "TemperatureCalibration":
        """Return the calibration of some labels."""
        return TemperatureCalibration(self.temperatures, self.groups[columns])

    def to_dict(self) -> dict[str, list[float] | list[int]]:
        """Return plain values, for JSON; read back they are the same to the last bit."""
        return {"temperatures": self.temperatures.tolist(), "groups": self.groups.tolist()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, list[float] | list[int]]) -> "TemperatureCalibration":
        """Read what `to_dict` returned."""
        if set(stored) != {"temperatures", "groups"}:
            raise InputError(
                f"stored calibration must have the entries 'temperatures' and 'groups', got {sorted(stored)}"
            )
        return cls(np.asarray(stored["temperatures"], dtype=np.float64), np.asarray(stored["groups"], dtype=np.int64))


def check_groups(groups: np.ndarray) -> None:
    """Raise unless these are the groups of labels, [L]."""
    if groups.ndim != 1 or not np.issubdtype(groups.dtype, np.integer) or groups.min(initial=0) < 0:
        raise InputError(f"groups must be [labels], integers from 0, got {groups.dtype} of shape {groups.shape}")


@dataclass(frozen=True, eq=False)
class Thresholds:
    """A label is predicted where its probability reaches its threshold: p ≥ t.

    Args:
        values: [L], in [0, 1], or `NEVER` for a label that is not to be predicted.

    Example:
        >>> cut = Thresholds(np.array([0.5, 0.1]))
        >>> cut.apply(np.array([[0.5, 0.2], [0.3, 0.05]])).astype(int).tolist()
        [[1, 1], [0, 0]]
        >>> cut.apply(np.array([[0.5, 0.2], [0.3, 0.05]]), at_least_one=True).astype(int).tolist()
        [[1, 1], [1, 0]]
    """

    values: np.ndarray

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 1 or not np.all((values >= 0) & (values <= NEVER)):
            raise InputError(f"values must be [labels], each in [0, 1] or NEVER, got {values} of shape {values.shape}")
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    def apply(self, probabilities: np.ndarray, at_least_one: bool = False) -> np.ndarray:
        """Return the labels that reach their thresholds, bool [n, L].

        Args:
            probabilities: [n, L].
            at_least_one: a document with no label that reaches its threshold gets its most probable one.
        """
        probabilities = read_probabilities("probabilities", probabilities)
        read_one_per_label("values of the thresholds", self.values, probabilities.shape[1])
        predicted: np.ndarray = probabilities >= self.values
        if at_least_one:
            bare = np.flatnonzero(~predicted.any(axis=1))
            predicted[bare, probabilities[bare].argmax(axis=1)] = True
        return predicted

    def to_dict(self) -> dict[str, list[float]]:
        """Return plain values, for JSON; read back they are the same to the last bit."""
        return {"values": self.values.tolist()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, list[float]]) -> "Thresholds":
        """Read what `to_dict` returned."""
        if set(stored) != {"values"}:
            raise InputError(f"stored thresholds must have the one entry 'values', got {sorted(stored)}")
        return cls(np.asarray(stored["values"], dtype=np.float64))


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
