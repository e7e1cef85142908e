"""`abalone train`: train a model on a corpus and write a model folder."""

import inspect
import logging
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from abalone.cli.app import app
from abalone.cli.options import READING, Data, read_corpus, reads_corpus, tell, tell_unused_device
from abalone.config import ABOUT, CHOICES, KINDS, NO_ENCODER, SETTINGS, Config
from abalone.errors import InputError, as_input_error, readable
from abalone.launch import is_main
from abalone.recipes import ABOUT_RECIPES, DEFAULT, RECIPES, read_settings
from abalone.recipes import recipe as recipe_config

if TYPE_CHECKING:
    from abalone.classifier import AbaloneClassifier
    from abalone.data.corpus import Corpus
    from abalone.training.estimate import Estimate


HOURS = 3600.0  # seconds of work that a person is asked about first

_RECIPES = "".join(
    f"\n\n{name}{' (the default)' if name == DEFAULT else ''}: {ABOUT_RECIPES[name]}." for name in RECIPES
)


@reads_corpus
def train(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The model folder to write.")],
    recipe: Annotated[str | None, typer.Option(metavar="NAME", help=f"Settings chosen together:{_RECIPES}")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings as YAML; options override it.")] = None,
    corrections: Annotated[
        list[Path] | None,
        typer.Option(
            "--corrections",
            metavar="FILE",
            help="Decided suggestions of abalone review. Repeat the option for several files, the oldest first.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run from its last checkpoint.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before hours of training on a CPU.")] = False,
    **given: Any,
) -> None:
    """Train a model on the training and validation documents of DATA, and write a model folder."""
    from abalone.data.corrections import corrected
    from abalone.device import choose_device
    from abalone.losses.registry import loss_spec
    from abalone.training.open_settings import FREE, settings_for_cpu

    reading = {name: given.pop(name) for name in READING}
    # Before anything slow, so that a slip of the hand costs nothing.
    settings = read_settings(config, recipe).replace(
        **{name: value for name, value in given.items() if value is not None}
    )
    with as_input_error():
        loss_spec(settings.objective)
    choose_device(settings.device)
    if settings.encoder == NO_ENCODER:
        tell_unused_device(settings.device)
    if output.name in {"", ".."}:
        raise InputError(f"--output {output} is not a name for a new folder; give one, such as {output / 'model'}")
    for file in corrections or ():
        if not file.is_file():
            raise InputError(f"{file}: there is no such file")
    corpus = read_corpus(data, **reading)
    for file in corrections or ():
        corpus = corrected(corpus, file)
        tell(corpus.notes[-1:])
    open_choice = (
        recipe is None and config is None and all(given[name] is None for name in SETTINGS if name not in FREE)
    )
    if open_choice and choose_device(settings.device).type == "cpu":
        settings, too_large = settings_for_cpu(settings, corpus, output if resume else None)
        if too_large:
            typer.echo(
                f"note: no GPU found and a large corpus: using --recipe fast, which does not train the encoder. "
                f"--recipe {DEFAULT} trains it, which is better for rare labels but takes hours.",
                err=True,
            )
    fit_and_save(corpus, settings, output, resume=resume, ask=not yes)
    if len(corpus.test):
        again = {name: reading[name] for name in ("path", "skip_bad_rows")}  # the model knows its columns
        typer.echo(f"next: {shlex.join(['abalone', 'evaluate', str(output), data, *_spelled(again)])}", err=True)


def _spelled(options: Mapping[str, Any]) -> list[str]:
    """Return options as words of a command line, without those that were not given."""
    given = {f"--{name.replace('_', '-')}": value for name, value in options.items() if value}
    return [word for option, value in given.items() for word in (option, *([] if value is True else [str(value)]))]


def _with_settings(signature: inspect.Signature) -> inspect.Signature:
    """Add every setting of `Config` to the parameters of the command, so that settings are listed once."""
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
    """Return the help of a setting, with the default recipe's value; brackets are escaped, as rich reads markup."""
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


def fit_and_save(corpus: "Corpus", settings: Config, output: Path, *, resume: bool, ask: bool = False) -> None:
    """Train a model and write its folder; checkpoints are in a folder beside it until then.

    Args:
        corpus: the documents.
        settings: all of them.
        output: the model folder.
        resume: continue an interrupted run.
        ask: whether to ask in a terminal before hours of training.
    """
    from abalone.classifier import AbaloneClassifier
    from abalone.cli.evaluate import scores_table
    from abalone.distributed import RankLostError, launched_ranks
    from abalone.files.atomic import remove_unless_in_use
    from abalone.inference.folder import refuse_foreign
    from abalone.training.interruption import TrainingTerminated, told_to_stop
    from abalone.training.run import IDENTITY, is_finished, is_foreign

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
    if resume and launched_ranks(settings.device).from_main(lambda: is_finished(output, run_folder, settings, corpus)):
        typer.echo(
            f"note: {output} is finished already, with the same settings and documents: nothing to do. "
            "Leave out --resume to train it again.",
            err=True,
        )
        if is_main():
            remove_unless_in_use(run_folder)  # of an attempt that was killed before it began
        return
    if resume and is_main() and output.exists() and not (run_folder / IDENTITY).exists():
        typer.echo(
            f"note: the model in {output} was trained with other settings or documents, and will be replaced", err=True
        )
    model = AbaloneClassifier(**settings.to_dict())
    advice = "To continue, run the same command with --resume."
    with told_to_stop(), _epochs_told():
        try:
            model.fit_corpus(
                corpus, run_folder=run_folder, resume=resume, on_estimate=lambda estimate: _tell_time(estimate, ask=ask)
            )
            _save(model, output, run_folder)
        except (KeyboardInterrupt, TrainingTerminated) as stop:
            told = f"{str(stop) or 'interrupted'}\n  {advice}"
            raise (KeyboardInterrupt if isinstance(stop, KeyboardInterrupt) else TrainingTerminated)(told) from None
        except RankLostError as lost:
            raise RankLostError(f"{lost}\n  {advice}") from None
        except typer.Abort:
            remove_unless_in_use(run_folder)
            raise
    if is_main():
        remove_unless_in_use(run_folder)
    # Shorter, so that the table fits into 80 columns.
    scores_table({name.replace("validation, ", "  "): own for name, own in model.predictor_.story["scores"].items()})
    typer.echo(f"model folder: {output}")


def _tell_time(estimate: "Estimate", *, ask: bool) -> None:
    """Print how long training will take; in a terminal, ask before hours of it."""
    from abalone.progress import spoken

    if not estimate.long:
        typer.echo(f"training on {estimate.device}: about {spoken(estimate.seconds)}", err=True)
        return
    typer.echo(f"{estimate.advice('--recipe fast')}.", err=True)
    if ask and estimate.seconds > HOURS and _in_terminal():
        typer.confirm("Train anyway?", abort=True, err=True)


def _in_terminal() -> bool:
    """Return whether a user can answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


class _Echo(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Write the message to stderr as it is now: above the progress bar, while one is shown."""
        typer.echo(readable(record.getMessage()), file=sys.stderr)


@contextmanager
def _epochs_told() -> Iterator[None]:
    """Print a line for each epoch: a log file has no progress bars, and in a terminal they vanish."""
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
        reason = error.strerror or error
        kept = f"{reason}; training is finished and kept in {run_folder}: free some space and add --resume"
        raise OSError(error.errno, kept, error.filename) from error
