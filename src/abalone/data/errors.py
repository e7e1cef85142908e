"""The one error of the data layer: what is wrong, where, and what to do about it."""

from pathlib import Path


class DataError(ValueError):
    """Data that cannot be used as it is.

    The message reads `file:line: reason` followed by a hint, with whatever of these is known.
    """

    def __init__(
        self, reason: str, *, path: str | Path | None = None, line: int | None = None, hint: str | None = None
    ) -> None:
        self.reason, self.path, self.line, self.hint = reason, path, line, hint
        where = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(f"{where}{reason}" + (f"\n  {hint}" if hint else ""))
