"""How `abalone predict` takes lines off a stream: as soon as they are whole, and as many as have come."""

import os
from collections.abc import Iterator

import pytest

from abalone.cli.predict import BLOCK, lines_as_they_come, rows_of_stream
from abalone.data.rows import Row, TextColumns
from abalone.data.tables import BadRow
from abalone.errors import DataError


def chunks(*parts: bytes, encoding: str | None = None) -> Iterator[list[str]]:
    """What `lines_as_they_come` makes of parts that arrive one by one."""
    reading, writing = os.pipe()
    lines = None
    with os.fdopen(reading, "rb") as source:
        for part in parts:
            os.write(writing, part)
            if lines is None:
                lines = lines_as_they_come(source.fileno(), encoding)
            if b"\n" in part:
                yield next(lines)
        os.close(writing)
        yield from lines


def test_lines_are_given_as_soon_as_they_are_whole():
    given = list(chunks(b"\xef\xbb\xbf", b"one\ntw", b"o\r\nth", b"r\xc3", b"\xa9e\n", b"last"))
    assert given == [["one"], ["two"], ["thrée"], ["last"]]


def test_a_burst_of_lines_comes_in_blocks():
    assert [len(block) for block in chunks(b"x\n" * 1000)] == [BLOCK] * 3 + [1000 - 3 * BLOCK]


def test_a_line_of_many_pieces_comes_whole(tmp_path):
    with (tmp_path / "line.txt").open("wb+") as line:
        line.truncate(2**20)
        assert [len(text) for block in lines_as_they_come(line.fileno()) for text in block] == [2**20]


def test_lines_in_another_encoding():
    assert list(chunks("é\nü".encode("latin-1"), encoding="latin-1")) == [["é"], ["ü"]]
    whole = "Ċ one\r\ntwo".encode("utf-16-le")  # Ċ has the byte of a line break in it
    assert list(chunks(whole[:-5], whole[-5:], encoding="utf-16-le")) == [["Ċ one"], ["two"]]


def of_stream(content: bytes, encoding: str | None = None) -> list[object]:
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    with os.fdopen(reading, "rb") as source:
        return [row for rows in rows_of_stream(source.fileno(), TextColumns(), encoding) for row in rows]


def test_a_line_that_is_not_utf_8_is_a_bad_row_as_in_a_file():
    first, bad, last = of_stream(b"one\ncaf\xe9\nlast\n")
    assert (first, last) == (Row("one"), Row("last"))
    assert isinstance(bad, BadRow)
    assert str(bad.error()).startswith(
        "standard input:2: byte 0xe9 at position 4 of the row is not UTF-8\n  If the whole file is"
    )
    assert of_stream(b"one\ncaf\xe9\n", "cp1252") == [Row("one"), Row("café")]
    assert "byte 0x81 at position 2 of the row is not cp1252" in of_stream(b"a\x81", "cp1252")[0].reason


@pytest.mark.parametrize("encoding", ["nope", "base64", "a\0b", "\udcff", "undefined"])
def test_an_encoding_that_nobody_knows_is_refused(encoding):
    with pytest.raises(DataError, match="unknown encoding"):
        of_stream(b"one\n", encoding)


def test_a_stream_that_is_not_of_its_encoding_at_all_is_an_error():
    with pytest.raises(DataError, match="standard input: cannot be read as utf-16: truncated data"):
        of_stream(b"\xff\xfea", "utf-16")
