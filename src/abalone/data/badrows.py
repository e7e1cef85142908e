"""Rows that cannot be used: an error at the first, or a file of all that were left out."""

import json
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from abalone.files.cache import written_whole
from abalone.files.errors import DataError

HINT = "Fix the row, or leave out such rows with skip_bad_rows=True."


class BadRows:
    """Takes every row that cannot be used.

    Args:
        report: where to write the rows left out, as JSON Lines; `None` to stop at the first.

    Use it as a context: the report appears under its name when the context ends well, or not at all.
    """

    def __init__(self, report: Path | None) -> None:
        self.report, self.count, self.lines = report, 0, 0
        self._files = ExitStack()
        self._file: BinaryIO | None = None

    @property
    def counted(self) -> str:
        """How many rows were left out, and how many lines of the files where a broken quote took more than one."""
        return f"{self.count}" + (f" ({self.lines:,} lines)" if self.lines > self.count else "")

    def reject(
        self, name: str | Path, line: int, reason: str, source: str, hint: str | None = None, lines: int = 1
    ) -> None:
        """Leave out a row, which may span `lines`, or raise `DataError` where rows may not be left out."""
        if self.report is None:
            raise DataError(reason, path=name, line=line, hint=hint or HINT)
        self.count, self.lines = self.count + 1, self.lines + lines
        self._file = self._file or self._open(self.report)
        entry = {"file": str(name), "line": line, "reason": reason, "row": source.rstrip("\r\n")}
        if lines > 1:
            entry["lines"] = lines
        # Bytes that are not UTF-8 are lone surrogates here; escaped with a backslash they are JSON again.
        self._file.write(f"{json.dumps(entry, ensure_ascii=False)}\n".encode(errors="backslashreplace"))

    def take_from(self, listed: Path) -> None:
        """Leave out the rows that were left out, and listed, when the same data was read before."""
        if self.report is not None:
            self._file = self._open(self.report)
            with listed.open("rb") as lines:
                for line in lines:
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
