"""How good a finished model is on documents whose labels are known, whatever it is stored as."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from abalone.evaluation.blocks import Scores
from abalone.evaluation.checks import Labels
from abalone.evaluation.decision import Decision
from abalone.evaluation.metrics import LabelScore, evaluate, per_label


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
