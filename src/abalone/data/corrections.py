"""Corrections: suggested changes of labels as a table that a person decides, and a corpus with what was decided."""

import csv
import difflib
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

import numpy as np
from scipy.sparse import lil_array

from abalone.data.corpus import Corpus, Split
from abalone.data.hashes import text_hashes
from abalone.data.labels import FORMULA, read_cell, split_cell
from abalone.data.sources import open_path
from abalone.data.tables import BadRow, Record
from abalone.errors import DataError, InputError

ADD, REMOVE = "add", "remove"
DECIDED = ("key", "suggestion", "label", "decision")  # columns that are read back
SHOWN = ("doubt", "probability", "documents", "labels", "text")  # and those that a person decides by
# As a person writes it, and as spreadsheets write back what they took for true and false.
YES = ("yes", "y", "x", "1", "1.0", "true", "ja", "wahr", "oui", "vrai")
NO = ("no", "n", "0", "0.0", "false", "nein", "falsch", "non", "faux")
LONGEST = 5_000  # characters of a text that are shown; a cell of a spreadsheet holds 32,767
OTHER_DATA = "The corrections are of other data: make them anew with `abalone review`."  # a hint


class Suggestion(NamedTuple):
    """A change of one label of one document, for a person to decide.

    Args:
        text: of the document.
        label: its name.
        add: whether the label is missing; else it is wrong.
        doubt: from 0 to 1.
        probability: of the label, by a model that was not trained on the document.
        documents: that carry the label now.
        labels: of the document now.
    """

    text: str
    label: str
    add: bool
    doubt: float
    probability: float
    documents: int
    labels: tuple[str, ...]


def write_suggestions(file: BinaryIO, suggestions: Iterable[Suggestion]) -> None:
    """Write suggestions as CSV, with an empty column for the decisions; the file itself stays open."""
    stream = TextIOWrapper(file, encoding="utf-8-sig", newline="")  # with a mark by which Excel knows UTF-8
    try:
        _write(stream, suggestions)
    finally:
        stream.detach()


def _write(stream: TextIO, suggestions: Iterable[Suggestion]) -> None:
    rows = csv.writer(stream, lineterminator="\r\n")
    rows.writerow([*DECIDED, *SHOWN])
    for each in suggestions:
        rows.writerow(
            [
                _key(int(text_hashes([each.text])[0])),
                ADD if each.add else REMOVE,
                _cell([each.label]),
                "",
                f"{each.doubt:.4f}",
                f"{each.probability:.4f}",
                each.documents,
                _cell(each.labels),
                _shown(each.text),
            ]
        )


def corrected(corpus: Corpus, path: Path) -> Corpus:
    """Return the corpus with the labels of training and validation documents changed as a table says.

    Rows whose `decision` is yes are applied, to all copies of the text. What is already as it was decided stays so, so
    the same table may be given again. A table of other data, or one that contradicts itself, is refused as a whole.

    Args:
        corpus: as it was when the suggestions were made.
        path: of the table: `abalone review` writes one. Columns beyond `DECIDED` are not read.
    """
    decided = list(_decisions(path))
    columns = {name: column for column, name in enumerate(corpus.label_names)}
    rows: dict[str, list[tuple[int, int]]] = {}  # split and row of the copies of each text
    splits = [corpus.train, corpus.validation]
    for number, split in enumerate(splits):
        for row, key in enumerate(text_hashes(split.texts)):
            rows.setdefault(_key(int(key)), []).append((number, row))
    changed = [lil_array(split.labels) for split in splits]
    first: dict[tuple[str, str], int] = {}  # line of each correction
    added = removed = same = 0
    for line, key, label, add, yes in decided:
        if key not in rows:
            raise _wrong(path, line, f"no training or validation document has the key {key!r}", OTHER_DATA)
        if label not in columns:
            near = difflib.get_close_matches(label, columns, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else OTHER_DATA
            raise _wrong(path, line, f"the corpus has no label {label!r}", hint)
        if (key, label) in first:
            what = f"the label {label!r} of this document was decided in line {first[key, label]} already"
            raise _wrong(path, line, what, "Keep one of the two rows.")
        first[key, label] = line
        if not yes:
            continue
        now = [int(changed[number][row, columns[label]]) for number, row in rows[key]]
        for number, row in rows[key]:
            changed[number][row, columns[label]] = int(add)
        if all(value == add for value in now):
            same += 1
        elif add:
            added += 1
        else:
            removed += 1
    labels = [matrix.tocsr() for matrix in changed]
    for matrix in labels:
        matrix.eliminate_zeros()
    empty = np.flatnonzero((np.asarray(labels[0].sum(axis=0)).ravel() == 0) & _carried(corpus.train))
    if len(empty):
        name = corpus.label_names[empty[0]]
        raise InputError(f"{path}: its corrections leave no training document with the label {name!r}: keep one")
    train, validation = (Split(split.texts, matrix) for split, matrix in zip(splits, labels, strict=True))
    told = f"Corrections of {path.name}: {added:,} labels added, {removed:,} removed"
    told += f", {same:,} were so already." if same else "."
    made = {"added": added, "removed": removed, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    before: Any = corpus.provenance.get("corrections", [])
    return replace(
        corpus,
        train=train,
        validation=validation,
        provenance={**corpus.provenance, "corrections": [*before, made]},
        notes=(*corpus.notes, told),
    )


def _decisions(path: Path) -> Iterator[tuple[int, str, str, bool, bool]]:
    """Yield line, key, label, whether to add it, and whether that was agreed to, of the rows that were decided."""
    open_decisions = 0
    some = False
    for table in open_path(path, checked=False).tables:
        if missing := [name for name in DECIDED if name not in table.columns]:
            raise DataError(f"there is no column {missing[0]!r}", path=path, hint=f"It needs {', '.join(DECIDED)}.")
        for record in table.records(DECIDED):
            if isinstance(record, BadRow):
                raise _wrong(path, record.line, record.reason, "Save the table as CSV in UTF-8.")
            if (yes := _decision(path, record)) is None:
                open_decisions += 1
                continue
            some = True
            yield (record.line, _told(record, "key"), *_change(path, record), yes)
    if not some:
        raise DataError(
            f"none of its {open_decisions:,} rows is decided",
            path=path,
            hint="Write yes or no into the column decision.",
        )


def _decision(path: Path, record: Record) -> bool | None:
    told = _told(record, "decision").lower()
    if told in ("", *NO):
        return False if told else None
    if told not in YES:
        raise _wrong(path, record.line, f"the decision is {told!r}", "Write yes or no, or leave it empty.")
    return True


def _change(path: Path, record: Record) -> tuple[str, bool]:
    told = _told(record, "suggestion").lower()
    if told not in (ADD, REMOVE):
        raise _wrong(path, record.line, f"the suggestion is {told!r}", f"It is {ADD} or {REMOVE}.")
    try:
        names = split_cell(read_cell(record.values["label"]), None)
    except InputError:
        names = ()
    if len(names) != 1:
        raise _wrong(path, record.line, f"the label is {record.values['label']!r}", "It is the name of one label.")
    return names[0], told == ADD


def _told(record: Record, column: str) -> str:
    value = record.values[column]
    return "" if value is None else str(value).strip()


def _wrong(path: Path, line: int, reason: str, hint: str) -> DataError:
    return DataError(reason, path=path, line=line, hint=hint)


def _key(text_hash: int) -> str:
    """Return the key of a text; with a letter before it, which keeps spreadsheets from taking it for a number."""
    return f"t{text_hash:016x}"


def _cell(names: Collection[str]) -> str:
    """Return names of labels in one cell; as a list in JSON where they would be taken for something else.

    A spreadsheet makes a number or a date of much that has a digit, and writes it back otherwise: `250.00` as 250.
    """
    odd = ("[", "(", "{", *FORMULA)
    plain = all(name == name.strip() and not name.startswith(odd) and not _digits(name) for name in names)
    if plain and (len(names) == 1 or not any(";" in name for name in names)):
        return "; ".join(names)
    return json.dumps(list(names), ensure_ascii=False)


def _digits(name: str) -> bool:
    return any(character.isdigit() for character in name)


def _shown(text: str) -> str:
    """Return the beginning of a text, as a cell that no spreadsheet computes or cuts."""
    return f"{' ' if text.startswith(FORMULA) else ''}{text[:LONGEST]}{'…' if len(text) > LONGEST else ''}"


def _carried(split: Split) -> np.ndarray:
    found: np.ndarray = np.asarray(split.labels.sum(axis=0)).ravel() > 0
    return found
