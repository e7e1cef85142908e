"""Rows without a text among those that are answered: put aside, and told of in their places or in a list."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from abalone.data.unlabelled import Found
from abalone.files.cache import written_whole
from abalone.files.errors import DataError


class Skipped:
    """Puts aside the rows that have no text, so that the others can be answered.

    Example:
        >>> skipped = Skipped()
        >>> texts = list(skipped.texts(["one", DataError("no text", path="a.csv", line=3), "three"]))
        >>> [answer["labels"] for answer in skipped.in_place({"labels": [text]} for text in texts)]
        [['one'], None, ['three']]
    """

    def __init__(self) -> None:
        self.errors: dict[int, DataError] = {}  # by the number of the row among all, from 1
        self._read = self._answered = 0

    def texts(self, rows: Iterable[Found]) -> Iterator[str]:
        """The texts of some more rows."""
        for row in rows:
            self._read += 1
            if isinstance(row, str):
                yield row
            else:
                self.errors[self._read] = row

    def in_place(self, answers: Iterable[dict[str, object]]) -> Iterator[dict[str, object]]:
        """The answers to some more texts, and one to each row that was put aside before, between or after them.

        So there is an answer a row: whoever sets rows and answers side by side sees what belongs together.
        """
        for answer in answers:
            yield from self._due()
            self._answered += 1
            yield answer
        yield from self._due()

    def _due(self) -> Iterator[dict[str, object]]:
        while error := self.errors.get(self._answered + 1):
            self._answered += 1
            yield {**_id_of(error), "labels": None, "skipped": f"{error.path}:{error.line}: {error.reason}"}

    def write(self, path: Path) -> None:
        """List the rows as JSON Lines, with their numbers among all, and their ids where they have any."""
        with written_whole(path) as file:
            for number, error in self.errors.items():
                place = {"number": number, "file": str(error.path), "line": error.line}
                entry = {**_id_of(error), **place, "reason": error.reason}
                file.write(f"{json.dumps(entry, ensure_ascii=False)}\n".encode(errors="backslashreplace"))


def _id_of(error: DataError) -> dict[str, object]:
    return {} if error.row_id is None else {"id": error.row_id}
