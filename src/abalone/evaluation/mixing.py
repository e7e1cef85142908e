"""Mixture of a classifier with experts: a weighted mean of logits, the weight chosen on validation.

Without torch, so that an exported model can mix too.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit, logit

from abalone.errors import InputError
from abalone.evaluation import matrices
from abalone.evaluation.matrices import (
    EVERY,
    Computed,
    Index,
    Labels,
    Scores,
    check_same_shape,
    held,
    read_labels,
    read_logits,
    read_probabilities,
    taken,
)
from abalone.evaluation.metrics import evaluate
from abalone.evaluation.thresholds import fit_thresholds

Goal = Literal["macro", "micro"]

GRID = tuple(step / 20 for step in range(21))
# Pairs of a document and a label that weights are chosen on: each is looked at some two hundred times, and for two
# numbers more of them tell no more. 19,000 documents of 54 labels, or all of Reuters-21578.
ENOUGH = 2**20
SPLITS = 5  # a single split into halves moves macro-F1 by more than neighbouring weights differ
# Of F1 over weight 0; less is noise, and an expert costs time with every prediction. Of nine experts that were random
# numbers, on 4,800 arXiv abstracts, eight got weight 0 and one 0.1.
MIN_GAIN = 0.002


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


def choose_weight(logits: Scores, expert: Scores, labels: Labels, objective: Goal = "macro") -> float:
    """Choose an expert's weight from 0, 0.05, …, 1 by the highest F1 on validation with tuned thresholds.

    Thresholds tuned and scored on the same documents flatter whatever overfits most, so they are cross-fitted:
    chosen on one half of the documents, scored on the other, and the other way round; over a few splits into halves,
    always the same ones. The lowest weight wins among equals, and 0 unless something is gained. It looks at every
    pair some two hundred times: of more than a million pairs it takes a sample of the documents, always the same, and
    the labels these carry.

    Args:
        logits: of the classifier, [n, L]; this and the next as an array or computed block by block.
        expert: its logits, [n, L].
        labels: [n, L], of documents that neither was trained on.
        objective: whether macro- or micro-F1 counts. Labels without a document here are not scored.

    Returns:
        The weight for `mix`; 0 if the documents are too few to split.
    """
    if objective not in get_args(Goal):
        raise InputError(f"objective must be one of {', '.join(get_args(Goal))}, got {objective!r}")
    truth = read_labels("labels", labels)
    check_same_shape("logits", logits, "expert", expert)
    check_same_shape("logits", logits, "labels", truth)
    if logits.shape[0] * logits.shape[1] > _most():
        rows, columns = _sample(truth)
        truth = truth[rows][:, columns]
        logits, expert = (taken(scores, rows, columns) for scores in (logits, expert))
    logits, expert = read_logits("logits", logits[EVERY, EVERY]), read_logits("expert", expert[EVERY, EVERY])
    splits = [halves for halves in _splits(len(logits)) if all(truth[half].nnz for half in halves)]
    if not splits:
        return 0.0
    scores = np.array([_cross_fitted(expit(mix(logits, expert, weight)), truth, splits, objective) for weight in GRID])
    # F1 changes slowly with the weight; what jumps between neighbouring weights is noise.
    smooth = np.convolve(np.pad(scores, 1, mode="edge"), [0.25, 0.5, 0.25], mode="valid")
    best = int(smooth.argmax())  # the first of equals
    return GRID[best] if smooth[best] >= scores[0] + MIN_GAIN else 0.0


def _most() -> int:
    return min(ENOUGH, matrices.AT_ONCE)


def _sample(truth: csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Sample documents and the labels they carry, so many that all pairs of them can be read together."""
    drawn = np.random.default_rng(0).permutation(truth.shape[0])
    carried = np.unique(truth.indices).size
    rows = np.sort(drawn[: max(1, _most() // max(carried, 1))])
    return rows, np.unique(truth[rows].indices)


Halves = tuple[np.ndarray, np.ndarray]


def _splits(documents: int) -> list[Halves]:
    orders = [np.random.default_rng(split).permutation(documents) for split in range(SPLITS)]
    return [(order[::2], order[1::2]) for order in orders]


def _cross_fitted(probabilities: np.ndarray, truth: csr_array, splits: list[Halves], objective: Goal) -> float:
    """Return the F1 where each part is predicted with the thresholds of the other, mean over the splits."""
    scored = np.bincount(truth.indices, minlength=truth.shape[1]) > 0  # [L]
    scores = []
    for one, other in splits:
        predicted = np.empty(truth.shape, dtype=np.bool_)
        for here, there in ((one, other), (other, one)):
            thresholds = fit_thresholds(probabilities[here], truth[here], objective=objective)
            predicted[there] = thresholds.apply(probabilities[there])
        scores.append(evaluate(truth, predicted, scored=scored)[f"{objective}_f1"])
    return float(np.mean(scores))


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

    @classmethod
    def chosen(
        cls, logits: Scores, experts: Mapping[str, Scores], labels: Labels, objective: Goal = "macro"
    ) -> "Mixture":
        """Call `choose_weight` for one expert after the other; `experts` are logits by name, [n, L] each."""
        weights: dict[str, float] = {}
        for name, expert in experts.items():
            weights[name] = choose_weight(logits, expert, labels, objective)
            logits = cls({name: weights[name]}).scores(logits, {name: expert})
        return cls(weights)

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


def _check_weight(name: str, weight: float) -> None:
    if not (math.isfinite(weight) and 0 <= weight <= 1):
        raise InputError(f"{name} must lie in [0, 1], got {weight}")
