"""Rows: which columns hold text, labels, split and id, and their values in each row."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from reprlib import repr as short
from typing import NoReturn

from abalone.data.labels import Cell, read_cell
from abalone.data.split import SPLIT_WORDS
from abalone.data.tables import PEEK, BadRow, Record, Table, lone_surrogate
from abalone.errors import DataError, InputError, spelled

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
        labels: one column of labels, or one 0/1 column per label; none where texts come without labels.
        indicators: whether `labels` are 0/1 columns; a blank cell in them is a 0.
        split: the column that says the split of each row.
        id: the column that says what each row is known by.
        notes: how they were chosen, where a person should know.
    """

    text: tuple[str, ...]
    labels: tuple[str, ...] = ()
    indicators: bool = False
    split: str | None = None
    id: str | None = None
    notes: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        """Return all of them."""
        others = (name for name in (self.split, self.id) if name is not None)
        return tuple(dict.fromkeys((*self.text, *self.labels, *others)))


@dataclass(frozen=True)
class TextColumns:
    """The columns of texts that come without labels, in a table or in JSON lines.

    Args:
        named: by a person; several are joined by a newline.
        trained: those of the documents that a model was trained on: taken where none is named and all are there.
        id: what each text is to be known by.
    """

    named: Sequence[str] | None = None
    trained: Sequence[str] = ()
    id: str | None = None

    def found_in(self, present: Sequence[str]) -> tuple[str, ...] | None:
        """Return those columns of the text that there are; None where the usual names are to be looked for too."""
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
                "Or name several columns of 0 and 1 (or TRUE/FALSE, or 1/blank), one per label, with "
                f"{spelled('label_column')}."
            )
            _give_up(table, "labels", LABEL_NAMES, "label_column", several)
        notes.append(
            f"No column is named like labels, so the {len(labels)} columns of 0 and 1 are taken as labels"
            + (f"; not used: {_explained(unused)}." if unused else ".")
        )
    return Columns(text, labels, indicators, split, notes=tuple(notes))


def text_columns(
    table: Table, text_column: str | Sequence[str] | None = None, notes: list[str] | None = None
) -> tuple[str, ...]:
    """Return the columns of the text alone, for texts that come without labels."""
    if text_column is not None:
        wanted = [text_column] if isinstance(text_column, str) else text_column
        return tuple(named_column(table, name, "text_column") for name in wanted)
    found = usual_text(table.columns, notes)
    return (found or _give_up(table, "text", TEXT_NAMES, "text_column"),)


def usual_text(present: Sequence[str], notes: list[str] | None = None) -> str | None:
    """Return the column that is named like a text: a usual name, or else the only one like `comment_text`."""
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
    """Return a column that the user has named."""
    if found := present_column(table.columns, name):
        return found
    raise _missing(table, name, f"no column {name!r} ({spelled(option)})")


def present_column(present: Sequence[str], name: str) -> str | None:
    """Return the column of that name, or else of that name written otherwise."""
    return name if name in present else usual_column(present, (plain_name(name),))


def plain_name(column: str) -> str:
    """Return a name as it is compared: case, and what stands between words, do not count.

    Example:
        >>> plain_name(" Comment_Text")
        'comment text'
    """
    return " ".join(_BETWEEN_WORDS.split(column.lower())).strip()


def usual_column(present: Sequence[str], names: Sequence[str], notes: list[str] | None = None) -> str | None:
    """Return the first of the usual names that there is; where several are, that goes into the notes."""
    plain = [(plain_name(column), column) for column in present]
    found = [column for name in names for own, column in plain if own == name]
    if len(found) > 1 and notes is not None:
        notes.append(f"Column {found[0]!r} is used; {', '.join(map(repr, found[1:]))} would fit too.")
    return found[0] if found else None


def _indicator_columns(table: Table, taken: set[str | None]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return columns with nothing but 0, 1 and blanks in the first rows, and why others are none.

    A later row that differs is a bad row, not a doubt.
    """
    peeked = [row for row in islice(table.records(), PEEK) if isinstance(row, Record)]
    reasons = {name: _why_no_indicator(name, peeked) for name in table.columns if name not in taken}
    return (
        tuple(name for name, why in reasons.items() if why is None),
        {name: why for name, why in reasons.items() if why is not None},
    )


def _why_no_indicator(name: str, peeked: Sequence[Record]) -> str | None:
    """Return the reason why a column is not one of 0 and 1; None if it is."""
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
    """Return whether a cell of a 0/1 column says yes; None where it is neither 0 nor 1."""
    if isinstance(value, str):
        return INDICATOR.get(value.strip().lower())
    return INDICATOR.get(value) if isinstance(value, int | float) else None


def is_blank(value: object) -> bool:
    """Return whether a cell is empty, or holds what pandas writes for nothing into a column of numbers."""
    return value is None or (isinstance(value, str) and not value.strip()) or value != value


def _give_up(table: Table, what: str, names: Sequence[str], option: str, otherwise: str = "") -> NoReturn:
    """Raise where no column was found: say which there are and which of them comes nearest."""
    by_lower = {column.lower(): column for column in table.columns}
    near = [match for name in names for match in get_close_matches(name, by_lower, n=1, cutoff=0.6)]
    advice = (
        f"Did you mean {spelled(option, by_lower[near[0]])}?" if near else f"Name the column with {spelled(option)}."
    )
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


@dataclass(slots=True)
class Row:
    """A row that can be used, as training and prediction read it.

    Args:
        text: of the document.
        id: what it is known by, where a column says that.
        labels: its cell of labels, of which the names may still have to be split; none in prediction.
        blank: the 0/1 columns in which its cell is blank.
        split: that it belongs to, if that is known.
    """

    text: str
    id: str | int | None = None
    labels: Cell = ()
    blank: tuple[str, ...] = ()
    split: str | None = None


def read_rows(table: Table, columns: Columns, *, lists_in_text: bool = True) -> Iterator[Row | BadRow]:
    """Read the rows of a table, with a `BadRow` in the place of each that cannot be used.

    Args:
        table: has the `columns`.
        columns: what is read of it.
        lists_in_text: read labels like `["a", "b"]` in a string as a list.
    """
    for record in table.records(columns.names()):
        if isinstance(record, BadRow):
            yield record
        else:
            yield read_row(record, columns, table.name, split=table.split, lists_in_text=lists_in_text)


def read_row(
    record: Record, columns: Columns, path: str | Path, *, split: str | None = None, lists_in_text: bool = True
) -> Row | BadRow:
    """Read one row; the arguments are those of `read_rows`.

    Args:
        path: of the file, for a bad row.
        split: that the row belongs to where no column says it.
    """
    values, row_id = record.values, None
    try:
        if columns.id is not None:
            row_id = _id(values.get(columns.id), columns.id)
        row = Row(_text(values, columns.text), row_id)
        if columns.indicators:
            row.labels, row.blank = _indicated(values, columns.labels)
        elif columns.labels:
            row.labels = _labels(values.get(columns.labels[0]), lists_in_text)
        row.split = split if columns.split is None else _split(values.get(columns.split))
    except ValueError as error:
        source = record.source or json.dumps(values, ensure_ascii=False, default=str)
        return BadRow(path, record.line, str(error), source, id=row_id)
    return row


def _text(values: Mapping[str, object], columns: Sequence[str]) -> str:
    parts = []
    for column in columns:
        part = values.get(column)
        if isinstance(part, str):
            if part.strip():
                parts.append(part)
        elif part is not None:
            raise InputError(f"the text in column {column!r} is not a string but {type(part).__name__}: {short(part)}")
    if not parts:
        raise InputError(f"no text in column {' or '.join(map(repr, columns))}")
    text = "\n".join(parts)
    if reason := lone_surrogate(text):
        raise InputError(f"the text {reason}")
    return text


def _labels(value: object, lists_in_text: bool) -> Cell:
    cell = read_cell(value, lists_in_text=lists_in_text)
    for label in (cell,) if isinstance(cell, str) else cell:
        if reason := lone_surrogate(label):
            raise InputError(f"the label {label!r} {reason}")
    return cell


def _indicated(values: Mapping[str, object], columns: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the 0/1 columns that hold a 1, and those that are blank."""
    carried, blank = [], []
    for column in columns:
        value = values.get(column)
        if is_blank(value):
            blank.append(column)
        elif (yes := indicator(value)) is None:
            raise InputError(f"column {column!r} holds {short(value)} where 0 or 1 is expected")
        elif yes:
            carried.append(column)
    return tuple(carried), tuple(blank)


def _split(value: object) -> str:
    word = value.strip() if isinstance(value, str) else short(value) if value else ""
    if split := SPLIT_WORDS.get(word.lower()):
        return split
    raise InputError(f"{f'unknown split {short(word)}' if word else 'no split'} (known: {', '.join(SPLIT_WORDS)})")


def _id(value: object, column: str) -> str | int:
    if is_blank(value):
        raise InputError(f"no id in column {column!r}")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(
            f"the id in column {column!r} is not a string or integer but {type(value).__name__}: {short(value)}"
        )
    if isinstance(value, str) and (reason := lone_surrogate(value)):
        raise InputError(f"the id {reason}")
    return value


def with_ids(rows: Iterable[Row], answers: Iterable[dict[str, object]]) -> Iterator[dict[str, object]]:
    """Yield the answers to rows, each with the id of its row, if it has one.

    Example:
        >>> list(with_ids([Row("w1", 7), Row("w2")], [{"labels": ["a"]}, {"labels": []}]))
        [{'id': 7, 'labels': ['a']}, {'labels': []}]
    """
    for row, answer in zip(rows, answers, strict=True):
        yield answer if row.id is None else {"id": row.id, **answer}


def texts_and_ids(rows: Iterable[Row]) -> Iterator[str]:
    """Yield each text and the id of its row, if it has one, for a checksum: other ids make another."""
    for row in rows:
        yield row.text
        if row.id is not None:
            yield repr(row.id)
