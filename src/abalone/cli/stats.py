"""`abalone stats`: describe a corpus."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abalone.cli.app import app
from abalone.cli.options import Data, reading_arguments, reads_corpus, unrepeated
from abalone.errors import printable, printable_json

if TYPE_CHECKING:
    from rich.table import Table

    from abalone.data.corpus import Corpus, CorpusStats

NAMED_LABELS = 5  # at either end of the tail


@app.command()
@reads_corpus
def stats(
    data: Data,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the tail to a .png, .svg or .pdf file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all statistics as JSON.")] = False,
    **reading: Any,
) -> None:
    """Show what a corpus looks like: sizes, labels, and the shape of its tail."""
    from abalone.data.load import load_corpus
    from abalone.report.pictures import draw_tail, picture_format

    if plot is not None:
        picture_format(plot)  # before the long work rather than after it
    with unrepeated() as notes:
        corpus = load_corpus(data, **reading_arguments(**reading))
        notes += () if as_json else corpus.notes  # which are printed below
    measured = corpus.stats()
    if as_json:
        typer.echo(printable_json(_as_dict(corpus, measured), indent=2, default=str))
    else:
        _print_stats(corpus, measured)
    if plot is not None:
        draw_tail(measured.frequencies, corpus.label_names, plot, title=corpus.name)
        typer.echo(f"drawn to {plot}", err=True)


def _as_dict(corpus: "Corpus", measured: "CorpusStats") -> dict[str, object]:
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

    from abalone.report.pictures import tail_chart

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
    named = [f"{printable(name)} ({frequency:,})" for name, frequency in by_frequency]
    if len(named) > 2 * NAMED_LABELS:
        console.print(f"most frequent: {', '.join(named[:NAMED_LABELS])}")
        console.print(f"rarest: {', '.join(named[-NAMED_LABELS:])}")
    elif named:
        console.print(f"labels: {', '.join(named)}")
    if measured.unlabelled_documents:
        console.print(f"documents with none of these labels: {measured.unlabelled_documents:,}")
    for note in corpus.notes:
        console.print(f"note: {printable(note)}")


def _row(cells: dict[str, str]) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for name in cells:
        table.add_column(name, justify="left" if name == "corpus" else "right")
    table.add_row(*(Text(printable(cell)) for cell in cells.values()))
    return table
