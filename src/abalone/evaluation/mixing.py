"""Weights of the experts that are mixed in, chosen on validation; and the whole decision, part after part."""

from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit

from abalone.config import Config
from abalone.errors import InputError
from abalone.evaluation import matrices
from abalone.evaluation.calibration import fit_temperatures
from abalone.evaluation.decision import Decision, Mixture, Thresholds, mix
from abalone.evaluation.matrices import (
    EVERY,
    Labels,
    Scores,
    check_same_shape,
    read_labels,
    read_logits,
    taken,
)
from abalone.evaluation.metrics import evaluate, label_thirds
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


def choose_weights(logits: Scores, experts: Mapping[str, Scores], labels: Labels, objective: Goal = "macro") -> Mixture:
    """Call `choose_weight` for one expert after the other; `experts` are logits by name, [n, L] each."""
    weights: dict[str, float] = {}
    for name, expert in experts.items():
        weights[name] = choose_weight(logits, expert, labels, objective)
        logits = Mixture({name: weights[name]}).scores(logits, {name: expert})
    return Mixture(weights)


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
    mixture = choose_weights(logits, experts, labels, "micro" if config.thresholds == "micro" else "macro")
    mixed = mixture.scores(logits, experts)
    calibration = fit_temperatures(mixed, labels, label_thirds(frequencies)) if config.calibrate else None
    undecided = Decision(Thresholds(np.full(labels.shape[1], 0.5)), calibration=calibration)
    thresholds = fit_thresholds(
        undecided.scores(mixed, {}), labels, objective=config.thresholds, calibrated=config.calibrate
    )
    return Decision(thresholds, mixture, calibration, config.at_least_one)
