"""Answers as CSV, for spreadsheets: a row a text, its labels in one cell as our own readers take them."""

import csv
import json
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Any

from abalone.data.labels import SEPARATORS
from abalone.files.errors import printable
from abalone.inference.answers import Answer

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a cell begins with that a spreadsheet computes


class CsvAnswers:
    """Turns answers into rows of CSV.

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
        """The names of the columns."""
        probabilities = [f"probability of {name}" for name in self._names]
        return self._line([*["id"] * self._ids, "labels", *probabilities, *["skipped"] * self._skipped])

    def lines(self, answers: Iterable[Answer]) -> str:
        """A row for each of some answers."""
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
    """What stands between labels in a cell: in none of their names; `None` where only a list as JSON is safe.

    It is where a name begins as a list or a formula does, or has blanks around it that readers would take away.
    """
    if any(name.startswith(("[", *FORMULA)) or name != name.strip() for name in names):
        return None
    free = [mark for mark in SEPARATORS if not mark.isspace() and not any(mark in name for name in names)]
    return {";": "; ", "|": " | ", ",": ", "}[free[0]] if free else None
