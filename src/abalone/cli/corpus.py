"""How every command is told its data: the same argument and options, read by the same function."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abalone.data.errors import printable

if TYPE_CHECKING:
    from abalone.data.corpus import Corpus

Data = Annotated[str, typer.Argument(metavar="DATA", help="A file, a folder, or the name of a known corpus.")]
DataPath = Annotated[
    Path | None, typer.Option("--path", help="Where the files of a known corpus are.", show_default=False)
]
TextColumn = Annotated[
    list[str] | None,
    typer.Option("--text-column", help="Found by itself if it has a usual name. Several are joined."),
]
LabelColumn = Annotated[
    list[str] | None,
    typer.Option("--label-column", help="Found by itself if it has a usual name. Several hold 0 or 1 each."),
]
SplitColumn = Annotated[str | None, typer.Option("--split-column", help="The column that says train, val or test.")]
LabelSeparator = Annotated[
    str | None, typer.Option("--label-separator", help="What stands between labels in one cell.")
]
SkipBadRows = Annotated[
    bool, typer.Option("--skip-bad-rows", help="Go on without rows that cannot be used, and list them.")
]


def read_corpus(
    data: str,
    *,
    path: Path | None = None,
    text_column: list[str] | None = None,
    label_column: list[str] | None = None,
    split_column: str | None = None,
    label_separator: str | None = None,
    skip_bad_rows: bool = False,
) -> "Corpus":
    """The corpus that a person means by these options.

    Splits that have to be made are made with the same seed by every command, so that `evaluate` never meets a
    document that `train` was given.
    """
    from abalone.data.load import load_corpus

    return load_corpus(
        data,
        path=path,
        text_column=one_or_several(text_column),
        label_column=one_or_several(label_column),
        split_column=split_column,
        label_separator=label_separator,
        skip_bad_rows=skip_bad_rows,
    )


def one_or_several(columns: list[str] | None) -> str | list[str] | None:
    """What the library takes for a repeatable option: one name means another thing than a list of one."""
    return columns[0] if columns and len(columns) == 1 else columns or None


def read_and_tell(data: str, **options: Any) -> "Corpus":
    """`read_corpus`, with what a person should know of the corpus told once on stderr."""
    with warnings.catch_warnings(record=True) as given:
        corpus = read_corpus(data, **options)
    for warning in given:
        if str(warning.message) not in corpus.notes:
            warnings.warn(warning.message, stacklevel=2)
    for note in corpus.notes:
        typer.echo(f"note: {printable(note)}", err=True)
    return corpus
