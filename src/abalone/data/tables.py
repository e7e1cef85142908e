"""Tables: records with named columns, and the readers of CSV, TSV, JSON Lines and JSON."""

import csv
import json
import re
import sys
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple

from abalone.data.streams import open_text
from abalone.errors import DataError, spelled

PEEK = 1000  # rows that are looked at to learn the columns of a table that does not name them


_UNDECODABLE = re.compile("[\udc80-\udcff]")
_UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")  # its byte-order marks, as bytes that could not be decoded
_BROKEN_QUOTES = "Write a quote that belongs to a text twice, remove one that does not"
_SPACE = re.compile(r"\s*")

# A quoted text that runs over many lines is taken for rows behind a stray quote where 9 of 10 lines have as many
# columns as the header. Of rows, all do. Of the bundled abstracts, wrapped at 40 to 100 characters, at most 66 % of 50
# lines on end do where there are two columns, and 36 % where there are three.
SWALLOWED = 50  # lines
ALIKE = 0.9
_LOOKED_AT = frozenset(1 + (SWALLOWED << power) for power in range(32))  # so that each line is, twice at most


class Record(NamedTuple):
    """A row of a table as it stands there: the line (or row number) it starts at, and its values by column."""

    line: int
    values: Mapping[str, object]
    source: str = ""  # as it stands in the file, where that is text


class CsvRow(NamedTuple):
    """Fields that belong together, none for an empty line."""

    line: int  # the first
    fields: list[str]
    source: str


class BadRow(NamedTuple):
    """A row that cannot be used: where it is, and why.

    Args:
        path: of the file, or the name of the dataset.
        line: the first.
        reason: what is wrong.
        source: the row as it stands in the file.
        hint: what to do; by default what can be done about any row.
        lines: of the file.
        id: of the row, where it has one.
    """

    path: str | Path
    line: int
    reason: str
    source: str = ""
    hint: str | None = None
    lines: int = 1
    id: str | int | None = None

    def error(self) -> DataError:
        """Return the error to raise where bad rows are not left out."""
        hint = self.hint or or_leave_out("Fix the row")
        return DataError(self.reason, path=self.path, line=self.line, hint=hint)


def or_leave_out(fix: str) -> str:
    """Return what to do about a row that cannot be used: to fix it, or not to use it."""
    return f"{fix}, or leave out such rows with {spelled('skip_bad_rows', True)}."


class Table(ABC):
    """Records with named columns, which can be read more than once.

    Args:
        name: how messages call it: the path of a file.
        split: the split that all its rows belong to, where that is known.
    """

    format: str

    def __init__(self, name: str | Path, split: str | None = None) -> None:
        self.name, self.split = name, split

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns; none where the table is empty."""

    @abstractmethod
    def records(self, columns: Collection[str] | None = None) -> Iterator[Record | BadRow]:
        """Read the table; at least `columns` have to be in each row (all by default)."""


class TextTable(Table):
    """A table in a text file, plain or compressed.

    Args:
        path: of the file.
        split: as for every table.
        format: where there are several, such as `tsv`.
        encoding: UTF-8 by default.
    """

    def __init__(
        self,
        path: Path,
        split: str | None = None,
        *,
        format: str | None = None,  # noqa: A002
        encoding: str | None = None,
    ) -> None:
        super().__init__(path, split)
        self.path, self.format, self.encoding = path, format or self.format, encoding


class CsvTable(TextTable):
    """Comma- or tab-separated values with a header, quoted as in RFC 4180."""

    format = "csv"

    @cached_property
    def delimiter(self) -> str:
        """Return the separator of the header: spreadsheets write `;` where the comma is the decimal mark."""
        if self.format == "tsv":
            return "\t"
        with open_text(self.path, encoding=self.encoding) as stream:
            header = next((line for line in stream if not line.isspace()), "")
        return "," if "," in header else max(";", "\t", ",", key=header.count)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Return the header."""
        header = next(self._rows(), None)
        if header is None:
            return ()
        if isinstance(header, BadRow):
            raise DataError(f"header: {header.reason}", path=self.path, line=header.line, hint=header.hint)
        names = [name.strip() for name in header.fields]
        if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
            raise DataError(f"duplicate columns in the header: {', '.join(repeated)}", path=self.path, line=header.line)
        return tuple(names)

    def records(self, columns: Collection[str] | None = None) -> Iterator[Record | BadRow]:
        """Yield every record."""
        for row in islice(self._rows(), 1, None):
            if isinstance(row, BadRow):
                yield row
            elif len(row.fields) == len(self.columns):
                yield Record(row.line, dict(zip(self.columns, row.fields, strict=True)), row.source)
            else:
                reason = f"{len(row.fields)} columns where the header has {len(self.columns)}"
                yield BadRow(self.path, row.line, reason, row.source)

    def _rows(self) -> Iterator[CsvRow | BadRow]:
        """Yield the rows that can be read, without empty lines, and those that cannot."""
        with open_text(self.path, newline="", encoding=self.encoding) as stream:
            for row in csv_rows(stream, self.delimiter, self.path):
                if found := undecodable(row.source, self.encoding):
                    reason, hint = found
                    yield BadRow(self.path, row.line, reason, row.source, hint)
                elif isinstance(row, BadRow) or row.fields:
                    yield row


class _StrayQuoteError(Exception):
    """The lines of a quoted text look like rows."""


def csv_rows(stream: Iterator[str], delimiter: str, path: Path) -> Iterator[CsvRow | BadRow]:
    """Read the rows of a file with quotes as in RFC 4180; a row may span lines.

    Rows that a stray quote has swallowed are read as rows: all that is lost is the one with the quote.

    Args:
        stream: the lines; the first row says how many columns there are.
        delimiter: between fields.
        path: of the file.
    """
    taken: list[str] = []  # the lines of the row at hand
    again: deque[str] = deque()  # lines that were taken and did not belong to it
    line, width = 1, 0

    def lines() -> Iterator[str]:
        while following := again.popleft() if again else next(stream, ""):
            taken.append(following)
            if len(taken) in _LOOKED_AT and sum(_like_rows(taken[1:], delimiter, width)) >= ALIKE * (len(taken) - 1):
                raise _StrayQuoteError  # now: the text might go on to the end of the file, and fill the memory
            yield following

    # The largest limit that every platform takes; the default cuts off at 128 kB a field.
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))
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
            yield BadRow(path, line, reason, "".join(taken[:own]), or_leave_out(_BROKEN_QUOTES), own)
            line += own
            reader = csv.reader(lines(), delimiter=delimiter, strict=True)
            continue
        yield CsvRow(line, fields, "".join(taken))
        line, width = line + len(taken), width or len(fields)


def _first_rows(taken: Sequence[str], delimiter: str, width: int) -> int:
    """Return where so many lines begin that look like rows, after the first; how many lines there are if nowhere."""
    alike = [False, *_like_rows(taken[1:], delimiter, width)]
    before = [0, *accumulate(alike)]  # of each line
    for start in range(1, len(taken) - SWALLOWED + 1):
        if alike[start] and before[start + SWALLOWED] - before[start] >= ALIKE * SWALLOWED:
            return start
    return len(taken)


def _like_rows(lines: Iterable[str], delimiter: str, width: int) -> Iterator[bool]:
    """Yield whether each line is a whole row; where there is one column, every line would be, which tells nothing."""
    for line in lines:
        try:
            yield width > 1 and len(next(csv.reader([line], delimiter=delimiter, strict=True))) == width
        except csv.Error:
            yield False


class JsonTable(TextTable):
    """JSON objects: one a line, or the items of one list."""

    format = "jsonl"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Return the fields of the first rows, in order of appearance."""
        peeked = list(islice(self.records(), PEEK))
        fields = dict.fromkeys(name for row in peeked if isinstance(row, Record) for name in row.values)
        if not fields and peeked and isinstance(first := peeked[0], BadRow):
            raise DataError(first.reason, path=self.path, line=first.line, hint=first.hint)
        return tuple(fields)

    def records(self, columns: Collection[str] | None = None) -> Iterator[Record | BadRow]:
        """Yield every record."""
        with open_text(self.path, encoding=self.encoding) as stream:
            # Many a .json file holds JSON Lines.
            if self.format == "json" and (start := stream.read(64)).lstrip().startswith("["):
                yield from self._items(start + stream.read())
                return
        with open_text(self.path, encoding=self.encoding) as stream:
            for line, source in enumerate(stream, start=1):
                if not source.isspace():
                    yield self._record(line, source.rstrip("\n"))

    def _items(self, text: str) -> Iterator[Record | BadRow]:
        """Yield the objects of a JSON list, decoded one by one so that each has its line."""
        decoder = json.JSONDecoder()
        position, line, counted = _past_space(text, text.index("[") + 1), 1, 0
        if text[position : position + 1] == "]":
            return
        while True:
            line, counted = line + text.count("\n", counted, position), position
            try:
                _, end = decoder.raw_decode(text, position)
            except (ValueError, RecursionError) as error:
                at = line
                if isinstance(error, json.JSONDecodeError):
                    at += text.count("\n", counted, error.pos)
                raise DataError(f"not JSON: {_fault(error)}", path=self.path, line=at) from error
            yield self._record(line, text[position:end])
            position = _past_space(text, end)
            match text[position : position + 1]:
                case ",":
                    position = _past_space(text, position + 1)
                case "]" if not text[position + 1 :].strip():
                    return
                case mark:
                    at = line + text.count("\n", counted, position)
                    found = f"found {mark!r}" if mark else "the file ends"
                    raise DataError(f"not JSON: expected ',' or the closing ']', {found}", path=self.path, line=at)

    def _record(self, line: int, source: str) -> Record | BadRow:
        if found := undecodable(source, self.encoding):
            reason, hint = found
            return BadRow(self.path, line, reason, source, hint)
        try:
            values = json.loads(source)
        except (ValueError, RecursionError) as error:
            where = f" at position {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
            return BadRow(self.path, line, f"not JSON: {_fault(error).removesuffix(' at')}{where}", source)
        if not isinstance(values, dict):
            return BadRow(self.path, line, f"expected a JSON object, found {type(values).__name__}", source)
        return Record(line, values, source)


def undecodable(source: str, encoding: str | None = None) -> tuple[str, str] | None:
    """Return why a row is not of its encoding (UTF-8 by default), and what to do; None where it is."""
    if source.isascii() or not (match := _UNDECODABLE.search(source)):
        return None
    if encoding is None and source.startswith(_UTF_16):
        return "UTF-16, where UTF-8 is expected", f"Pass {spelled('encoding', 'utf-16')}."
    byte, before = ord(match.group()) - 0xDC00, source[: match.start()]
    position = 1 + (len(before.encode()) if encoding is None else len(before))
    hint = (
        f"If the whole file is in another encoding, name it: {spelled('encoding', 'cp1252')} for most files from "
        "Windows, or 'latin-1', 'utf-16' … If it is this row alone, fix it"
    )
    return f"byte 0x{byte:02x} at position {position} of the row is not {encoding or 'UTF-8'}", or_leave_out(hint)


def lone_surrogate(text: str) -> str | None:
    """Return what to say of the first lone surrogate, if there is one: JSON can escape half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"has half a surrogate pair at position {error.start + 1}"
    return None


def _fault(error: Exception) -> str:
    """Return the JSON decoder's finding, without its advice to programmers."""
    match error:
        case json.JSONDecodeError():
            return error.msg
        case RecursionError():
            return "lists or objects are nested too deeply"
        case _:
            return f"a number of more than {sys.get_int_max_str_digits()} digits"


def _past_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
