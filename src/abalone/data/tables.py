"""Tables in text files: rows of CSV, TSV, JSON Lines and JSON, each with the line it starts at."""

import csv
import json
import re
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from abalone.data.csv_records import BrokenRecord, Record, csv_records
from abalone.data.files import open_text
from abalone.files.errors import DataError

PEEK = 1000  # rows that are looked at to learn the columns of a table that does not name them
_UNDECODABLE = re.compile("[\udc80-\udcff]")
_UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")  # its byte-order marks, as bytes that could not be decoded
_OTHER_ENCODING = (
    "If the whole file is in another encoding, name it: encoding='cp1252' for most files from Windows, or 'latin-1', "
    "'utf-16' … If it is this row alone, fix it, or leave out such rows with skip_bad_rows=True."
)
_BROKEN_QUOTES = (
    "Write a quote that belongs to a text twice, remove one that does not, or leave out such rows with "
    "skip_bad_rows=True."
)
_SPACE = re.compile(r"\s*")


class Row(NamedTuple):
    """A row that could be read: the line (or row number) it starts at, and its values by column."""

    line: int
    values: Mapping[str, object]
    source: str = ""  # as it stands in the file, where that is text


class BadRow(NamedTuple):
    """A row that could not be read, and why."""

    line: int
    reason: str
    source: str
    hint: str | None = None  # what to do; by default what can be done about any row
    lines: int = 1  # of the file


class Table(ABC):
    """Rows with named columns, which can be read more than once.

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
        """Names of the columns; none where the table is empty."""

    @abstractmethod
    def rows(self, columns: Collection[str] | None = None) -> Iterator[Row | BadRow]:
        """Read the table; at least `columns` have to be in each row (all by default)."""


class CsvTable(Table):
    """Comma- or tab-separated values with a header, quoted as in RFC 4180."""

    def __init__(
        self,
        path: Path,
        split: str | None = None,
        *,
        format: str = "csv",  # noqa: A002
        encoding: str | None = None,
    ) -> None:
        super().__init__(path, split)
        self.path, self.format, self.encoding = path, format, encoding
        # The largest limit that every platform takes; the default cuts off at 128 kB a field.
        csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))

    @cached_property
    def delimiter(self) -> str:
        """The separator of the header: spreadsheets write `;` where the comma is the decimal mark."""
        if self.format == "tsv":
            return "\t"
        with open_text(self.path, encoding=self.encoding) as stream:
            header = next((line for line in stream if not line.isspace()), "")
        return "," if "," in header else max(";", "\t", ",", key=header.count)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The header."""
        header = next(self._records(), None)
        if header is None:
            return ()
        if isinstance(header, BadRow):
            raise DataError(f"header: {header.reason}", path=self.path, line=header.line, hint=header.hint)
        names = [name.strip() for name in header.fields]
        if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
            raise DataError(f"duplicate columns in the header: {', '.join(repeated)}", path=self.path, line=header.line)
        return tuple(names)

    def rows(self, columns: Collection[str] | None = None) -> Iterator[Row | BadRow]:
        """Every record after the header."""
        for record in islice(self._records(), 1, None):
            if isinstance(record, BadRow):
                yield record
                continue
            line, fields, source = record
            if len(fields) == len(self.columns):
                yield Row(line, dict(zip(self.columns, fields, strict=True)), source)
            else:
                reason = f"{len(fields)} columns where the header has {len(self.columns)}"
                yield BadRow(line, reason, source)

    def _records(self) -> Iterator[Record | BadRow]:
        """The records that can be read, without empty lines, and those that cannot."""
        with open_text(self.path, newline="", encoding=self.encoding) as stream:
            for record in csv_records(stream, self.delimiter):
                if bad := _undecodable_row(record.line, record.source, self.encoding):
                    yield bad
                elif isinstance(record, BrokenRecord):
                    yield BadRow(record.line, record.reason, record.source, _BROKEN_QUOTES, record.lines)
                elif record.fields:
                    yield record


class JsonTable(Table):
    """JSON objects: one a line, or the items of one list."""

    def __init__(
        self,
        path: Path,
        split: str | None = None,
        *,
        format: str = "jsonl",  # noqa: A002
        encoding: str | None = None,
    ) -> None:
        super().__init__(path, split)
        self.path, self.format, self.encoding = path, format, encoding

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The fields of the first rows, in order of appearance."""
        peeked = list(islice(self.rows(), PEEK))
        fields = dict.fromkeys(name for row in peeked if isinstance(row, Row) for name in row.values)
        if not fields and peeked and isinstance(first := peeked[0], BadRow):
            raise DataError(first.reason, path=self.path, line=first.line, hint=first.hint)
        return tuple(fields)

    def rows(self, columns: Collection[str] | None = None) -> Iterator[Row | BadRow]:
        """Every object."""
        with open_text(self.path, encoding=self.encoding) as stream:
            # Many a .json file holds JSON Lines.
            if self.format == "json" and (start := stream.read(64)).lstrip().startswith("["):
                yield from self._items(start + stream.read())
                return
        with open_text(self.path, encoding=self.encoding) as stream:
            for line, source in enumerate(stream, start=1):
                if not source.isspace():
                    yield self._row(line, source.rstrip("\n"))

    def _items(self, text: str) -> Iterator[Row | BadRow]:
        """The objects of a JSON list, decoded one by one so that each has its line."""
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
            yield self._row(line, text[position:end])
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

    def _row(self, line: int, source: str) -> Row | BadRow:
        return _undecodable_row(line, source, self.encoding) or _row(line, source)


class UndecodableError(ValueError):
    """Bytes that are not of the encoding that was expected; `hint` says what to do."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.hint = hint


def refuse_undecodable(source: str, encoding: str | None = None) -> None:
    """Raise where a row has a byte that is not of the encoding, by default UTF-8."""
    if source.isascii() or not (match := _UNDECODABLE.search(source)):
        return
    if encoding is None and source.startswith(_UTF_16):
        raise UndecodableError("UTF-16, where UTF-8 is expected", "Pass encoding='utf-16'.")
    byte, before = ord(match.group()) - 0xDC00, source[: match.start()]
    position = 1 + (len(before.encode()) if encoding is None else len(before))
    reason = f"byte 0x{byte:02x} at position {position} of the row is not {encoding or 'UTF-8'}"
    raise UndecodableError(reason, _OTHER_ENCODING)


def _undecodable_row(line: int, source: str, encoding: str | None) -> BadRow | None:
    try:
        refuse_undecodable(source, encoding)
    except UndecodableError as error:
        return BadRow(line, str(error), source, error.hint)
    return None


def half_character(text: str) -> str | None:
    """What to say of the first lone surrogate, if there is one: JSON can escape half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"has half a surrogate pair at position {error.start + 1}"
    return None


def _row(line: int, source: str) -> Row | BadRow:
    try:
        values = json.loads(source)
    except (ValueError, RecursionError) as error:
        where = f" at position {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        return BadRow(line, f"not JSON: {_fault(error).removesuffix(' at')}{where}", source)
    if not isinstance(values, dict):
        return BadRow(line, f"expected a JSON object, found {type(values).__name__}", source)
    return Row(line, values, source)


def _fault(error: Exception) -> str:
    """What the JSON decoder found wrong, without its advice to programmers."""
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
