"""The command `abalone`.

A command imports what it needs when it runs, so that `abalone --help` answers at once. What a person can
mend (a missing file, a bad row, an extra that is not installed) ends in a short message and status 2, for
every command alike: see `Commands`.
"""

import json
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from abalone import __version__
from abalone.data.errors import DataError

if TYPE_CHECKING:
    from rich.table import Table

    from abalone.data.corpus import Corpus, CorpusStats

MISTAKES = (DataError, OSError, ImportError)  # a person can mend these; anything else is a bug and shows itself
MISTAKE, INTERRUPTED = 2, 130  # exit statuses
NAMED_LABELS = 5  # at either end of the tail


class Commands(TyperGroup):
    """Runs a command and turns mistakes, warnings and Ctrl-C into lines a person can read."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        _replace_unprintable()
        with _plain_warnings():
            try:
                return super().invoke(ctx)
            except BrokenPipeError:
                raise  # `abalone … | head`: the reader has seen enough
            except MISTAKES as error:
                command = self.commands.get(ctx.invoked_subcommand)
                _tell("error", _in_options(_message(error), command), typer.colors.RED)
                raise typer.Exit(MISTAKE) from None
            except KeyboardInterrupt:
                typer.echo("\ninterrupted", err=True)
                raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    name="abalone",
    cls=Commands,
    help="Long-tailed multi-label text classification: models that are good on the rare labels too.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"abalone {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options that stand before the command."""


@app.command()
def stats(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A file, a folder, or the name of a known corpus.")],
    path: Annotated[
        Path | None, typer.Option(help="Where the files of a known corpus are.", show_default=False)
    ] = None,
    text_column: Annotated[
        list[str] | None, typer.Option(help="Found by itself if it has a usual name. Several are joined.")
    ] = None,
    label_column: Annotated[
        list[str] | None, typer.Option(help="Found by itself if it has a usual name. Several hold 0 or 1 each.")
    ] = None,
    split_column: Annotated[str | None, typer.Option(help="The column that says train, val or test.")] = None,
    label_separator: Annotated[str | None, typer.Option(help="What stands between labels in one cell.")] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Go on without rows that cannot be used, and list them.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the tail to a .png, .svg or .pdf.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead.")] = False,
) -> None:
    """Show what a corpus looks like: sizes, labels, and the shape of its tail."""
    from abalone.data.load import load_corpus
    from abalone.report.tail import draw_tail, picture_format

    if plot is not None:
        picture_format(plot)  # before the long work rather than after it
    with warnings.catch_warnings(record=True) as given:
        corpus = load_corpus(
            data,
            path=path,
            text_column=_one_or_several(text_column),
            label_column=_one_or_several(label_column),
            split_column=split_column,
            label_separator=label_separator,
            skip_bad_rows=skip_bad_rows,
        )
    for warning in given:
        if as_json or str(warning.message) not in corpus.notes:  # the notes are printed below
            warnings.warn(warning.message, stacklevel=1)
    measured = corpus.stats()
    if as_json:
        typer.echo(json.dumps(_stats_as_dict(corpus, measured), indent=2, ensure_ascii=False, default=str))
    else:
        _print_stats(corpus, measured)
    if plot is not None:
        draw_tail(measured.frequencies, corpus.label_names, plot, title=corpus.name)
        typer.echo(f"drawn to {plot}", err=True)


def _stats_as_dict(corpus: "Corpus", measured: "CorpusStats") -> dict[str, object]:
    return {
        "name": corpus.name,
        **measured.as_dict(),
        "frequencies": dict(zip(corpus.label_names, measured.frequencies, strict=True)),
        "unseen_labels": corpus.unseen_labels,
        "notes": corpus.notes,
        "provenance": dict(corpus.provenance),
    }


def _print_stats(corpus: "Corpus", measured: "CorpusStats") -> None:
    from rich.console import Console

    from abalone.report.tail import tail_chart

    console = Console(highlight=False, markup=False)  # label names may hold brackets
    console.print(
        _row(
            {
                "corpus": corpus.name,
                "train": f"{measured.train:,}",
                "val": f"{measured.validation:,}",
                "test": f"{measured.test:,}",
                "labels": f"{measured.labels:,}",
                "labels/doc": f"{measured.labels_per_document:.2f}",
                "words/doc": f"{measured.words_per_document:,.0f}",
            }
        )
    )
    console.print("Documents per label in training, and how uneven they are:")
    console.print(
        _row(
            {
                "max": f"{measured.frequency_max:,}",
                "median": f"{measured.frequency_median:,g}",
                "min": f"{measured.frequency_min:,}",
                "labels under 30": f"{measured.labels_under_30:,}",
                "Gini": f"{measured.gini:.2f}",
                "share of head third": f"{measured.head_share:.0%}",
            }
        )
    )
    console.print(tail_chart(measured.frequencies, ascii_only=console.options.ascii_only))
    console.print()
    by_frequency = sorted(zip(corpus.label_names, measured.frequencies, strict=True), key=lambda pair: -pair[1])
    named = [f"{name} ({frequency:,})" for name, frequency in by_frequency]
    if len(named) > 2 * NAMED_LABELS:
        console.print(f"most frequent: {', '.join(named[:NAMED_LABELS])}")
        console.print(f"rarest: {', '.join(named[-NAMED_LABELS:])}")
    elif named:
        console.print(f"labels: {', '.join(named)}")
    if measured.unlabelled_documents:
        console.print(f"documents with none of these labels: {measured.unlabelled_documents:,}")
    for note in corpus.notes:
        console.print(f"note: {note}")


def _row(cells: dict[str, str]) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for name in cells:
        table.add_column(name, justify="left" if name == "corpus" else "right")
    table.add_row(*map(Text, cells.values()))
    return table


def _one_or_several(columns: list[str] | None) -> str | list[str] | None:
    return columns[0] if columns and len(columns) == 1 else columns or None


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show a warning as one line, without the place in the code that gave it."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        _tell("warning", " ".join(str(message).split()), typer.colors.YELLOW)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _tell(kind: str, message: str, colour: str) -> None:
    typer.secho(f"{kind}: ", fg=colour, bold=True, err=True, nl=False)
    typer.echo(message, err=True)


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return str(error) or type(error).__name__


def _in_options(message: str, command: Any) -> str:
    """The message with the arguments of our functions, `text_column=`, spelled as options, `--text-column`."""
    for parameter in command.params if command else ():
        name, option = parameter.name, parameter.opts[0]
        if option.startswith("--"):
            message = re.sub(rf"\b{name}=(?=['\"\[])", f"{option} ", message)
            message = re.sub(rf"\b{name}=(True\b)?", option, message)
    return message


def _replace_unprintable() -> None:
    # A terminal that cannot show a character of a label gets a question mark rather than a traceback.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
