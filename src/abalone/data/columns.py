"""Which columns of a table hold the text, the labels and the split."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from reprlib import repr as short
from typing import NoReturn

from abalone.data.tables import PEEK, Row, Table
from abalone.files.errors import DataError

TEXT_NAMES = (
    *("text", "abstract", "body", "sentence", "document", "content", "message"),
    *("comment", "review", "tweet", "post", "description"),
)
LABEL_NAMES = ("labels", "label", "topics", "tags", "categories")
SPLIT_NAME = "split"
NAMED = 10  # columns in a note, before it only counts
_BETWEEN_WORDS = re.compile(r"[\s_-]+")

# Equal and equally hashed in Python: 1, 1.0 and True. Spreadsheets and pandas write the strings, in any case.
INDICATOR = {0: False, 1: True, "0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}


@dataclass(frozen=True)
class Columns:
    """The columns that are read.

    Args:
        text: joined by a newline where they are several.
        labels: one column of labels, or one 0/1 column per label.
        indicators: whether `labels` are 0/1 columns; a blank cell in them is a 0.
        split: the column that says the split of each row.
        notes: how they were chosen, where a person should know.
    """

    text: tuple[str, ...]
    labels: tuple[str, ...]
    indicators: bool = False
    split: str | None = None
    notes: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(dict.fromkeys((*self.text, *self.labels, *([self.split] if self.split else []))))


@dataclass(frozen=True)
class TextColumns:
    """Where the texts of a table, or of JSON lines, stand whose labels are to be found.

    Args:
        named: by a person; several are joined by a newline.
        trained: those of the documents that a model was trained on: taken where none is named and all are there.
        ids: what each text is to be known by.
    """

    named: Sequence[str] | None = None
    trained: Sequence[str] = ()
    ids: str | None = None

    def found_in(self, present: Sequence[str]) -> tuple[str, ...] | None:
        """The columns of the text, of those that there are; `None` where the usual names are to be looked for too."""
        if self.named is not None:
            return tuple(self.named)
        known = [present_column(present, name) for name in self.trained]
        return tuple(name for name in known if name) if known and all(known) else None


def choose_columns(
    table: Table,
    *,
    text_column: str | Sequence[str] | None = None,
    label_column: str | Sequence[str] | None = None,
    split_column: str | None = None,
) -> Columns:
    """Take the columns that are named, and find the others by their usual names, however these are written."""
    present = table.columns
    if not present:
        raise DataError("the file holds no rows", path=table.name)
    notes: list[str] = []
    split = named_column(table, split_column, "split_column") if split_column else None
    if split is None and (found := usual_column(present, (SPLIT_NAME,), notes)):
        if table.split is None:
            split = found
        else:
            notes.append(f"Column {found!r} is not used, since each file is a split.")
    text = text_columns(table, text_column, notes)
    indicators = False
    if isinstance(label_column, str):
        labels: tuple[str, ...] = (named_column(table, label_column, "label_column"),)
    elif label_column is not None:
        labels = tuple(named_column(table, name, "label_column") for name in label_column)
        indicators = True
    elif (single := usual_column(present, LABEL_NAMES, notes)) is not None:
        labels = (single,)
    else:
        labels, unused = _indicator_columns(table, taken={*text, split})
        indicators = True
        if len(labels) < 2:
            several = (
                "Or name several columns of 0 and 1 (or TRUE/FALSE, or 1/blank), one per label, with label_column=."
            )
            _give_up(table, "labels", LABEL_NAMES, "label_column", several)
        notes.append(
            f"No column is named like labels, so the {len(labels)} columns of 0 and 1 are taken as labels"
            + (f"; not used: {_explained(unused)}." if unused else ".")
        )
    return Columns(text, labels, indicators, split, tuple(notes))


def text_columns(
    table: Table, text_column: str | Sequence[str] | None = None, notes: list[str] | None = None
) -> tuple[str, ...]:
    """The columns of the text alone, for texts that come without labels."""
    if text_column is not None:
        wanted = [text_column] if isinstance(text_column, str) else text_column
        return tuple(named_column(table, name, "text_column") for name in wanted)
    found = usual_text(table.columns, notes)
    return (found or _give_up(table, "text", TEXT_NAMES, "text_column"),)


def usual_text(present: Sequence[str], notes: list[str] | None = None) -> str | None:
    """The column that is named like a text: one of the usual names, or else the only one like `comment_text`."""
    if found := usual_column(present, TEXT_NAMES, notes):
        return found
    ending = [column for column in present if plain_name(column).endswith(" text")]
    return ending[0] if len(ending) == 1 else None


def require_columns(table: Table, columns: Columns) -> None:
    """Check that another table of the same corpus has the columns too; an empty one need not."""
    present = set(table.columns)
    for name in columns.names() if present else ():
        if name not in present:
            raise _missing(table, name, f"no column {name!r}, which the other files have")


def named_column(table: Table, name: str, option: str) -> str:
    """A column that the user has named."""
    if found := present_column(table.columns, name):
        return found
    raise _missing(table, name, f"no column {name!r} ({option}=)")


def present_column(present: Sequence[str], name: str) -> str | None:
    """The column of that name, or else of that name written otherwise."""
    return name if name in present else usual_column(present, (plain_name(name),))


def plain_name(column: str) -> str:
    """A name as it is compared: case, and what stands between words, do not count.

    Example:
        >>> plain_name(" Comment_Text")
        'comment text'
    """
    return " ".join(_BETWEEN_WORDS.split(column.lower())).strip()


def usual_column(present: Sequence[str], names: Sequence[str], notes: list[str] | None = None) -> str | None:
    """The first of the usual names that there is; where several are, that goes into the notes."""
    plain = [(plain_name(column), column) for column in present]
    found = [column for name in names for own, column in plain if own == name]
    if len(found) > 1 and notes is not None:
        notes.append(f"Column {found[0]!r} is used; {', '.join(map(repr, found[1:]))} would fit too.")
    return found[0] if found else None


def _indicator_columns(table: Table, taken: set[str | None]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Columns with nothing but 0, 1 and blanks in the first rows, and why others are none.

    A later row that differs is a bad row, not a doubt.
    """
    peeked = [row for row in islice(table.rows(), PEEK) if isinstance(row, Row)]
    reasons = {name: _why_no_indicator(name, peeked) for name in table.columns if name not in taken}
    return (
        tuple(name for name, why in reasons.items() if why is None),
        {name: why for name, why in reasons.items() if why is not None},
    )


def _why_no_indicator(name: str, peeked: Sequence[Row]) -> str | None:
    """What keeps a column from being one of 0 and 1, if anything does."""
    others = [row for row in peeked if not is_blank(row.values.get(name))]
    if not others:
        return "blank"
    odd = [row for row in others if indicator(row.values.get(name)) is None]
    if not odd:
        return None
    example = short(odd[0].values.get(name))
    # Mostly 0 and 1: it may be a label with a slip in it, which a person would want to find.
    return f"0 and 1 except for {example} in line {odd[0].line}" if 2 * len(odd) < len(others) else f"holds {example}"


def _explained(unused: Mapping[str, str]) -> str:
    first = [f"{name} ({why})" for name, why in islice(unused.items(), NAMED)]
    return ", ".join(first) + (f" and {len(unused) - NAMED:,} more" if len(unused) > NAMED else "")


def indicator(value: object) -> bool | None:
    """Whether a cell of a 0/1 column says yes; `None` where it is neither 0 nor 1."""
    if isinstance(value, str):
        return INDICATOR.get(value.strip().lower())
    return INDICATOR.get(value) if isinstance(value, int | float) else None


def is_blank(value: object) -> bool:
    """Whether there is nothing in a cell, or what pandas writes for nothing into a column of numbers."""
    return value is None or (isinstance(value, str) and not value.strip()) or value != value


def _give_up(table: Table, what: str, names: Sequence[str], option: str, otherwise: str = "") -> NoReturn:
    """No column could be found: say which there are and which of them comes nearest."""
    by_lower = {column.lower(): column for column in table.columns}
    near = [match for name in names for match in get_close_matches(name, by_lower, n=1, cutoff=0.6)]
    advice = f"Did you mean {option}={by_lower[near[0]]!r}?" if near else f"Name the column with {option}=."
    raise DataError(
        f"no column for the {what} (looked for {', '.join(names)})",
        path=table.name,
        hint=f"Columns: {', '.join(table.columns)}. {advice} {otherwise}".rstrip(),
    )


def _missing(table: Table, name: str, reason: str) -> DataError:
    by_lower = {column.lower(): column for column in table.columns}
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    nearest = f" Did you mean {by_lower[near[0]]!r}?" if near else ""
    return DataError(reason, path=table.name, hint=f"Columns: {', '.join(table.columns)}.{nearest}")
