"""`abalone evaluate`: score a model on labelled documents; the tables of scores, which other commands print too."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
from abalone.errors import InputError, printable, printable_json
from abalone.launch import launched

if TYPE_CHECKING:
    from abalone.evaluation.matrices import Scores
    from abalone.evaluation.metrics import LabelScore
    from abalone.inference.predictor import Predictor

SHOWN = 10  # labels at the bad end of the per-label table
COLUMNS = {
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "macro_f1_present": "macro-F1 here",
    "macro_f1_head": "head",
    "macro_f1_medium": "medium",
    "macro_f1_tail": "tail",
    "hamming_loss": "Hamming\n×10³",
}


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


def _show_out_of_fold(model: Path, as_json: bool) -> None:
    """Print the out-of-fold scores of a model folder; only intervals are computed, and no torch is needed."""
    from abalone.inference.folder import load_judged

    if model.is_file():
        raise InputError(f"{model} is a file, which has no out-of-fold scores: give its model folder, or add DATA")
    predictor = load_judged(model)
    scores, by_label = predictor.judged()
    answers = predictor.out_of_fold
    assert answers is not None  # or there would be no scores
    intervals = answers.intervals(predictor.frequencies)
    untaught = [predictor.label_names[column] for column in answers.untaught(predictor.frequencies)]
    absent = [label.name for label in by_label if not label.support]
    _tell_unjudged(len(by_label), absent, untaught)
    if as_json:
        told = {
            **scores,
            "intervals": {name: [found.low, found.high] for name, found in intervals.items()},
            "documents": len(answers),
            "folds": answers.num_folds,
            "absent_labels": len(absent),
            "untaught_labels": len(untaught),
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


def _tell_unjudged(labels: int, absent: list[str], untaught: list[str]) -> None:
    """Print which of so many labels these documents cannot judge: those in none of them, and those in one fold."""
    from abalone.data.notes import listed

    if absent:
        tell(
            [
                f"{len(absent):,} of the {labels:,} labels occur in no held-out document. Each counts as F1 0 in "
                f"macro-F1: {listed(absent)}."
            ]
        )
    if untaught:
        tell(
            [
                f"{len(untaught):,} of the {labels:,} labels have all their documents in one fold, so the model "
                f"that scored that fold could not learn the label: {listed(untaught)}."
            ]
        )


def _probabilities(model: "Predictor", texts: Sequence[str], device: str) -> "Scores":
    """Return probabilities [n, L]; with a model folder, all launched processes share the encoding."""
    if launched()[1] > 1 and model.backend is not None:
        from abalone.distributed import launched_ranks

        model.network.ranks = launched_ranks(device)
    return model.scores(texts)


def scores_table(rows: Mapping[str, Mapping[str, float]], title: str | None = None, *, present: bool = False) -> None:
    """Print one line for each entry: F1 in percent, macro-F1 also by thirds of the labels from frequent to rare.

    Args:
        rows: scores by the name of their line.
        title: stands above.
        present: show macro-F1 over the labels that occur too, where it is another.
    """
    present = present and any(
        f"{own['macro_f1_present']:.3f}" != f"{own['macro_f1']:.3f}"
        for own in rows.values()
        if "macro_f1_present" in own
    )
    columns = {key: heading for key, heading in COLUMNS.items() if present or key != "macro_f1_present"}
    lines = [
        [name]
        + [
            "" if key not in scores else f"{scores[key] * (1000 if key == 'hamming_loss' else 100):.1f}"
            for key in columns
        ]
        for name, scores in rows.items()
    ]
    _print_table(title, ["", *columns.values()], lines)


def _show_lowest(by_label: "Sequence[LabelScore]") -> None:
    """Print one line for each of the worst labels: how often it occurs in training and here, is predicted, how well."""
    scored = sorted((label for label in by_label if label.support), key=lambda label: label.f1)
    lines = [
        [
            label.name,
            "" if label.train_frequency is None else str(label.train_frequency),
            str(label.support),
            str(label.predicted),
            *(f"{100 * share:.1f}" for share in (label.precision, label.recall, label.f1)),
        ]
        for label in scored[:SHOWN]
    ]
    if lines:
        headings = ["label", "in training", "here", "predicted", "precision", "recall", "F1"]
        # Folded: a name that is cut short cannot be looked up.
        _print_table("The labels with the lowest F1", headings, lines, "fold")


def _print_table(
    title: str | None,
    headings: Sequence[str],
    lines: Iterable[Sequence[str]],
    overflow: Literal["fold", "ellipsis"] = "ellipsis",
) -> None:
    """Print lines of a name and numbers; `overflow` is for names that are too long."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # As `Text`, here and for names: they may hold brackets, which rich would take for markup.
    shown = None if title is None else Text(printable(title))
    table = Table(title=shown, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column(headings[0], overflow=overflow)
    for heading in headings[1:]:
        table.add_column(heading, justify="right")
    for name, *numbers in lines:
        table.add_row(Text(printable(name)), *numbers)
    Console().print(table)
