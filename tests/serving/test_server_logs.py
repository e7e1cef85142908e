import io
import logging

import pytest
from running import LetterCounter, running

from abalone.serving import server


@pytest.fixture
def written(monkeypatch):
    """What a log writes, and how to move its clock."""
    stream, clock = io.StringIO(), [1000.0]
    handler = logging.StreamHandler(stream)
    handler.addFilter(server.Sparing())

    def write(name, message, *arguments, level=logging.WARNING, error=None):
        record = logging.LogRecord(name, level, "file.py", 1, message, arguments, error and (type(error), error, None))
        record.created = clock[0]
        handler.handle(record)

    return write, clock, lambda: stream.getvalue().splitlines()


def test_lines_of_one_kind_are_left_out_and_counted(written):
    write, clock, lines = written
    for number in range(1000):
        write("uvicorn.error", "connection %d is odd", number)
    assert lines() == [f"connection {number} is odd" for number in range(server.SAME_LINES)]
    write("uvicorn.error", "another kind")
    clock[0] += server.SAME_WITHIN
    write("uvicorn.error", "connection %d is odd", 7)
    assert lines()[-2:] == ["another kind", "connection 7 is odd (and 995 lines like this one, left out before)"]


def test_errors_of_ours_keep_their_line_without_its_traceback(written):
    write, _, lines = written
    for number in range(20):
        write("abalone.serving", "error %d", number, level=logging.ERROR, error=ValueError("why"))
    assert sum(line.startswith("error ") for line in lines()) == 20
    assert lines().count("ValueError: why") == server.SAME_LINES


def test_kinds_without_end_are_not_remembered(written, monkeypatch):
    monkeypatch.setattr(server, "KINDS_OF_LINES", 3)
    write, _, lines = written
    for number in range(10):
        write("library", f"line {number}")
    assert len(lines()) == 10


def test_no_query_is_logged_whatever_the_program_listens_to(caplog):
    """uvicorn's own access log would have whole queries; ours, which a program may listen to, leaves them out."""
    caplog.set_level(logging.INFO)
    with running(LetterCounter()) as client:
        assert client.get("/healthz?who=me").status_code == 200
    assert "uvicorn.error" in {record.name for record in caplog.records}
    assert {record.name for record in caplog.records if "who=me" in record.getMessage()} == {"httpx"}  # our own asking
