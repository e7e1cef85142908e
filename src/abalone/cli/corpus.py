"""How every command is told its data: the same argument and options, read by the same function."""

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from abalone.files.errors import printable

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
        help="Text column; by default, one with a usual name. Repeat the option to join several columns.",
        rich_help_panel=READING_PANEL,
    ),
]
LabelColumn = Annotated[
    list[str] | None,
    typer.Option(
        "--label-column",
        metavar="NAME",
        help="Label column; by default, one with a usual name. Repeat the option for several 0/1 columns.",
        rich_help_panel=READING_PANEL,
    ),
]
SplitColumn = Annotated[
    str | None,
    typer.Option(
        "--split-column",
        metavar="NAME",
        help="Column with the split: train, val or test.",
        rich_help_panel=READING_PANEL,
    ),
]
LabelSeparator = Annotated[
    str | None,
    typer.Option(
        "--label-separator",
        metavar="TEXT",
        help="Separator between the labels in a cell.",
        rich_help_panel=READING_PANEL,
    ),
]
MergeCase = Annotated[
    bool,
    typer.Option(
        "--merge-case",
        help="Merge labels that differ only by case, in lower case.",
        rich_help_panel=READING_PANEL,
    ),
]
DropDuplicates = Annotated[
    bool,
    typer.Option(
        "--drop-duplicates",
        help="Keep one copy of each text, with the labels of all copies.",
        rich_help_panel=READING_PANEL,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        metavar="NAME",
        help="Encoding of text files, such as cp1252 or utf-16; UTF-8 by default.",
        rich_help_panel=READING_PANEL,
    ),
]
SkipBadRows = Annotated[
    bool,
    typer.Option(
        "--skip-bad-rows",
        help="Skip rows that cannot be used, and list them in a file, instead of stopping.",
        rich_help_panel=READING_PANEL,
    ),
]


def read_corpus(
    data: str,
    *,
    path: DataPath = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    split_column: SplitColumn = None,
    label_separator: LabelSeparator = None,
    merge_case: MergeCase = False,
    drop_duplicates: DropDuplicates = False,
    encoding: Encoding = None,
    skip_bad_rows: SkipBadRows = False,
) -> "Corpus":
    """The corpus that a person means by these options."""
    from abalone.data.load import load_corpus

    return load_corpus(
        data,
        path=path,
        text_column=one_or_several(text_column),
        label_column=one_or_several(label_column),
        split_column=split_column,
        label_separator=label_separator,
        merge_case=merge_case,
        drop_duplicates=drop_duplicates,
        encoding=encoding,
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


_REMEMBERED = ("label_separator", "merge_case", "drop_duplicates", "encoding")  # in the provenance of a model's data


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
    """The options, with those that models were trained with where a person gives none and they fit the data.

    Columns do where the data has them, an encoding and the dropping of copies where it is the very same files. What is
    made of labels fits all data.

    Args:
        data: a person's own.
        options: those of `read_corpus` that are given.
        trained_on: the provenance of each model's data; where they differ, a person has to say what is meant.
    """
    from abalone.data.rows import present_column
    from abalone.data.sources import matching_files, open_path

    told = list(trained_on)
    known = [(columns_of_training(each), *map(each.get, _REMEMBERED)) for each in told]
    columns, separator, merge_case, drop_duplicates, encoding = (
        known[0] if known and all(each == known[0] for each in known) else ({}, None, None, None, None)
    )
    place = Path(data)
    if not columns or not (place.exists() or matching_files(place)):  # whoever reads it says so better
        return dict(options)
    of_files: dict[str, Any] = {}
    if drop_duplicates is True or isinstance(encoding, str):
        now = checksums(open_path(place).provenance)
        if any(checksums(each) == now for each in told):
            of_files = {"drop_duplicates": drop_duplicates is True, "encoding": encoding}
    options = {**options, **{option: value for option, value in of_files.items() if value and not options.get(option)}}
    if merge_case is True:
        options["merge_case"] = True
    present = open_path(place, checked=False, encoding=options.get("encoding")).tables[0].columns
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


def checksums(provenance: Mapping[str, Any]) -> list[str] | None:
    """Of the files, whatever they are called."""
    return list(sums.values()) if isinstance(sums := provenance.get("sha256"), dict) else None


def split_of_training(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """How the splits of a model's data were made, as arguments of `assemble`: a corpus of the library has any seed.

    Models of before copies of a text were kept together do not say that they were. Nor do models of data without
    copies, for which it makes no difference.
    """
    split = provenance.get("split")
    made = split if isinstance(split, dict) else {}
    seed = made.get("seed")
    return {"seed": seed if isinstance(seed, int) else 0, "copies_together": made.get("copies_together") is True}


def read_and_tell(data: str, *, trained_on: Iterable[Mapping[str, Any]] = (), **options: Any) -> "Corpus":
    """Read the corpus, and tell its notes on stderr: once, by `stats` and `train`, not by every command after.

    Args:
        data: as a person names it.
        trained_on: the provenance of models' data; whoever trained on this corpus has seen its notes.
        options: those of `read_corpus`.
    """
    with unrepeated() as notes:
        corpus = read_corpus(data, **options)
        notes += corpus.notes
    _tell_unless_known(corpus, trained_on)
    return corpus


def read_as_trained_on(data: str, provenance: Mapping[str, Any]) -> "Corpus":
    """Read a person's own data, and split it as that of a model was, as far as it can be. Notes: as `read_and_tell`."""
    from abalone.data.corpus import assemble
    from abalone.data.load import read_source

    options = as_in_training(data, {}, [provenance])
    columns = {option: one_or_several(options.get(option)) for option in ("text_column", "label_column")}
    with unrepeated() as notes:
        read = read_source(data, **{**options, **columns})
        made = split_of_training(provenance)
        corpus = assemble(read.documents, name=read.name, origin=read.origin, provenance=read.provenance, **made)
        notes += corpus.notes
    _tell_unless_known(corpus, [provenance])
    return corpus


def _tell_unless_known(corpus: "Corpus", trained_on: Iterable[Mapping[str, Any]]) -> None:
    """Tell the notes, unless training a model on the same data has told them."""
    if not any(same_data(corpus.provenance, then) for then in trained_on):
        tell(corpus.notes)


def same_data(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two provenances are of the same files, or of the same source where files are not known."""
    return _origin(one) is not None and _origin(one) == _origin(other)


def _origin(provenance: Mapping[str, Any]) -> object:
    return checksums(provenance) or provenance.get("source")


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
