"""What the server writes to its log."""

import logging
import sys
from typing import TextIO

access = logging.getLogger("abalone.access")  # silent unless it is asked for

SAME = 5  # lines of one kind that are written within the time
SECONDS = 60.0
KINDS = 1000  # to remember; some libraries make a new one of every line


class Sparing(logging.Filter):
    """Leaves out lines of a kind that has just been written often, and says later how many.

    Errors of the server keep their line, which has the id that the client was given; only their tracebacks go.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write it."""
        kind = (record.name, str(record.msg).partition("\n")[0])
        since, lines = self._seen.get(kind, (record.created, 0))
        if record.created - since >= SECONDS:
            if lines > SAME:
                record.msg = f"{record.getMessage()} (and {lines - SAME:,} lines like this one, left out before)"
                record.args = ()
            since, lines = record.created, 0
        if len(self._seen) >= KINDS:
            self._seen.clear()
        self._seen[kind] = (since, lines + 1)
        if lines < SAME:
            return True
        record.exc_info = record.exc_text = None
        return record.levelno >= logging.ERROR and record.name.startswith("abalone")


def write_log() -> None:
    """Write warnings and errors to standard error."""
    handler = logging.StreamHandler()
    handler.addFilter(Sparing())
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING, handlers=[handler])


class _AccessLines(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # its name in the library
        """Write no more: who read the lines has gone, and requests go on."""
        access.disabled = True
        logging.getLogger("abalone.serving").warning("the access log ends: it cannot be written")


def write_access_log() -> None:
    """Write a line of JSON for every request to standard output."""
    access.handlers = [_AccessLines(sys.stdout)]
    access.propagate = access.disabled = False
    access.setLevel(logging.INFO)
