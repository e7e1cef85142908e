"""The decision of a model: weights, calibration and thresholds, fitted to documents that it was not trained on."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from abalone.config import Config
from abalone.evaluation.decision import Decision
from abalone.evaluation.matrices import Scores
from abalone.evaluation.metrics import evaluate
from abalone.evaluation.mixing import fit_decision
from abalone.evaluation.out_of_fold import OutOfFold
from abalone.inference.predictor import TFIDF_DECISION, label_f1

BEHIND = 0.01  # of macro-F1, below what tf-idf has alone: less is noise, and not told


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions of documents by models that have not seen them.

    Args:
        logits: of the classifier, [n, L].
        experts: of others to mix in, by name, [n, L] each.
        labels: the truth, [n, L].
        learnable: the truth without labels that the model which judges the document had not seen at all, [n, L]: of
            these it can say nothing, and no threshold should follow from it.
        documents: [n], hashes of the texts.
        folds: [n], the fold of each; none where all are validation documents, judged by one model.
    """

    logits: Scores
    experts: Mapping[str, Scores]
    labels: csr_array
    learnable: csr_array
    documents: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))
    folds: np.ndarray | None = None

    @property
    def where(self) -> str:
        """Return the name of the scores on them."""
        return "validation" if self.folds is None else "out of fold"


@dataclass(frozen=True, eq=False)
class Decided:
    """A decision and its scores.

    Args:
        decision: for the model; where words alone decide, of their logits.
        words_alone: whether the encoder adds nothing to the lexical expert.
        story: what the model tells of it: scores, the F1 of each label, and how tf-idf would decide alone.
        out_of_fold: what was said of each document by a model that had not seen it.
    """

    decision: Decision
    words_alone: bool
    story: dict[str, Any]
    out_of_fold: OutOfFold | None


def decide(held: HeldOut, frequencies: np.ndarray, config: Config) -> Decided:
    """Fit the decision to held-out documents, and say what it is worth on them.

    Args:
        held: what is said of these documents.
        frequencies: [L], training documents of each label.
        config: `calibrate`, `thresholds`, `at_least_one`; and what advice to give.
    """
    lexical = held.experts.get("lexical")
    decision = fit_decision(held.logits, held.experts, held.learnable, frequencies, config)
    words_alone = lexical is not None and decision.mixture.used == {"lexical": 1.0}
    if lexical is None:
        scores, story, out_of_fold = _judged(held, decision, held.logits, held.experts, frequencies, config)
        return Decided(decision, False, {"scores": {held.where: scores}, **story}, out_of_fold)
    alone = fit_decision(lexical, {}, held.learnable, frequencies, config)
    baseline, alone_story, alone_out_of_fold = _judged(held, alone, lexical, {}, frequencies, config)
    if words_alone:
        warnings.warn(
            f"{_on(held)} the encoder adds nothing to words alone (macro-F1 {baseline['macro_f1']:.3f}), so the model "
            f"is tf-idf + SVM: no encoder is saved. The recipe words trains the same in seconds; {_longer(config)} to "
            "give the encoder another chance.",
            stacklevel=4,
        )
        return Decided(alone, True, {"scores": {held.where: baseline}, **alone_story}, alone_out_of_fold)
    scores, story, out_of_fold = _judged(held, decision, held.logits, held.experts, frequencies, config)
    if scores["macro_f1"] < baseline["macro_f1"] - BEHIND:
        warnings.warn(
            f"{_on(held).lower()} the model (macro-F1 {scores['macro_f1']:.3f}) does not beat tf-idf alone "
            f"({baseline['macro_f1']:.3f}): {_longer(config)}, or use the recipe words, which is tf-idf alone",
            stacklevel=4,
        )
    told = {held.where: scores, f"{held.where}, tf-idf alone": baseline}
    return Decided(decision, False, {"scores": told, **story, TFIDF_DECISION: alone.to_dict()}, out_of_fold)


def _judged(
    held: HeldOut,
    decision: Decision,
    logits: Scores,
    experts: Mapping[str, Scores],
    frequencies: np.ndarray,
    config: Config,
) -> tuple[dict[str, float], dict[str, Any], OutOfFold | None]:
    """Return scores, the F1 of each label, and the answers; out of fold by thresholds from other folds."""
    probabilities = decision.scores(logits, experts)
    if held.folds is None:
        given = decision.given(probabilities)
        scores = evaluate(held.labels, given, probabilities=probabilities, frequencies=frequencies)
        return scores, {"label_f1": label_f1(decision, probabilities, held.labels)}, None
    answers = OutOfFold.of(held.documents, held.folds, held.labels, probabilities, config, learnable=held.learnable)
    names = tuple(map(str, range(held.labels.shape[1])))
    by_label = [round(label.f1, 4) if label.support else None for label in answers.by_label(names, frequencies)]
    return answers.scores(frequencies), {"label_f1": by_label}, answers


def _on(held: HeldOut) -> str:
    return "On validation" if held.folds is None else "Out of fold"


def _longer(config: Config) -> str:
    return "train longer" if config.epochs else "train the encoder too"
