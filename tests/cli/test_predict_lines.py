"""How `abalone predict` takes lines off a stream: as soon as they are whole, and as many as have come."""

import os
from collections.abc import Iterator

from abalone.cli.predict import BLOCK, lines_as_they_come


def chunks(*parts: bytes) -> Iterator[list[str]]:
    """What `lines_as_they_come` makes of parts that arrive one by one."""
    reading, writing = os.pipe()
    lines = None
    with os.fdopen(reading, "rb") as source:
        for part in parts:
            os.write(writing, part)
            if lines is None:
                lines = lines_as_they_come(source.fileno())
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
