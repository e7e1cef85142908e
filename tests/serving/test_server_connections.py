import ctypes
import gc
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from weakref import WeakSet

import pytest
from lines import ASKED, HEAD, LIVE, connect, heard, heard_so_far, is_open
from running import LetterCounter, running, until

from abalone.serving import server
from abalone.serving.server import ConnectionLimits, _network
from patience import PATIENCE


def connected(client, stack, said=b"", source="127.0.0.1"):
    return connect((client.base_url.host, client.base_url.port), stack, said, source)


def in_flight(client):
    return int(re.search(r"abalone_requests_in_flight (\d+)", client.get("/metrics").text)[1])


def limits(connections, of_one_client=None):
    return ConnectionLimits(connections, of_one_client or connections, PATIENCE, PATIENCE)


@pytest.mark.parametrize("said", [b"", HEAD[:40], HEAD + b'{"te'], ids=["nothing", "half a head", "half a body"])
def test_connections_that_keep_the_server_waiting_make_room_for_others(said):
    with running(LetterCounter(), connections=limits(8, of_one_client=20)) as client, ExitStack() as stack:
        lines = [connected(client, stack, said) for _ in range(20)]
        assert client.get("/healthz").status_code == 200
        assert client.post("/v1/predict", json={"text": "a"}).status_code == 200
        # Closed are those that came first; eight are open with the one that was answered.
        assert [is_open(line) for line in lines] == [False] * 13 + [True] * 7


def test_connections_of_one_client_make_no_room_at_the_cost_of_others():
    with running(LetterCounter(), connections=limits(20, of_one_client=5)) as client, ExitStack() as stack:
        other = connected(client, stack, source="127.0.0.2")
        lines = [connected(client, stack) for _ in range(10)]
        for line in (lines[-1], other):  # when the last is answered, the others have been counted
            line.sendall(LIVE)
            assert line.recv(100).startswith(b"HTTP/1.1 200 ")
        assert [is_open(line) for line in lines] == [False] * 5 + [True] * 5


def test_a_connection_beyond_those_at_work_is_told_to_come_back():
    model = LetterCounter()
    with running(model, connections=limits(1)) as client, ExitStack() as stack:
        model.may_go.clear()
        stack.callback(model.may_go.set)
        # The server takes in both requests at once: the first is answered when the second is at work.
        line = connected(client, stack, LIVE + ASKED.replace(b"Host:", b"Connection: close\r\nHost:"))
        assert line.recv(100).startswith(b"HTTP/1.1 200 ")
        newcomer = connected(client, stack)
        with suppress(ConnectionError):  # once a later one is answered or closed, this one has been counted
            connected(client, stack, LIVE).recv(1)
        answer = heard_so_far(newcomer)
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"retry-after: 1" in answer
        assert b"application/problem+json" in answer
        model.may_go.set()
        assert b"HTTP/1.1 200 " in heard(line)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"", b""),
        (HEAD[:40], b"HTTP/1.1 408 "),
        (LIVE + b"G", b"HTTP/1.1 200 "),  # half of another after one that is answered
        (
            b"PUT /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nG",
            b"HTTP/1.1 405 ",
        ),  # refused before it is whole
    ],
    ids=["nothing", "half a head", "half of another", "half a body that nobody reads"],
)
def test_a_request_that_does_not_come_is_not_waited_for(said, answer):
    hasty = ConnectionLimits(head_seconds=0.2)
    with running(LetterCounter(), connections=hasty) as client, ExitStack() as stack:
        assert heard(connected(client, stack, said)).startswith(answer)


def test_a_client_that_does_not_read_its_answer_is_hung_up_on():
    model = LetterCounter()
    model.label_names = tuple(letter * 5_000_000 for letter in "abc")
    hasty = ConnectionLimits(reading_seconds=0.2)
    with running(model, connections=hasty) as client, ExitStack() as stack:
        line = connected(client, stack)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.sendall(b"GET /v1/labels HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: in_flight(client) == 1)  # the one that asks
        with ThreadPoolExecutor(1) as pool:
            assert len(pool.submit(client.get, "/v1/labels").result().content) > 15_000_000


def test_an_upgrade_to_another_protocol_is_not_taken():
    with running(LetterCounter()) as client:
        headers = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
        assert client.get("/livez", headers={**headers, "sec-websocket-key": "A" * 22 + "=="}).status_code == 200


def test_a_network_of_ipv6_counts_as_one_client():
    assert _network(("127.0.0.1", 1)) == _network(("127.0.0.1", 2)) == "127.0.0.1"
    assert _network(("2001:db8::1", 1, 0, 0)) == _network(("2001:db8::ffff:1%eth0", 1, 0, 0)) == "2001:db8::/64"
    assert _network(("::ffff:10.0.0.1", 1, 0, 0)) != _network(("::ffff:10.0.0.2", 1, 0, 0))
    assert _network(None) == ""


def test_freed_memory_is_returned_after_requests_and_not_while_idle(monkeypatch):
    trims = []
    monkeypatch.setattr(server, "TRIM_SECONDS", 0.01)
    monkeypatch.setattr(server, "trim_heap", lambda: trims.append("trimmed"))
    with running(LetterCounter()) as client:
        for asked in (1, 2, 3):
            assert client.post("/v1/predict", json={"text": "abc"}).status_code == 200
            until(lambda asked=asked: len(trims) >= asked)
            assert len(trims) == asked


def test_trimming_the_heap_returns_freed_pages():
    """In a process of its own: blocks of this one would lie between."""
    script = """
import ctypes, re, sys
from pathlib import Path
from abalone.serving.server import trim_heap

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

blocks = [bytearray(b"x" * 50_000) for _ in range(2_000)]  # 100 MB, of blocks that glibc keeps when they are freed
kept = blocks[-1]
del blocks
before = resident()
trim_heap()
print(before - resident())
"""
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        return  # no glibc, nothing to trim
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert int(done.stdout) > 80_000  # kB


def test_nothing_is_left_of_a_connection_that_was_closed(monkeypatch):
    """A timer that ran on would keep each for seconds, and clients may come and go by the thousand."""
    made, lost = WeakSet(), []
    connection_made, connection_lost = server.Connection.connection_made, server.Connection.connection_lost
    monkeypatch.setattr(
        server.Connection, "connection_made", lambda self, transport: (made.add(self), connection_made(self, transport))
    )
    monkeypatch.setattr(
        server.Connection, "connection_lost", lambda self, error: (connection_lost(self, error), lost.append(1))
    )
    with running(LetterCounter(), connections=limits(8)) as client:
        with ExitStack() as stack:
            for said in (b"", HEAD[:40]):
                connected(client, stack, said)
            answered = connected(client, stack, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert answered.recv(4096).startswith(b"HTTP/1.1 200 ")
            until(lambda: len(made) == 3)
        until(lambda: len(lost) == 3)
        assert client.get("/livez").status_code == 200  # what follows the loss is done as well
        gc.collect()
        assert len(made) == 1
