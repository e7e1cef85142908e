"""Predictions as people read them: labels and probabilities of each text, as JSON lines, CSV or Parquet."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from itertools import pairwise
from typing import Any, BinaryIO, Literal

import numpy as np

from abalone.data.labels import FORMULA, SEPARATORS
from abalone.data.rows import Row
from abalone.errors import DataError, install_hint, printable, printable_json
from abalone.evaluation.decision import Decision
from abalone.evaluation.matrices import EVERY, Scores, row_blocks

# Texts that are read, sorted by length and encoded together: enough that batches are of like length, and few enough
# that they are nothing beside the model. Either ends a window.
WINDOW_TEXTS, WINDOW_CHARACTERS = 4096, 8_000_000

Form = Literal["jsonl", "parquet"]
Answer = dict[str, object]


@dataclass(frozen=True)
class Wanted:
    """Options of an answer.

    Args:
        probabilities: add the probability of every label.
        top: give this many most probable labels, whatever their thresholds.
    """

    probabilities: bool = False
    top: int | None = None


def windows(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows in lists that fit in memory, in order, and those before an unreadable one before its error."""
    window: list[Row] = []
    characters = 0
    try:
        for row in rows:
            window.append(row)
            characters += len(row.text)
            if len(window) == WINDOW_TEXTS or characters >= WINDOW_CHARACTERS:
                yield window
                window, characters = [], 0
    except DataError:
        if window:
            yield window
        raise
    if window:
        yield window


def answers(scores: Scores, decision: Decision, names: Sequence[str], wanted: Wanted) -> Iterator[Answer]:
    """Yield an answer for each row of probabilities [n, L]; labels from the most probable down, ties in label order."""
    for rows in row_blocks(scores.shape):
        block = scores[rows, EVERY]
        given = decision.labels(block) if wanted.top is None else _highest(block, wanted.top)
        documents, columns = given.nonzero()
        order = np.lexsort((columns, -block[documents, columns], documents))
        ends = np.cumsum(np.bincount(documents, minlength=len(block))).tolist()
        labels = [names[column] for column in columns[order].tolist()]
        for row, (start, stop) in enumerate(pairwise([0, *ends])):
            answer: Answer = {"labels": labels[start:stop][: wanted.top]}
            if wanted.probabilities:
                descending = (-block[row]).argsort(kind="stable")
                answer["probabilities"] = {names[j]: round(float(block[row, j]), 6) for j in descending}
            yield answer


def _highest(block: np.ndarray, number: int) -> np.ndarray:
    """Mark the `number` highest values of each row, and all that equal the last of them; bool [n, L]."""
    if number >= block.shape[1]:
        return np.ones(block.shape, dtype=bool)
    last = np.partition(block, -number, axis=1)[:, -number]
    reached: np.ndarray = block >= last[:, None]
    return reached


class CsvAnswers:
    """Answers as CSV, for spreadsheets: a row a text, its labels in one cell as our own readers take them.

    Args:
        names: of all labels.
        ids: whether answers have an id.
        probabilities: whether they have the probability of every label, which gets a column each.
        skipped: whether some say why they are none.
        shown: whether the rows go to a terminal, where cells are made `printable`; programs get them as they are.

    Example:
        >>> rows = CsvAnswers(["a", "b; c"], ids=True)
        >>> print(rows.header() + rows.lines([{"id": 7, "labels": ["b; c", "a"]}]), end="")
        id,labels
        7,b; c | a
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        ids: bool = False,
        probabilities: bool = False,
        skipped: bool = False,
        shown: bool = False,
    ) -> None:
        self.separator = _separator(names)
        self._ids, self._skipped, self._shown = ids, skipped, shown
        self._names = names if probabilities else ()
        self.formulas = 0  # ids that a spreadsheet would take for one

    def header(self) -> str:
        """Return the names of the columns, as a row."""
        probabilities = [f"probability of {name}" for name in self._names]
        return self._line([*["id"] * self._ids, "labels", *probabilities, *["skipped"] * self._skipped])

    def lines(self, answers: Iterable[Answer]) -> str:
        """Return a row for each of some answers."""
        return "".join(self._line(self._cells(answer)) for answer in answers)

    def _cells(self, answer: dict[str, Any]) -> list[object]:
        labels, probabilities = answer["labels"] or [], answer.get("probabilities", {})
        if not labels:
            joined = ""
        elif self.separator is None:
            joined = json.dumps(labels, ensure_ascii=False)
        else:
            joined = self.separator.join(labels)
        cells: list[object] = [answer.get("id", "")] * self._ids
        self.formulas += any(isinstance(cell, str) and cell.startswith(FORMULA) for cell in cells)
        cells += [joined, *(probabilities.get(name, "") for name in self._names)]
        return [*cells, answer.get("skipped", "")] if self._skipped else cells

    def _line(self, cells: list[object]) -> str:
        if self._shown:
            cells = [printable(cell) if isinstance(cell, str) else cell for cell in cells]
        # With both characters in the line's end a cell that holds either is quoted, in every version of Python.
        row = StringIO()
        csv.writer(row, lineterminator="\r\n").writerow(cells)
        return row.getvalue().removesuffix("\r\n") + "\n"


def _separator(names: Sequence[str]) -> str | None:
    """Return a separator that occurs in no label name; `None` where only a list as JSON is safe.

    A list is needed where a name begins as a list or a formula does, or has blanks around it that readers would strip.
    """
    if any(name.startswith(("[", *FORMULA)) or name != name.strip() for name in names):
        return None
    free = [mark for mark in SEPARATORS if not mark.isspace() and not any(mark in name for name in names)]
    return {";": "; ", "|": " | ", ",": ", "}[free[0]] if free else None


def require(form: Form) -> None:
    """Raise `ImportError` if a library for the format is not installed: before the work, not after."""
    if form == "parquet":
        _import_pyarrow()


@contextmanager
def part_writer(file: BinaryIO, form: Form) -> Iterator[Callable[[list[Answer]], None]]:
    """Open a writer of answers, some at a time, to one file; the file itself stays open.

    In Parquet the columns are the fields of the JSON lines: `labels` a list, `probabilities`, if any, a map. Ids, if
    any, are strings there: a later row may have one where all before had numbers.
    """
    if form == "jsonl":

        def write_lines(answers: list[Answer]) -> None:
            file.write("".join(f"{printable_json(answer)}\n" for answer in answers).encode())

        yield write_lines
        return
    pyarrow = _import_pyarrow()
    writer: Any = None

    def write_rows(answers: list[Answer]) -> None:
        nonlocal writer
        if writer is None:  # the first answer says which columns there are
            fields = {"id": pyarrow.string()} if "id" in answers[0] else {}
            fields["labels"] = pyarrow.list_(pyarrow.string())
            if "probabilities" in answers[0]:
                fields["probabilities"] = pyarrow.map_(pyarrow.string(), pyarrow.float64())
            writer = pyarrow.parquet.ParquetWriter(file, pyarrow.schema(fields))
        rows = [{**answer, "id": str(answer["id"])} if "id" in answer else answer for answer in answers]
        writer.write_table(pyarrow.Table.from_pylist(rows, schema=writer.schema))

    yield write_rows
    if writer is not None:
        writer.close()


def _import_pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError(f"writing Parquet needs pyarrow: {install_hint('data')}") from None
    return pyarrow
