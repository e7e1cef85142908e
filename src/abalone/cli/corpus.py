"""How every command is told its data: the same argument and options, read by the same function."""

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from abalone.data.errors import printable

if TYPE_CHECKING:
    from abalone.data.corpus import Corpus

Command = TypeVar("Command", bound=Callable[..., None])

READING_PANEL = "Reading the data"  # a heading of the help

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A file, a folder, or the name of a known corpus.", show_default=False)
]
DataPath = Annotated[
    Path | None,
    typer.Option(
        "--path", metavar="PATH", help="Where the files of a known corpus are.", rich_help_panel=READING_PANEL
    ),
]
TextColumn = Annotated[
    list[str] | None,
    typer.Option(
        "--text-column",
        metavar="NAME",
        help="Column of the text; found by its usual names if left out. Give it several times to join columns.",
        rich_help_panel=READING_PANEL,
    ),
]
LabelColumn = Annotated[
    list[str] | None,
    typer.Option(
        "--label-column",
        metavar="NAME",
        help="Column of the labels; found by its usual names if left out. Give it several times for 0/1 columns.",
        rich_help_panel=READING_PANEL,
    ),
]
SplitColumn = Annotated[
    str | None,
    typer.Option(
        "--split-column",
        metavar="NAME",
        help="Column that says train, val or test.",
        rich_help_panel=READING_PANEL,
    ),
]
LabelSeparator = Annotated[
    str | None,
    typer.Option(
        "--label-separator",
        metavar="TEXT",
        help="What separates the labels in a cell.",
        rich_help_panel=READING_PANEL,
    ),
]
SkipBadRows = Annotated[
    bool,
    typer.Option(
        "--skip-bad-rows",
        help="Leave out rows that cannot be used, and list them, instead of stopping.",
        rich_help_panel=READING_PANEL,
    ),
]


def read_corpus(
    data: str,
    seed: int = 0,
    *,
    path: DataPath = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    split_column: SplitColumn = None,
    label_separator: LabelSeparator = None,
    skip_bad_rows: SkipBadRows = False,
) -> "Corpus":
    """The corpus that a person means by these options.

    `seed` is that of the splits that have to be made. `train` leaves it at 0; whoever looks at a model afterwards
    gives the one that the model was trained with (`split_seed`), since a corpus of the library may have any.
    """
    from abalone.data.load import load_corpus

    return load_corpus(
        data,
        path=path,
        text_column=one_or_several(text_column),
        label_column=one_or_several(label_column),
        split_column=split_column,
        label_separator=label_separator,
        seed=seed,
        skip_bad_rows=skip_bad_rows,
    )


READING = {
    name: parameter
    for name, parameter in inspect.signature(read_corpus).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
}
"""The options of `read_corpus`, by name."""


def reads_corpus(command: Command) -> Command:
    """Show a command's `**reading` to typer as the options of `read_corpus`, so that they are listed there alone."""
    signature = inspect.signature(command)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    command.__signature__ = signature.replace(parameters=[*own, *READING.values()])  # type: ignore[attr-defined]
    return command


def one_or_several(columns: list[str] | None) -> str | list[str] | None:
    """What the library takes for a repeatable option: one name means another thing than a list of one."""
    return columns[0] if columns and len(columns) == 1 else columns or None


def columns_of_training(provenance: Mapping[str, Any]) -> dict[str, list[str]]:
    """The options that name the columns of a model's training data; none where they are not known."""
    columns = provenance.get("columns")
    found = columns if isinstance(columns, dict) else {}
    told = {"text_column": found.get("text"), "label_column": found.get("labels"), "split_column": [found.get("split")]}
    return {
        option: names
        for option, names in told.items()
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names)
    }


def as_in_training(data: str, options: Mapping[str, Any], trained_on: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The options, with the columns that models were trained on where a person names none and the data has them.

    Args:
        data: a person's own.
        options: those of `read_corpus` that are given.
        trained_on: the provenance of each model's data; where they differ, a person has to say what is meant.
    """
    from abalone.data.columns import present_column
    from abalone.data.files import matching_files
    from abalone.data.sources import open_path

    known = [(columns_of_training(each), each.get("label_separator")) for each in trained_on]
    columns, separator = known[0] if known and all(each == known[0] for each in known) else ({}, None)
    place = Path(data)
    if not columns or not (place.exists() or matching_files(place)):  # whoever reads it says so better
        return dict(options)
    present = open_path(place, checked=False).tables[0].columns
    taken: dict[str, Any] = {
        option: names
        for option, names in columns.items()
        if not options.get(option) and all(present_column(present, name) for name in names)
    }
    if "split_column" in taken:
        (taken["split_column"],) = taken["split_column"]  # there is one at most
    if "label_column" in taken and options.get("label_separator") is None and isinstance(separator, str):
        taken["label_separator"] = separator
    return {**options, **taken}


def split_seed(provenance: Mapping[str, Any]) -> int:
    """The seed that the splits of a model's data were made with, or that of `read_corpus` where they were given."""
    split = provenance.get("split")
    seed = split.get("seed") if isinstance(split, dict) else None
    return seed if isinstance(seed, int) else 0


def read_and_tell(
    data: str, seed: int = 0, *, trained_on: Iterable[Mapping[str, Any]] = (), **options: Any
) -> "Corpus":
    """Read the corpus, and tell its notes on stderr: once, by `stats` and `train`, not by every command after.

    Args:
        data: as a person names it.
        seed: of the splits that have to be made.
        trained_on: the provenance of models' data; whoever trained on this corpus has seen its notes.
        options: those of `read_corpus`.
    """
    with unrepeated() as notes:
        corpus = read_corpus(data, seed, **options)
        notes += corpus.notes
    if not any(same_data(corpus.provenance, then) for then in trained_on):
        tell(corpus.notes)
    return corpus


def same_data(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two provenances are of the same files, or of the same source where files are not known."""
    return _origin(one) is not None and _origin(one) == _origin(other)


def _origin(provenance: Mapping[str, Any]) -> object:
    return provenance.get("sha256") or provenance.get("source")


@contextmanager
def unrepeated() -> Iterator[list[str]]:
    """Hold warnings back until the notes are known that are put into this list, and give those that say more."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as given:
        yield notes
    for warning in given:
        if str(warning.message) not in notes:
            warnings.warn(warning.message, stacklevel=3)


def tell(notes: Iterable[str]) -> None:
    """Say on stderr what a person should know."""
    for note in notes:
        typer.echo(f"note: {printable(note)}", err=True)
