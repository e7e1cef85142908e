"""`abalone evaluate`: score a model on labelled documents."""

import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abalone.cli.app import app
from abalone.cli.options import (
    Device,
    SplitToScore,
    open_model,
    reading_arguments,
    reads_corpus,
    tell,
    tell_absent,
    tell_documents,
    unrepeated,
)
from abalone.errors import InputError, printable_json
from abalone.launch import launched

if TYPE_CHECKING:
    from abalone.evaluation.matrices import Scores
    from abalone.evaluation.metrics import LabelScore
    from abalone.inference.folder import JudgedModel
    from abalone.inference.predictor import Predictor

SHOWN = 10  # labels at the bad end of the per-label table


@app.command()
@reads_corpus
def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, or an ONNX file made from one.")],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]",
            help="A file, a folder, or the name of a known corpus. Without it, the out-of-fold scores stored in the "
            "model folder are printed.",
            show_default=False,
        ),
    ] = None,
    split: SplitToScore = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all scores as JSON.")] = False,
    device: Device = "auto",
    **reading: Any,
) -> None:
    """Score a model on DATA: overall, on frequent and rare labels, and label by label.

    Without DATA, print out-of-fold scores: each training document scored by a model that was not trained on it.
    """
    from abalone.cli.tables import scores_table
    from abalone.data.in_memory import known_labels
    from abalone.data.leakage import AllSeenError, check_split, documents_to_score
    from abalone.evaluation.out_of_fold import OUT_OF_FOLD

    check_split(split)
    if data is None:
        if given := [name for name, value in {"split": split, **reading}.items() if value]:
            raise InputError(f"--{given[0].replace('_', '-')} needs DATA: give the documents to score")
        _show_out_of_fold(model, as_json)
        return
    if launched()[1] > 1 and model.is_file():
        raise InputError("an ONNX file runs in one process, but several were launched: give the model folder instead")
    opened = open_model(model, device)
    if not opened.story:
        warnings.warn(
            f"{model} has no record of its training data, so training documents may be scored, and scores by head, "
            "medium and tail are missing: export the model again",
            stacklevel=2,
        )
    try:
        with unrepeated() as notes:
            found = documents_to_score(data, {str(model): opened}, split, **reading_arguments(**reading))
            notes += found.data_notes
    except AllSeenError as error:
        if (model / OUT_OF_FOLD).is_file():
            advice = f"or run `abalone evaluate {model}` without DATA for its out-of-fold scores"
            raise InputError(f"{error}, {advice}") from None
        raise
    tell_documents(found)
    absent = tell_absent(str(model), opened.label_names, found)
    truth = known_labels(found.labels, opened.label_names)
    scores, by_label = opened.evaluate(truth, _probabilities(opened, found.texts, device))
    if as_json:
        told = {**scores, "absent_labels": absent, "labels": [asdict(label) for label in by_label]}
        typer.echo(printable_json(told, indent=2))
        return
    scores_table({found.split: scores}, title=f"{found.name}, {len(found.texts):,} documents", present=True)
    _show_lowest(by_label)


def _show_lowest(by_label: "Sequence[LabelScore]") -> None:
    from abalone.cli.tables import labels_table

    if scored := sorted((label for label in by_label if label.support), key=lambda label: label.f1):
        labels_table(scored[:SHOWN], title="The labels with the lowest F1")


def _show_out_of_fold(model: Path, as_json: bool) -> None:
    """Print the out-of-fold scores of a model folder; only intervals are computed, and no torch is needed."""
    from abalone.cli.tables import scores_table
    from abalone.inference.folder import load_judged

    if model.is_file():
        raise InputError(f"{model} is a file, which has no out-of-fold scores: give its model folder, or add DATA")
    judged = load_judged(model)
    answers, frequencies = judged.out_of_fold, judged.frequencies
    scores, intervals = answers.scores(frequencies), answers.intervals(frequencies)
    by_label = answers.by_label(judged.label_names, frequencies, judged.decision.thresholds.values)
    absent, untaught = _tell_unjudged(judged, by_label)
    if as_json:
        told = {
            **scores,
            "intervals": {name: [found.low, found.high] for name, found in intervals.items()},
            "documents": len(answers),
            "folds": answers.num_folds,
            "absent_labels": absent,
            "untaught_labels": untaught,
            "labels": [asdict(label) for label in by_label],
        }
        typer.echo(printable_json(told, indent=2))
        return
    rows = {
        "out of fold": scores,
        "95 %: from": {name: found.low for name, found in intervals.items()},
        "to": {name: found.high for name, found in intervals.items()},
    }
    title = f"out of fold: each of {len(answers):,} documents scored by a model not trained on it"
    scores_table(rows, title=title, present=True)
    _show_lowest(by_label)


def _tell_unjudged(judged: "JudgedModel", by_label: "Sequence[LabelScore]") -> tuple[int, int]:
    """Print which labels these documents cannot judge; return how many occur in none, and how many in one fold."""
    from abalone.data.notes import listed

    names = judged.label_names
    absent = [label.name for label in by_label if not label.support]
    untaught = [names[column] for column in judged.out_of_fold.untaught(judged.frequencies)]
    if absent:
        tell(
            [
                f"{len(absent):,} of the {len(names):,} labels occur in no held-out document. Each counts as F1 0 in "
                f"macro-F1: {listed(absent)}."
            ]
        )
    if untaught:
        tell(
            [
                f"{len(untaught):,} of the {len(names):,} labels have all their documents in one fold, so the model "
                f"that scored that fold could not learn the label: {listed(untaught)}."
            ]
        )
    return len(absent), len(untaught)


def _probabilities(model: "Predictor", texts: Sequence[str], device: str) -> "Scores":
    """Return probabilities [n, L]; with a model folder, all launched processes share the encoding."""
    if launched()[1] > 1 and model.backend is not None:
        from abalone.distributed import launched_ranks

        model.network.ranks = launched_ranks(device)
    return model.scores(texts)
