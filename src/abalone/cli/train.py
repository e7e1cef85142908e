"""`abalone train`: from a corpus to a model folder."""

import inspect
import logging
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from abalone.cli.app import app
from abalone.cli.corpus import READING, Data, read_and_tell, reads_corpus
from abalone.config import ABOUT, CHOICES, KINDS, SETTINGS, Config
from abalone.launch import is_main
from abalone.recipes import ABOUT_RECIPES, DEFAULT, RECIPES, read_settings
from abalone.recipes import recipe as recipe_config

if TYPE_CHECKING:
    from abalone.classifier import AbaloneClassifier
    from abalone.data.corpus import Corpus


_RECIPES = "".join(
    f"\n\n{name}{' (the default)' if name == DEFAULT else ''}: {ABOUT_RECIPES[name]}." for name in RECIPES
)


@reads_corpus
def train(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The model folder to write.")],
    recipe: Annotated[str | None, typer.Option(metavar="NAME", help=f"Settings chosen together:{_RECIPES}")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings as YAML; options override it.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run from its last checkpoint.")
    ] = False,
    **given: Any,
) -> None:
    """Train a model on DATA, tune it on the validation split, and write a model folder."""
    from abalone.device import choose_device
    from abalone.losses.registry import loss_spec

    reading = {name: given.pop(name) for name in READING}
    # Before anything slow, so that a slip of the hand costs nothing.
    settings = read_settings(config, recipe).replace(
        **{name: value for name, value in given.items() if value is not None}
    )
    loss_spec(settings.objective)
    choose_device(settings.device)
    if output.name in {"", ".."}:
        raise ValueError(f"--output {output} is not a name for a new folder; give one, such as {output / 'model'}")
    corpus = read_and_tell(data, **reading)
    fit_and_save(corpus, settings, output, resume=resume)
    if len(corpus.test):
        again = {name: reading[name] for name in ("path", "skip_bad_rows")}  # the model knows its columns
        typer.echo(f"next: {shlex.join(['abalone', 'evaluate', str(output), data, *_spelled(again)])}", err=True)


def _spelled(options: Mapping[str, Any]) -> list[str]:
    """Options as they are typed; those that were not given are left out."""
    given = {f"--{name.replace('_', '-')}": value for name, value in options.items() if value}
    return [word for option, value in given.items() for word in (option, *([] if value is True else [str(value)]))]


def _with_settings(signature: inspect.Signature) -> inspect.Signature:
    """The command's parameters with every setting of `Config` as an option, so that they are listed there alone."""
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    settings = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,  # not given: the configuration file says it, or the recipe
            annotation=Annotated[
                KINDS[name] | None,
                typer.Option(
                    metavar=_placeholder(name),
                    help=_explained(name),
                    show_default=False,
                    rich_help_panel=_panel(KINDS[name]),
                ),
            ],
        )
        for name in SETTINGS
    ]
    return signature.replace(parameters=[*own, *settings])


def _placeholder(setting: str) -> str | None:
    kinds = {KINDS[setting], *get_args(KINDS[setting])}
    if bool in kinds:
        return None
    return "N" if int in kinds else "X" if float in kinds else "NAME"


def _explained(setting: str) -> str:
    """What a setting is, and what the default recipe has; brackets are escaped, or rich takes them for markup."""
    value = getattr(recipe_config(), setting)
    if isinstance(value, bool):
        value = "on" if value else "off"
    choices = ", ".join(str(choice) for choice in CHOICES.get(setting, ()) if choice is not None)
    told = f"{ABOUT[setting]} ({choices})." if choices else f"{ABOUT[setting]}."
    return told if value is None else rf"{told} [dim]\[default: {value}][/dim]"


def _panel(kind: object) -> str:
    # Apart, since the two names of a switch would squeeze those of all others in the help.
    return f"{'Switches' if kind is bool else 'Settings'}; the defaults are those of the recipe {DEFAULT}"


train.__signature__ = _with_settings(inspect.signature(train))  # type: ignore[attr-defined]
app.command()(train)


def fit_and_save(corpus: "Corpus", settings: Config, output: Path, *, resume: bool) -> None:
    """Train and write; checkpoints lie beside the model folder until it is there."""
    from abalone.classifier import AbaloneClassifier
    from abalone.cli.tables import scores_table
    from abalone.data.alone import remove_unless_in_use
    from abalone.model.folder import refuse_foreign
    from abalone.ranks import RankLostError
    from abalone.training.interruption import TrainingTerminated, told_to_stop
    from abalone.training.processes import launched_ranks
    from abalone.training.run import IDENTITY, is_foreign

    run_folder = output.with_name(f"{output.name}.training")
    if is_main():  # the others may come when it has begun already
        refuse_foreign(output)
        if (run_folder / IDENTITY).exists():
            if not resume:
                typer.echo(
                    f"note: the unfinished run in {run_folder} is discarded; --resume would continue it",
                    err=True,
                )
        elif is_foreign(run_folder):
            raise FileExistsError(f"{run_folder}, where checkpoints go, holds something else: give another --output")
    if resume and launched_ranks(settings.device).told_by_main(
        lambda: _is_finished(output, run_folder, settings, corpus)
    ):
        typer.echo(
            f"note: {output} is finished already: the same settings and documents; nothing to do "
            "(leave out --resume to train it again)",
            err=True,
        )
        return
    if resume and is_main() and output.exists() and not (run_folder / IDENTITY).exists():
        typer.echo(
            f"note: the model in {output} was trained with other settings or documents, and will be replaced", err=True
        )
    model = AbaloneClassifier(**settings.to_dict())
    advice = "To continue, run the same command with --resume."
    with told_to_stop(), _epochs_told():
        try:
            model.fit_corpus(corpus, run_folder=run_folder, resume=resume)
            _save(model, output, run_folder)
        except (KeyboardInterrupt, TrainingTerminated) as stop:
            told = f"{str(stop) or 'interrupted'}\n  {advice}"
            raise (KeyboardInterrupt if isinstance(stop, KeyboardInterrupt) else TrainingTerminated)(told) from None
        except RankLostError as lost:
            raise RankLostError(f"{lost}\n  {advice}") from None
    if is_main():
        remove_unless_in_use(run_folder)
    # Shorter, so that the table fits into 80 columns.
    scores_table({name.replace("validation, ", "  "): own for name, own in model.predictor_.story["scores"].items()})
    typer.echo(f"model folder: {output}")


def _is_finished(output: Path, run_folder: Path, settings: Config, corpus: "Corpus") -> bool:
    """Whether this very run has made the model folder, and none was begun there since."""
    from abalone.model.folder import made_by
    from abalone.training.run import IDENTITY, fingerprint

    if (run_folder / IDENTITY).exists():
        return False
    made = made_by(output)
    return made is not None and made == fingerprint(settings, corpus)


class _Echo(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Write the message to wherever stderr goes now."""
        typer.echo(record.getMessage(), err=True)


@contextmanager
def _epochs_told() -> Iterator[None]:
    """Write a line an epoch: bars vanish, and in the log of a job there are none."""
    log, handler = logging.getLogger("abalone.training"), _Echo()
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def _save(model: "AbaloneClassifier", output: Path, run_folder: Path) -> None:
    try:
        model.save_pretrained(output)
    except OSError as error:
        kept = f"{error.strerror or error}; the training is done and kept in {run_folder}: make room, and add --resume"
        raise OSError(error.errno, kept, error.filename) from error
