"""`abalone report`: write an HTML page about a model, or about several side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from abalone.cli.app import app
from abalone.cli.options import (
    Device,
    SplitToScore,
    reading_arguments,
    reads_corpus,
    tell,
    tell_absent,
    tell_documents,
    tell_unused_device,
    unrepeated,
)
from abalone.errors import InputError


@app.command()
@reads_corpus
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR", help="One model folder, or several to compare.")],
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="DATA",
            help="Documents to score the models on: a file, a folder, or the name of a known corpus. "
            "Without it the page shows the data stored in the model folders, with out-of-fold scores if there are any.",
        ),
    ] = None,
    split: SplitToScore = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    device: Device = "auto",
    **reading: Any,
) -> None:
    """Write an HTML page about a model, or compare several: scores by label, calibration, errors, documents to read.

    The page is one file that opens from disk and needs no network.
    """
    from abalone.classifier import AbaloneClassifier
    from abalone.data.leakage import check_split, documents_to_score
    from abalone.evaluation.out_of_fold import WHERE
    from abalone.report.page import write_report
    from abalone.report.runs import Documents

    check_split(split)
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder: name an HTML file with --output")
    if files := [folder for folder in folders if folder.is_file()]:
        raise InputError(
            f"{files[0]} is a file, and a report needs the settings and learning curves of a model folder: give the "
            "folder that it was exported from. `abalone evaluate` scores an ONNX file"
        )
    models = {
        name: AbaloneClassifier.from_pretrained(folder, device=device)
        for name, folder in zip(short_names(folders), folders, strict=True)
    }
    if all(model.predictor_.backend is None for model in models.values()):
        tell_unused_device(device)
    documents = None
    if data is not None:
        predictors = {name: model.predictor_ for name, model in models.items()}
        judged = {name: own.out_of_fold for name, own in predictors.items() if own.out_of_fold is not None}
        honest = judged if len(judged) == len(models) else {}
        with unrepeated() as notes:
            found = documents_to_score(data, predictors, split, out_of_fold=honest, **reading_arguments(**reading))
            notes += found.data_notes
        tell_documents(found)
        if found.out_of_fold:
            tell(["every document was used in training: the page shows out-of-fold predictions."])
        for name, model in models.items():
            tell_absent(name, model.label_names, found)
        documents = Documents(found.name, WHERE if found.out_of_fold else found.split, found.texts, found.labels)
    write_report(models, output, documents)
    typer.echo(f"report: {output}")
    if documents is None:
        every = all(model.predictor_.out_of_fold is not None for model in models.values())
        shown = "out-of-fold scores without texts" if every else "only the data stored in the model folders"
        typer.echo(f"note: the page shows {shown}; add --data to score documents.", err=True)


def short_names(folders: Sequence[Path]) -> list[str]:
    """Return a name for each folder: the shortest end of its path that is unique.

    Example:
        >>> short_names([Path("runs/a/model"), Path("runs/b/model")])
        ['a/model', 'b/model']
    """
    parts = [folder.resolve().parts for folder in folders]
    if len(set(parts)) < len(parts):
        raise InputError("the same model folder is given twice")
    length = 1
    while len({own[-length:] for own in parts}) < len(parts):
        length += 1
    return ["/".join(own[-length:]) for own in parts]
