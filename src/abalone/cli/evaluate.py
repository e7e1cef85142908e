"""`abalone evaluate`: how good a model is on documents whose labels are known."""

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abalone.cli.app import app
from abalone.cli.corpus import Data, reads_corpus
from abalone.cli.models import DEVICE_HELP, open_model
from abalone.cli.scored import SPLIT_HELP, tell_absent, to_score
from abalone.launch import launched

if TYPE_CHECKING:
    from abalone.evaluation.blocks import Scores
    from abalone.model.predictor import Predictor
    from abalone.serving.onnx_model import OnnxModel

SHOWN = 10  # labels at the bad end of the per-label table


@app.command()
@reads_corpus
def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, or an ONNX file made from one.")],
    data: Data,
    split: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=SPLIT_HELP),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all scores as JSON.")] = False,
    device: Annotated[str, typer.Option(metavar="NAME", help=DEVICE_HELP)] = "auto",
    **reading: Any,
) -> None:
    """Score a model on DATA: overall, on frequent and rare labels, and label by label."""
    from abalone.cli.tables import labels_table, scores_table
    from abalone.data.corpus import SPLITS
    from abalone.data.memory import known_labels
    from abalone.evaluation.scored_model import evaluate_model

    if split not in {None, "all", *SPLITS}:
        raise ValueError(f"no split is called {split!r}; there are {', '.join(SPLITS)}, and all")
    if launched()[1] > 1 and model.is_file():
        raise ValueError("an ONNX file runs in one process, but several were launched: give the model folder instead")
    opened = open_model(model, device)
    if not opened.story:
        warnings.warn(
            f"{model} does not say what it was trained on, so training documents may be scored, and scores by head, "
            "medium and tail are missing: export the model again",
            stacklevel=2,
        )
    trained_on = {str(model): opened.story.get("provenance", {})}
    seen = {} if opened.seen is None else {str(model): opened.seen}
    name, split, texts, labels = to_score(data, split, trained_on, seen, **reading)
    absent = tell_absent(str(model), opened.label_names, name, labels)
    truth = known_labels(labels, opened.label_names)
    scores, by_label = evaluate_model(opened, truth, _probabilities(opened, texts, device))
    if as_json:
        told = {**scores, "absent_labels": absent, "labels": [asdict(label) for label in by_label]}
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    scores_table({split: scores}, title=f"{name}, {len(texts):,} documents", present=True)
    if scored := sorted((label for label in by_label if label.support), key=lambda label: label.f1):
        labels_table(scored[:SHOWN], title="The labels with the lowest F1")


def _probabilities(model: "Predictor | OnnxModel", texts: Sequence[str], device: str) -> "Scores":
    """[n, L]; of a folder, all processes that were launched encode for each other. An ONNX file needs no torch."""
    from abalone.serving.onnx_model import OnnxModel

    if isinstance(model, OnnxModel):
        return model.kept_scores(texts)
    if launched()[1] > 1:
        from abalone.training.processes import launched_ranks

        model.ranks = launched_ranks(device)
    return model.scores(texts)
