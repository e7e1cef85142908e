"""Texts whose labels are to be found: from any table, or line by line."""

import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from abalone.data.badrows import HINT
from abalone.data.columns import TEXT_NAMES, TextColumns, named_column, plain_name, text_columns, usual_text
from abalone.data.files import data_format, known_encoding, matching_files, open_text, refuse_spreadsheet
from abalone.data.identified import NoTextError, identified_text
from abalone.data.sources import open_path
from abalone.data.tables import BadRow, UndecodableError, refuse_undecodable
from abalone.files.errors import DataError

QUICK = 64 * 2**20  # bytes of a file that are read in about a second

USUAL = TextColumns()  # with the usual names

Found = str | DataError
"""The text of a row, or why it has none."""


def read_texts(path: Path, columns: TextColumns = USUAL, encoding: str | None = None) -> Iterator[str]:
    """The texts of a table of any format `load_corpus` reads, or else the lines of a file, one after the other.

    With a column of ids they are `Identified`.
    """
    return usable(read_rows(path, columns, encoding))


def require_file(path: Path) -> None:
    """Raise where nothing can be read: before a model is loaded, if there is one to load."""
    if not path.exists() and not matching_files(path):
        raise DataError("there is no such file", path=path)


def read_rows(path: Path, columns: TextColumns = USUAL, encoding: str | None = None) -> Iterator[Found]:
    """As `read_texts`, with an error in the place of a row that has no text."""
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
        ids = None if columns.ids is None else named_column(table, columns.ids, "id_column")
        for row in table.rows(text if ids is None else {*text, ids}):
            if isinstance(row, BadRow):
                yield DataError(row.reason, path=table.name, line=row.line, hint=row.hint or HINT)
                continue
            try:
                yield identified_text(row.values, text, ids)
            except ValueError as error:
                yield _unusable(error, table.name, row.line)


def rows_of_lines(
    blocks: Iterable[Iterable[str]], name: str | Path, columns: TextColumns = USUAL, encoding: str | None = None
) -> Iterator[list[Found]]:
    """The texts of lines, block after block as they come, with an error in the place of a line that has none.

    Empty lines at the end are none. Elsewhere a text is missing, and an answer to nothing would hide that.

    Args:
        blocks: of lines, with or without their line breaks.
        name: what messages call them.
        columns: the fields of a JSON object; where one of them is for ids, a line that is no object is an error.
        encoding: that they were decoded from, for messages.
    """
    number = 0
    empty: list[DataError] = []
    for lines in blocks:
        found: list[Found] = []
        for number, line in enumerate(lines, start=number + 1):  # noqa: B020 - goes on where the last block ended
            if not line.strip():
                empty.append(DataError("the line is empty", path=name, line=number, hint=HINT))
                continue
            found += empty
            empty.clear()
            try:
                refuse_undecodable(line, encoding)
                found.append(text_of_line(line.rstrip("\r\n"), columns))
            except ValueError as error:
                found.append(_unusable(error, name, number))
        yield found


def _unusable(error: ValueError, name: str | Path, line: int) -> DataError:
    hint = error.hint if isinstance(error, UndecodableError) else HINT
    row_id = error.row_id if isinstance(error, NoTextError) else None
    return DataError(str(error), path=name, line=line, hint=hint, row_id=row_id)


def usable(rows: Iterable[Found]) -> Iterator[str]:
    """The texts of rows, up to the first that has none, whose error is raised."""
    for row in rows:
        if isinstance(row, DataError):
            raise row
        yield row


def count_texts(
    path: Path, columns: TextColumns = USUAL, encoding: str | None = None, *, skipping: bool = False
) -> int | None:
    """How many texts a file has; `None` where to count them is not quick.

    Raises for the first row without a text, unless it is `skipping` such rows: now, rather than after the answers to
    all before it. Answering takes a hundred times as long as reading; of a large file, even that is a while without an
    answer.
    """
    redirected = path.is_relative_to("/dev")  # such as /dev/stdin: some systems read on where they stopped
    if not path.is_file() or redirected or path.stat().st_size > QUICK:
        return None
    rows = read_rows(path, columns, encoding)
    return sum(isinstance(row, str) for row in (rows if skipping else usable(rows)))


def text_of_line(line: str, columns: TextColumns = USUAL) -> str:
    """A line is a text, or a JSON object with a text under a usual name.

    Args:
        line: without the line break.
        columns: the fields of a JSON object to join instead, and that of its id, which the text then carries.

    Raises:
        ValueError: a JSON object has no text, or half a character in it, or no id.
    """
    values = _object(line)
    if values is None:
        if columns.ids is not None:
            raise ValueError(f"a line of plain text has no id: expected a JSON object with a field {columns.ids!r}")
        return line
    text = columns.found_in(tuple(values))
    if text is None:
        usual = usual_text(tuple(values))
        if usual is None:
            raise ValueError(
                f"the JSON object has no field for the text (looked for {', '.join(TEXT_NAMES)}; "
                f"found {', '.join(values) or 'none'}): name it with text_column="
            )
        text = (usual,)
        _tell_of_missing(columns, text, "a JSON object")
    return identified_text(values, text, columns.ids)


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
