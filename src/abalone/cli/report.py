"""`abalone report`: an HTML page about a model, or several side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from abalone.cli.app import app
from abalone.cli.corpus import reads_corpus
from abalone.cli.models import DEVICE_HELP, tell_unused_device
from abalone.cli.scored import SPLIT_HELP, tell_absent, to_score


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
    split: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=SPLIT_HELP),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    device: Annotated[str, typer.Option(metavar="NAME", help=DEVICE_HELP)] = "auto",
    **reading: Any,
) -> None:
    """Write an HTML page about a model, or compare several: scores by label, calibration, errors, documents to read.

    The page is one file that opens from disk and needs no network.
    """
    from abalone.classifier import AbaloneClassifier
    from abalone.data.corpus import SPLITS
    from abalone.report.page import write_report
    from abalone.report.runs import Documents

    if split not in {None, "all", *SPLITS}:
        raise ValueError(f"no split is called {split!r}; there are {', '.join(SPLITS)}, and all")
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder: name an HTML file with --output")
    if files := [folder for folder in folders if folder.is_file()]:
        raise ValueError(
            f"{files[0]} is a file, and a report needs the settings and learning curves of a model folder: give the "
            "folder that it was exported from. `abalone evaluate` scores an ONNX file"
        )
    models = {
        name: AbaloneClassifier.from_pretrained(folder, device=device)
        for name, folder in zip(short_names(folders), folders, strict=True)
    }
    if all(model.predictor_.encoder is None for model in models.values()):
        tell_unused_device(device)
    documents = None
    if data is not None:
        trained_on = {name: model.predictor_.story.get("provenance", {}) for name, model in models.items()}
        seen = {name: known for name, model in models.items() if (known := model.predictor_.seen) is not None}
        judged = {
            name: answers for name, model in models.items() if (answers := model.predictor_.out_of_fold) is not None
        }
        honest = judged if len(judged) == len(models) else {}
        corpus, split, texts, labels = to_score(data, split, trained_on, seen, judged=honest, **reading)
        for name, model in models.items():
            tell_absent(name, model.label_names, corpus, labels)
        documents = Documents(corpus, split, texts, labels)
    write_report(models, output, documents)
    typer.echo(f"report: {output}")
    if documents is None:
        every = all(model.predictor_.out_of_fold is not None for model in models.values())
        shown = "out-of-fold scores without texts" if every else "only the data stored in the model folders"
        typer.echo(f"note: the page shows {shown}; add --data to score documents.", err=True)


def short_names(folders: Sequence[Path]) -> list[str]:
    """Return a name for each folder on the page: the shortest ends of their paths that differ.

    Example:
        >>> short_names([Path("runs/a/model"), Path("runs/b/model")])
        ['a/model', 'b/model']
    """
    parts = [folder.resolve().parts for folder in folders]
    if len(set(parts)) < len(parts):
        raise ValueError("the same model folder is given twice")
    length = 1
    while len({own[-length:] for own in parts}) < len(parts):
        length += 1
    return ["/".join(own[-length:]) for own in parts]
