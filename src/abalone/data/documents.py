"""From the rows of tables to documents: a text, labels, a split."""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from reprlib import repr as short

import numpy as np
from scipy.sparse import csr_array

from abalone.data.badrows import BadRows
from abalone.data.columns import NAMED, Columns, indicator, is_blank, require_columns
from abalone.data.corpus import SPLITS
from abalone.data.files import SPLIT_WORDS
from abalone.data.label_cells import LabelCells
from abalone.data.label_lists import LabelLists
from abalone.data.labels import Cell, joined_names, read_cell
from abalone.data.seen import text_hashes
from abalone.data.tables import BadRow, Table, half_character
from abalone.files.errors import DataError, printable
from abalone.progress import track


@dataclass
class Documents:
    """What was read: document `i` has `texts[i]`, the labels `labels[i]` and the split `splits[i]`, if any.

    `offered` are the labels that the source has a place for (a 0/1 column, a bit), carried or not.
    """

    texts: Sequence[str] = field(default_factory=list)
    labels: LabelLists = field(default_factory=LabelLists)
    splits: Sequence[str | None] = field(default_factory=list)
    offered: tuple[str, ...] = ()
    separator: str | None = None  # that labels were split at
    notes: list[str] = field(default_factory=list)
    hashes: np.ndarray | None = None  # as `text_hashes` gives them, where they are known already

    def add(self, text: str, labels: Iterable[str] = (), split: str | None = None) -> None:
        """Append one document; only to documents that were made empty."""
        self.texts.append(text)  # type: ignore[attr-defined]
        self.labels.append(labels)
        self.splits.append(split)  # type: ignore[attr-defined]

    def label_matrix(self) -> tuple[list[str], csr_array]:
        """The labels that a document carries, in order, and who carries which: 0/1, [n, L]."""
        names = self.labels.carried()
        return names, self.labels.matrix(names)

    def text_hashes(self) -> np.ndarray:
        """[n], the same for copies of a text."""
        if self.hashes is None:
            self.hashes = text_hashes(self.texts)
        return self.hashes

    def rows(self) -> dict[str, np.ndarray]:
        """Which documents each split has, as far as that is known."""
        of_row = np.array([SPLITS.index(split) if split else -1 for split in self.splits], dtype=np.int8)
        return {split: np.flatnonzero(of_row == number) for number, split in enumerate(SPLITS)}


def with_merged_case(documents: Documents) -> Documents:
    """Make labels that differ only by case one label, in lower case.

    Not in the spelling that is the commonest: other data of the same labels may have another one.
    """
    offered = tuple(dict.fromkeys(name.casefold() for name in documents.offered))
    return replace(documents, labels=documents.labels.renamed(str.casefold), offered=offered)


def read_documents(
    tables: Sequence[Table],
    columns: Columns,
    *,
    label_separator: str | None,
    bad_rows: BadRows,
    keep_text: Callable[[str], None] | None = None,
) -> Documents:
    """Read all tables; rows that cannot be used go to `bad_rows`.

    Args:
        tables: what is to be read.
        columns: of each of them.
        label_separator: what separates labels in a string; found where it is `None`.
        bad_rows: takes what cannot be used.
        keep_text: takes the texts, one after the other, instead of `texts` of the documents.
    """
    documents = Documents(offered=columns.labels if columns.indicators else ())
    texts: list[str] = []
    keep = texts.append if keep_text is None else keep_text
    splits: list[str | None] = []
    blanks: Counter[str] = Counter()
    with LabelCells(label_separator, documents.labels) as cells:
        for table in tables:
            require_columns(table, columns)
            before = len(splits)
            for row in track(table.rows(columns.names()), f"Reading {printable(Path(table.name).name)}"):
                if isinstance(row, BadRow):
                    bad_rows.reject(table.name, row.line, row.reason, row.source, row.hint, row.lines)
                    continue
                try:
                    text = text_of(row.values, columns.text)
                    cell = _cell(row.values, columns, lists_in_text=label_separator is None)
                    split = _split(row.values.get(columns.split)) if columns.split else table.split
                except ValueError as error:
                    source = row.source or json.dumps(row.values, ensure_ascii=False, default=str)
                    bad_rows.reject(table.name, row.line, str(error), source)
                    continue
                if columns.indicators:
                    blanks.update(column for column in columns.labels if is_blank(row.values.get(column)))
                keep(text)
                cells.append(cell)
                splits.append(split)
            if len(splits) == before:
                documents.notes.append(f"{Path(table.name).name} holds no documents.")
        if not columns.indicators and cells.bit_vectors:
            raise DataError(
                f"column {columns.labels[0]!r} holds 0/1 vectors, which do not name the labels",
                path=tables[0].name,
                hint="Give lists of names, or one 0/1 column per label.",
            )
        separators = cells.split()
    documents.texts, documents.splits = texts, splits
    if blanks:
        where = ", ".join(f"{column} {count:,}" for column, count in blanks.most_common(NAMED))
        more = f" and {len(blanks) - NAMED:,} more columns" if len(blanks) > NAMED else ""
        documents.notes.append(f"Blank cells in 0/1 columns, read as 0: {blanks.total():,} ({where}{more}).")
    documents.separator = separators[0] if separators else label_separator
    if len(separators) > 1:
        others = " and ".join(map(repr, separators[1:]))
        documents.notes.append(
            f"Labels are split at {separators[0]!r}, though {others} occur too; "
            "label_separator= (--label-separator) changes that."
        )
    if cells.strings and (found := joined_names(dict.fromkeys(documents.labels.names))):
        mark, names = found
        documents.notes.append(
            f"{len(names)} labels look like several joined by {mark!r}, such as {names[0]!r}: "
            f"label_separator={mark!r} (--label-separator {shlex.quote(mark)}) would split them."
        )
    if label_separator and not cells.separated:
        documents.notes.append(f"The label separator {label_separator!r} occurs in no label, so each is taken whole.")
    return documents


def text_of(values: Mapping[str, object], columns: Sequence[str]) -> str:
    """The text of a row, its columns joined by a newline."""
    parts = []
    for column in columns:
        part = values.get(column)
        if isinstance(part, str):
            if part.strip():
                parts.append(part)
        elif part is not None:
            raise ValueError(f"the text in column {column!r} is not a string but {type(part).__name__}: {short(part)}")
    if not parts:
        raise ValueError(f"no text in column {' or '.join(map(repr, columns))}")
    text = "\n".join(parts)
    if reason := half_character(text):
        raise ValueError(f"the text {reason}")
    return text


def _cell(values: Mapping[str, object], columns: Columns, *, lists_in_text: bool) -> Cell:
    if not columns.indicators:
        cell = read_cell(values.get(columns.labels[0]), lists_in_text=lists_in_text)
        for label in (cell,) if isinstance(cell, str) else cell:
            if reason := half_character(label):
                raise ValueError(f"the label {label!r} {reason}")
        return cell
    carried = []
    for column in columns.labels:
        value = values.get(column)
        yes = False if is_blank(value) else indicator(value)
        if yes is None:
            raise ValueError(f"column {column!r} holds {short(value)} where 0 or 1 is expected")
        if yes:
            carried.append(column)
    return tuple(carried)


def _split(value: object) -> str:
    word = value.strip() if isinstance(value, str) else short(value) if value else ""
    if split := SPLIT_WORDS.get(word.lower()):
        return split
    raise ValueError(f"{f'unknown split {short(word)}' if word else 'no split'} (known: {', '.join(SPLIT_WORDS)})")
