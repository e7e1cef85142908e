"""Bad rows: raised at the first, listed in a report, or answered in their places."""

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from abalone.data.rows import Row
from abalone.data.tables import BadRow
from abalone.errors import DataError
from abalone.files.atomic import written_whole


def usable(rows: Iterable[Row | BadRow]) -> Iterator[Row]:
    """Return rows up to the first that cannot be used, whose error is raised."""
    for row in rows:
        if isinstance(row, BadRow):
            raise row.error()
        yield row


class BadRows:
    """Take the bad rows of training data: raise at the first, or list them.

    Args:
        report: where to write the rows left out, as JSON Lines; `None` to stop at the first.

    Use it as a context: the report appears under its name when the context ends well, or not at all.
    """

    def __init__(self, report: Path | None) -> None:
        self.report, self.count, self.lines = report, 0, 0
        self._files = ExitStack()
        self._file: BinaryIO | None = None
        self._copy: BinaryIO | None = None

    def copied_to(self, copy: BinaryIO) -> "BadRows":
        """Write a copy of the report to a file, to be taken from when the same data is read again."""
        self._copy = copy
        return self

    @property
    def counted(self) -> str:
        """Return how many rows were left out, and how many lines where a broken quote took more than one."""
        return f"{self.count}" + (f" ({self.lines:,} lines)" if self.lines > self.count else "")

    def reject(self, row: BadRow) -> None:
        """Leave out a row, or raise `DataError` where rows may not be left out."""
        if self.report is None:
            raise row.error()
        self.count, self.lines = self.count + 1, self.lines + row.lines
        self._file = self._file or self._open(self.report)
        entry = {"file": str(row.path), "line": row.line, "reason": row.reason, "row": row.source.rstrip("\r\n")}
        if row.lines > 1:
            entry["lines"] = row.lines
        line = _json_line(entry)
        self._file.write(line)
        if self._copy is not None:
            self._copy.write(line)

    def take_from(self, report: Iterable[bytes]) -> None:
        """Leave out the rows that the report says were left out when the same data was read before."""
        if self.report is not None:
            self._file = self._open(self.report)
            for line in report:
                self.count, self.lines = self.count + 1, self.lines + json.loads(line).get("lines", 1)
                self._file.write(line)

    def _open(self, report: Path) -> BinaryIO:
        try:
            return self._files.enter_context(written_whole(report))
        except OSError as error:
            raise DataError(
                f"the list of rows left out cannot be written: {error.strerror}",
                path=report,
                hint=f"Get the right to write in {report.parent}, or copy the data to a folder where you have it. "
                "From Python, skip_bad_rows may also be the name of another file.",
            ) from error

    def __enter__(self) -> "BadRows":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)


class Skipped:
    """Put the bad rows among texts to label aside, so that the others can be answered.

    Example:
        >>> skipped = Skipped()
        >>> rows = list(skipped.usable([Row("one"), BadRow("a.csv", 3, "no text"), Row("three")]))
        >>> [answer["labels"] for answer in skipped.in_place({"labels": [row.text]} for row in rows)]
        [['one'], None, ['three']]
    """

    def __init__(self) -> None:
        self.rows: dict[int, BadRow] = {}  # by the number of the row among all, from 1
        self._read = self._answered = 0

    def usable(self, rows: Iterable[Row | BadRow]) -> Iterator[Row]:
        """Return those of some more rows that can be used."""
        for row in rows:
            self._read += 1
            if isinstance(row, BadRow):
                self.rows[self._read] = row._replace(source="")  # which may be long, and is in the input
            else:
                yield row

    def in_place(self, answers: Iterable[dict[str, object]]) -> Iterator[dict[str, object]]:
        """Return the answers to some more texts, and one to each row put aside before, between or after them.

        So there is an answer a row: whoever sets rows and answers side by side sees what belongs together.
        """
        for answer in answers:
            yield from self._due()
            self._answered += 1
            yield answer
        yield from self._due()

    def _due(self) -> Iterator[dict[str, object]]:
        while row := self.rows.get(self._answered + 1):
            self._answered += 1
            yield {**_id_of(row), "labels": None, "skipped": f"{row.path}:{row.line}: {row.reason}"}

    def write(self, path: Path) -> None:
        """List the rows as JSON Lines, with their numbers among all, and their ids where they have any."""
        with written_whole(path) as file:
            for number, row in self.rows.items():
                place = {"number": number, "file": str(row.path), "line": row.line}
                file.write(_json_line({**_id_of(row), **place, "reason": row.reason}))


def _id_of(row: BadRow) -> dict[str, object]:
    return {} if row.id is None else {"id": row.id}


def _json_line(entry: dict[str, object]) -> bytes:
    # Bytes that are not UTF-8 are lone surrogates here; escaped with a backslash they are JSON again.
    return f"{json.dumps(entry, ensure_ascii=False)}\n".encode(errors="backslashreplace")
