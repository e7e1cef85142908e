"""Texts whose labels are to be found: from any table, or line by line."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from abalone.data.columns import TEXT_NAMES, text_columns, usual_column
from abalone.data.documents import text_of
from abalone.data.errors import DataError
from abalone.data.files import data_format, matching_files, open_text
from abalone.data.sources import open_path
from abalone.data.tables import BadRow, undecodable


def read_texts(path: Path, text_column: Sequence[str] | None = None) -> Iterator[str]:
    """The texts of a table of any format `load_corpus` reads, or else the lines of a file, one after the other."""
    if not path.exists() and not matching_files(path):
        raise DataError("there is no such file", path=path)
    if not path.is_dir() and data_format(path) is None:  # a pipe such as /dev/stdin is no regular file either
        with open_text(path) as lines:
            for number, line in enumerate(lines, start=1):
                if reason := undecodable(line):
                    raise DataError(reason, path=path, line=number)
                try:
                    yield text_of_line(line.rstrip("\r\n"), text_column)
                except ValueError as error:
                    raise DataError(str(error), path=path, line=number) from None
        return
    for table in open_path(path, checked=False).tables:
        if not table.columns:
            continue  # empty, as a split may be
        columns = text_columns(table, text_column)
        for row in table.rows(columns):
            if isinstance(row, BadRow):
                raise DataError(row.reason, path=table.name, line=row.line)
            try:
                yield text_of(row.values, columns)
            except ValueError as error:
                raise DataError(str(error), path=table.name, line=row.line) from None


def text_of_line(line: str, text_column: Sequence[str] | None = None) -> str:
    """A line is a text, or a JSON object with a text under a usual name.

    Args:
        line: without the line break.
        text_column: the fields of a JSON object to join instead.

    Raises:
        ValueError: a JSON object has no text, or half a character in it.
    """
    values = _object(line)
    if values is None:
        return line
    if text_column is None:
        usual = usual_column(tuple(values), TEXT_NAMES)
        if usual is None:
            raise ValueError(
                f"the JSON object has no field for the text (looked for {', '.join(TEXT_NAMES)}; "
                f"there is {', '.join(values) or 'none'}): name it with text_column="
            )
        text_column = [usual]
    return text_of(values, text_column)


def _object(line: str) -> dict[str, object] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # a text that only begins like JSON
        return None
    return value if isinstance(value, dict) else None
