"""A server whose process may open few files, and more connections than it can keep."""

import os
import re
import resource
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from lines import ASKED, LIVE, connect, heard_so_far, is_open
from running import until

from patience import PATIENCE

FILES = 128
CONNECTIONS = 64  # half of the files: in all
OF_ONE_CLIENT = 32


@contextmanager
def serving(log, *options):
    """The address of `abalone serve` in a process of so few files, which writes its log to a file."""
    command = [sys.executable, str(Path(__file__).with_name("letters_server.py")), *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            stderr=stream,
            env=environment,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES)),
        )
    try:
        until(lambda: process.poll() is not None or " at http://" in log.read_text())
        host, port = re.search(r" at http://(\S+):(\d+)", log.read_text()).groups()
        yield host, int(port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()


def test_client_has_half_of_the_connections_and_closes_none_of_another(tmp_path):
    with serving(tmp_path / "log") as to, ExitStack() as stack:
        other = connect(to, stack, source="127.0.0.2")
        lines = [connect(to, stack) for _ in range(OF_ONE_CLIENT + 8)]
        for line in (lines[-1], other):  # when the last is answered, the others have been counted
            line.sendall(LIVE)
            assert line.recv(100).startswith(b"HTTP/1.1 200 ")
        assert [is_open(line) for line in lines] == [False] * 8 + [True] * OF_ONE_CLIENT


def test_client_is_told_to_come_back_where_all_connections_are_at_work(tmp_path):
    with serving(tmp_path / "log", "stuck") as to, ExitStack() as stack:
        for number in range(CONNECTIONS):
            # The server takes in both requests at once: the first is answered when the second is at work.
            line = connect(to, stack, LIVE + ASKED, source=f"127.0.0.{2 + number // OF_ONE_CLIENT}")
            assert line.recv(100).startswith(b"HTTP/1.1 200 ")
        newcomer = connect(to, stack)
        with suppress(ConnectionError):  # once a later one is answered or closed, this one has been counted
            connect(to, stack, LIVE).recv(1)
        answer = heard_so_far(newcomer)
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"retry-after: 1\r\n" in answer
        assert b"too many connections; try again later" in answer


def test_log_stays_short_however_many_connections_are_open(tmp_path):
    """And others are answered: more connections than the process may have files, which say nothing."""
    log = tmp_path / "log"
    with serving(log) as to, ExitStack() as stack:
        for _ in range(3 * FILES):
            connect(to, stack)
        for _ in range(5):
            line = connect(to, stack, LIVE, source="127.0.0.2")
            line.settimeout(0.1)
            answer = b""
            while not answer:
                with suppress(TimeoutError):
                    answer = line.recv(100)
                # 100 lines: five of each kind, of which some have a traceback.
                assert log.read_text().count("\n") < 100
            assert answer.startswith(b"HTTP/1.1 200 ")
