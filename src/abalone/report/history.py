"""Learning curves: what a run measured after each of its epochs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

NO_MEASURES = ("epoch", "seconds")


def learning_curves(story: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One entry a stage: its name, the epochs, the seconds they took, and a curve for each measure.

    A value that is missing or no number is `None`, so that a curve has a gap there.

    Example:
        >>> story = {"history": {"pretraining": [{"epoch": 1, "train_loss": 2.5, "seconds": 4.0}]}}
        >>> learning_curves(story)[0]["curves"]
        {'train_loss': [2.5]}
    """
    return [_stage(name, entries) for name, entries in story.get("history", {}).items() if entries]


def _stage(name: str, entries: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    measures = dict.fromkeys(measure for entry in entries for measure in entry if measure not in NO_MEASURES)
    return {
        "stage": name,
        "epochs": [entry.get("epoch", place) for place, entry in enumerate(entries, start=1)],
        "seconds": sum(entry.get("seconds", 0.0) for entry in entries),
        "curves": {measure: [_number(entry.get(measure)) for entry in entries] for measure in measures},
    }


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
