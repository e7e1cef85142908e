"""How good a finished model is on documents whose labels are known, whatever it is stored as."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from abalone.evaluation.decision import Decision
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.matrices import Labels, Scores
from abalone.evaluation.metrics import LabelScore, evaluate, per_label

TFIDF_DECISION = "tfidf_decision"  # of the story: how the tf-idf model would choose labels by itself


class ScoredModel(Protocol):
    """A model that can be scored: `Predictor` is one, `OnnxModel` is another."""

    @property
    def label_names(self) -> Sequence[str]:
        """[L], the columns of every matrix."""
        ...

    @property
    def decision(self) -> Decision:
        """Chooses labels from probabilities."""
        ...

    @property
    def story(self) -> Mapping[str, Any]:
        """What is known of its data; under `statistics`, `frequencies` [L] are the training documents of each label."""
        ...

    @property
    def lexical(self) -> LexicalModel | None:
        """The tf-idf model that is mixed in, if any."""
        ...


def evaluate_model(
    model: ScoredModel, truth: Labels, probabilities: Scores
) -> tuple[dict[str, float], list[LabelScore]]:
    """Scores of what a model says, overall and label by label; thirds where its story has the frequencies.

    Args:
        model: the model.
        truth: 0/1, [n, L].
        probabilities: what it says of the same documents, [n, L].
    """
    known = model.story.get("statistics", {}).get("frequencies")
    frequencies = None if known is None else np.array(known)
    given = model.decision.given(probabilities)
    overall = evaluate(truth, given, probabilities=probabilities, frequencies=frequencies)
    thresholds = model.decision.thresholds.values
    return overall, per_label(truth, given, tuple(model.label_names), frequencies, thresholds)


def tfidf_alone(model: ScoredModel, truth: Labels, texts: Sequence[str]) -> dict[str, float] | None:
    """Return the scores that the tf-idf model within a model has by itself: the baseline to beat.

    Its calibration and thresholds were fitted to it alone, on validation. `None` where the model has none, where it
    does not know them, and where it is nothing else than tf-idf.

    Args:
        model: the model.
        truth: 0/1, [n, L].
        texts: the same documents.
    """
    stored = model.story.get(TFIDF_DECISION)
    if model.lexical is None or stored is None or model.decision.mixture.used == {"lexical": 1.0}:
        return None
    decision = Decision.from_dict(stored)
    probabilities = decision.scores(model.lexical.logits_in_blocks(texts), {})
    frequencies = np.array(model.story["statistics"]["frequencies"])
    return evaluate(truth, decision.given(probabilities), probabilities=probabilities, frequencies=frequencies)


def label_f1(decision: Decision, probabilities: Scores, truth: Labels) -> list[float | None]:
    """Return the F1 of each label, [L]; `None` where no document carries it, so that nothing can be said.

    Args:
        decision: chooses the labels.
        probabilities: [n, L].
        truth: 0/1, [n, L].
    """
    table = per_label(truth, decision.given(probabilities), tuple(map(str, range(probabilities.shape[1]))))
    return [round(label.f1, 4) if label.support else None for label in table]
