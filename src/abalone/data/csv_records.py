"""The records of a CSV file, and where a stray quote has swallowed some of them."""

import csv
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

# A quoted text that runs over many lines is taken for rows behind a stray quote where 9 of 10 lines have as many
# columns as the header. Of rows, all do. Of the bundled abstracts, wrapped at 40 to 100 characters, at most 66 % of 50
# lines on end do where there are two columns, and 36 % where there are three.
SWALLOWED = 50  # lines
ALIKE = 0.9
_LOOKED_AT = frozenset(1 + (SWALLOWED << power) for power in range(32))  # so that each line is, twice at most


class Record(NamedTuple):
    """Fields that belong together, none for an empty line.

    Args:
        line: the first.
        fields: their texts.
        source: as it stands in the file.
    """

    line: int
    fields: list[str]
    source: str


class BrokenRecord(NamedTuple):
    """Lines that make no record.

    Args:
        line: the first.
        reason: what is wrong.
        source: as it stands in the file.
        lines: how many.
    """

    line: int
    reason: str
    source: str
    lines: int


class _StrayQuoteError(Exception):
    """The lines of a quoted text look like rows."""


def csv_records(stream: Iterator[str], delimiter: str) -> Iterator[Record | BrokenRecord]:
    """Read the records of a file with quotes as in RFC 4180; a record may span lines.

    Rows that a stray quote has swallowed are read as rows: all that is lost is the one with the quote.

    Args:
        stream: the lines; the first record says how many columns there are.
        delimiter: between fields.
    """
    taken: list[str] = []  # the lines of the record at hand
    again: deque[str] = deque()  # lines that were taken and did not belong to it
    line, width = 1, 0

    def lines() -> Iterator[str]:
        while following := again.popleft() if again else next(stream, ""):
            taken.append(following)
            if len(taken) in _LOOKED_AT and sum(_like_rows(taken[1:], delimiter, width)) >= ALIKE * (len(taken) - 1):
                raise _StrayQuoteError  # now: the text might go on to the end of the file, and fill the memory
            yield following

    # Strict: otherwise a stray quote swallows all lines up to the next one without a word.
    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    while True:
        taken.clear()
        try:
            fields = next(reader)
        except StopIteration:
            return
        except (csv.Error, _StrayQuoteError) as error:
            own = _first_rows(taken, delimiter, width)
            if own < len(taken):
                reason = "broken quotes: a quoted text begins here and does not end before lines that look like rows"
            else:
                reason = f"broken quotes: {error}" + (f" ({own:,} lines from here on are lost)" if own > 1 else "")
            again.extendleft(reversed(taken[own:]))
            yield BrokenRecord(line, reason, "".join(taken[:own]), own)
            line += own
            reader = csv.reader(lines(), delimiter=delimiter, strict=True)
            continue
        yield Record(line, fields, "".join(taken))
        line, width = line + len(taken), width or len(fields)


def _first_rows(taken: Sequence[str], delimiter: str, width: int) -> int:
    """Where, after the first of these lines, so many begin that look like rows; how many lines there are if nowhere."""
    alike = [False, *_like_rows(taken[1:], delimiter, width)]
    before = [0, *accumulate(alike)]  # of each line
    for start in range(1, len(taken) - SWALLOWED + 1):
        if alike[start] and before[start + SWALLOWED] - before[start] >= ALIKE * SWALLOWED:
            return start
    return len(taken)


def _like_rows(lines: Iterable[str], delimiter: str, width: int) -> Iterator[bool]:
    """Whether each line is a whole row; where there is one column, every line would be, which tells nothing."""
    for line in lines:
        try:
            yield width > 1 and len(next(csv.reader([line], delimiter=delimiter, strict=True))) == width
        except csv.Error:
            yield False
