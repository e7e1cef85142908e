"""Unlabelled texts, for prediction: the rows of any table, or the lines of a file or stream."""

import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from abalone.data.bad_rows import usable
from abalone.data.rows import (
    TEXT_NAMES,
    Columns,
    Row,
    TextColumns,
    named_column,
    plain_name,
    read_row,
    read_rows,
    text_columns,
    usual_text,
)
from abalone.data.sources import data_format, matching_files, open_path, refuse_spreadsheet
from abalone.data.streams import known_encoding, open_text
from abalone.data.tables import BadRow, Record, undecodable
from abalone.errors import DataError, spelled

QUICK = 64 * 2**20  # bytes of a file that are read in about a second

USUAL = TextColumns()  # with the usual names


def require_file(path: Path) -> None:
    """Raise where nothing can be read: before a model is loaded, if there is one to load."""
    if not path.exists() and not matching_files(path):
        raise DataError("there is no such file", path=path)


def read_unlabelled(path: Path, columns: TextColumns = USUAL, encoding: str | None = None) -> Iterator[Row | BadRow]:
    """Read the rows of a table of any format `load_corpus` reads, or else the lines of a file, one after the other."""
    require_file(path)
    if not path.is_dir() and data_format(path) is None:  # a pipe such as /dev/stdin is no regular file either
        refuse_spreadsheet(path)
        encoding = None if encoding is None else known_encoding(encoding, path)
        with open_text(path, encoding=encoding) as lines:
            yield from chain.from_iterable(rows_of_lines(([line] for line in lines), path, columns, encoding))
        return
    for table in open_path(path, checked=False, encoding=encoding).tables:
        if not table.columns:
            continue  # empty, as a split may be
        text = text_columns(table, columns.found_in(table.columns))
        _tell_of_missing(columns, text, table.name)
        row_id = None if columns.id is None else named_column(table, columns.id, "id_column")
        yield from read_rows(table, Columns(text, id=row_id))


def rows_of_lines(
    blocks: Iterable[Iterable[str]], name: str | Path, columns: TextColumns = USUAL, encoding: str | None = None
) -> Iterator[list[Row | BadRow]]:
    """Read the rows of lines, block after block as they come.

    Empty lines at the end are none. Elsewhere a text is missing, and an answer to nothing would hide that.

    Args:
        blocks: of lines, with or without their line breaks.
        name: what messages call them.
        columns: the fields of a JSON object; where one of them is for ids, a line that is no object is a bad row.
        encoding: that they were decoded from, for messages.
    """
    number = 0
    empty: list[BadRow] = []
    for lines in blocks:
        rows: list[Row | BadRow] = []
        for number, line in enumerate(lines, start=number + 1):  # noqa: B020 - goes on where the last block ended
            if not line.strip():
                empty.append(BadRow(name, number, "the line is empty"))
                continue
            rows += empty
            empty.clear()
            if found := undecodable(line, encoding):
                reason, hint = found
                rows.append(BadRow(name, number, reason, line, hint))
            else:
                rows.append(row_of_line(line.rstrip("\r\n"), columns, name, number))
        yield rows


def row_of_line(line: str, columns: TextColumns = USUAL, name: str | Path = "", number: int = 1) -> Row | BadRow:
    """Read a line: a text, or a JSON object with a text under a usual name.

    Args:
        line: without the line break.
        columns: the fields of a JSON object to join instead, and that of its id.
        name: what messages call the lines.
        number: of the line among them.
    """
    values = _object(line)
    if values is None:
        if columns.id is None:
            return Row(line)
        reason = f"a line of plain text has no id: expected a JSON object with a field {columns.id!r}"
        return BadRow(name, number, reason, line)
    text = columns.found_in(tuple(values))
    if text is None:
        usual = usual_text(tuple(values))
        if usual is None:
            reason = (
                f"the JSON object has no field for the text (looked for {', '.join(TEXT_NAMES)}; "
                f"found {', '.join(values) or 'none'}): name it with {spelled('text_column')}"
            )
            return BadRow(name, number, reason, line)
        text = (usual,)
        _tell_of_missing(columns, text, "a JSON object")
    return read_row(Record(number, values, line), Columns(text, id=columns.id), name)


def count_texts(
    path: Path, columns: TextColumns = USUAL, encoding: str | None = None, *, skipping: bool = False
) -> int | None:
    """Return how many texts a file has; `None` where to count them is not quick.

    Raises for the first bad row, unless it is `skipping` such rows: now, rather than after the answers to all before
    it. Answering takes a hundred times as long as reading; of a large file, even that is a while without an answer.
    """
    redirected = path.is_relative_to("/dev")  # such as /dev/stdin: some systems read on where they stopped
    if not path.is_file() or redirected or path.stat().st_size > QUICK:
        return None
    rows = read_unlabelled(path, columns, encoding)
    return sum(isinstance(row, Row) for row in (rows if skipping else usable(rows)))


def _tell_of_missing(columns: TextColumns, text: Sequence[str], where: str | Path) -> None:
    """Warn where a part of what a model was trained on is not there: its answers are the worse for it."""
    absent = [name for name in columns.trained if plain_name(name) not in map(plain_name, text)]
    if columns.named is None and absent and len(columns.trained) > 1:
        warnings.warn(
            f"the model was trained on {' and '.join(columns.trained)}, and {where} has no {' and no '.join(absent)}: "
            f"only {' and '.join(text)} is read",
            stacklevel=2,
        )


def _object(line: str) -> dict[str, object] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # a text that only begins like JSON
        return None
    return value if isinstance(value, dict) else None
