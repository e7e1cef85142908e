"""The one error of the data layer: what is wrong, where, and what to do about it."""

from pathlib import Path

LONGEST = 800  # characters of a reason or a hint: files can hold column names of a megabyte


class DataError(ValueError):
    """Data that cannot be used as it is.

    The message reads `file:line: reason` followed by a hint, with whatever of these is known.

    Args:
        reason: what is wrong.
        path: of the file.
        line: in it.
        hint: what to do.
        row_id: of the row, where rows have ids: for whoever answers row by row.
    """

    def __init__(
        self,
        reason: str,
        *,
        path: str | Path | None = None,
        line: int | None = None,
        hint: str | None = None,
        row_id: str | int | None = None,
    ) -> None:
        self.reason, self.path, self.line, self.hint, self.row_id = reason, path, line, hint, row_id
        where = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(readable(where) + readable(reason) + (f"\n  {readable(hint)}" if hint else ""))


def readable(text: str, longest: int = LONGEST) -> str:
    """What a message may quote of a file: cut where it is long, and `printable`."""
    return _cut(printable(_cut(text, longest)), longest)


def printable(text: str) -> str:
    r"""A text with nothing in it that a terminal would obey, such as colours, bells and writing backwards.

    >>> printable("a \x1b[31mred label")
    'a \\x1b[31mred label'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest * 3 // 4]} … {text[-longest // 4 :]}"
