"""`abalone train`: from a corpus to a model folder."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abalone.cli.app import app
from abalone.cli.corpus import (
    Data,
    DataPath,
    LabelColumn,
    LabelSeparator,
    SkipBadRows,
    SplitColumn,
    TextColumn,
    read_corpus,
)
from abalone.config import Config, refuse_unknown

if TYPE_CHECKING:
    from abalone.data.corpus import Corpus

SETTINGS = "Any setting can be given as an option, such as --objective bce --epochs 10 --lexical: " + ", ".join(
    f"{field.name}={field.default}" for field in fields(Config)
)


@app.command(epilog=SETTINGS, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def train(
    context: typer.Context,
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The model folder to write.")],
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings as YAML; options override it.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an interrupted run stopped.")] = False,
    path: DataPath = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    split_column: SplitColumn = None,
    label_separator: LabelSeparator = None,
    skip_bad_rows: SkipBadRows = False,
) -> None:
    """Train a model on the training split of DATA, tune it on validation, and write a model folder."""
    given = read_settings(context.args)  # before anything slow, so that a slip of the hand costs nothing
    settings = Config() if config is None else Config.from_yaml(config)
    settings = Config.from_dict({**settings.to_dict(), **given})
    corpus = read_corpus(
        data,
        path=path,
        text_column=text_column,
        label_column=label_column,
        split_column=split_column,
        label_separator=label_separator,
        skip_bad_rows=skip_bad_rows,
    )
    for note in corpus.notes:
        typer.echo(f"note: {note}", err=True)
    fit_and_save(corpus, settings, output, resume=resume)
    if len(corpus.test):
        typer.echo(f"next: abalone evaluate {output} {data}", err=True)


def fit_and_save(corpus: "Corpus", settings: Config, output: Path, *, resume: bool) -> None:
    """Train and write; checkpoints lie beside the model folder until it is there."""
    import shutil

    from abalone.classifier import AbaloneClassifier
    from abalone.cli.tables import scores_table
    from abalone.model.folder import refuse_foreign

    refuse_foreign(output)
    run_folder = output.with_name(f"{output.name}.training")
    if run_folder.exists() and not resume:
        typer.echo(f"note: {run_folder} holds an unfinished run; it is started anew (--resume would go on)", err=True)
        shutil.rmtree(run_folder)
    run_folder.mkdir(parents=True, exist_ok=True)
    settings.to_yaml(run_folder / "config.yaml")
    model = AbaloneClassifier(**settings.to_dict())
    try:
        model.fit_corpus(corpus, run_folder=run_folder, resume=resume)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(f"{stop}\n  Run the same command with --resume to go on.") from None
    model.save_pretrained(output)
    shutil.rmtree(run_folder, ignore_errors=True)
    scores_table({"validation": model.predictor_.story["scores"]["validation"]})
    typer.echo(f"model folder: {output}")


def read_settings(arguments: list[str]) -> dict[str, Any]:
    """`--epochs 3 --lexical --no-calibrate --clip=2` as settings.

    Example:
        >>> read_settings(["--epochs", "3", "--lexical", "--no-calibrate", "--learning-rate=5e-5"])
        {'epochs': 3, 'lexical': True, 'calibrate': False, 'learning_rate': '5e-5'}
    """
    import yaml

    switches = {field.name for field in fields(Config) if isinstance(field.default, bool)}
    settings: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise ValueError(f"{word!r} stands alone; settings are given as --name value")
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if name.startswith("no_") and name[3:] in switches:
            settings[name[3:]] = False
            continue
        refuse_unknown({name: value}, "setting")
        if equals:
            settings[name] = yaml.safe_load(value)
        elif name in switches and (not rest or rest[0].startswith("--")):
            settings[name] = True
        elif rest:
            settings[name] = yaml.safe_load(rest.pop(0))
        else:
            raise ValueError(f"{word} needs a value")
    return settings
