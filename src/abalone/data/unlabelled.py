"""Texts whose labels are to be found: from any table, or line by line."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from abalone.data.columns import text_columns
from abalone.data.documents import text_of
from abalone.data.errors import DataError
from abalone.data.files import data_format, open_text
from abalone.data.sources import open_path
from abalone.data.tables import BadRow


def read_texts(path: Path, text_column: Sequence[str] | None = None) -> Iterator[str]:
    """The texts of a table of any format `load_corpus` reads, or else the lines of a file, one after the other."""
    if not path.exists():
        raise DataError("there is no such file", path=path)
    if path.is_file() and data_format(path) is None:
        with open_text(path) as lines:
            yield from (text_of_line(line.rstrip("\r\n")) for line in lines)
        return
    for table in open_path(path).tables:
        columns = text_columns(table, text_column)
        for row in table.rows(columns):
            if isinstance(row, BadRow):
                raise DataError(row.reason, path=table.name, line=row.line)
            try:
                yield text_of(row.values, columns)
            except ValueError as error:
                raise DataError(str(error), path=table.name, line=row.line) from None


def text_of_line(line: str) -> str:
    """A line is a text, or a JSON object with a `text`."""
    if line.startswith("{"):
        try:
            value = json.loads(line)
        except json.JSONDecodeError:
            return line
        if isinstance(value, dict) and isinstance(value.get("text"), str):
            return str(value["text"])
    return line
