import json
import select
import socket
import time
from contextlib import ExitStack

import pytest
from running import LetterCounter, running

from abalone.serving import limits
from abalone.serving.limits import LARGEST_AT_ONCE, Limits
from patience import PATIENCE

SIZE = 2**20
LIMITS = Limits(body_bytes=SIZE, characters=SIZE, seconds=PATIENCE)
SENDERS = 2 * LARGEST_AT_ONCE
WHOLE = json.dumps({"text": "a" * (SIZE - 20)}).encode()


def half_a_request(client, stack):
    """A connection that sends all of a large request but the end."""
    line = stack.enter_context(socket.create_connection((client.base_url.host, client.base_url.port)))
    head = f"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(WHOLE)}"
    line.sendall(f"{head}\r\n\r\n".encode() + WHOLE[:-2])
    return line


def answered(lines, number):
    """The first bytes of so many answers."""
    deadline = time.monotonic() + PATIENCE
    while len(readable := select.select(lines, [], [], 1)[0]) < number:
        assert time.monotonic() < deadline
    return [line.recv(4096) for line in readable]


def test_halves_of_requests_are_refused_beyond_what_all_may_take(monkeypatch):
    monkeypatch.setattr(limits, "GRACE", PATIENCE)
    with running(LetterCounter(), limits=LIMITS) as client, ExitStack() as stack:
        lines = [half_a_request(client, stack) for _ in range(SENDERS)]
        refused = answered(lines, SENDERS - LARGEST_AT_ONCE - 2)  # a little of each body counts for nothing
        assert len(refused) < SENDERS
        for answer in refused:
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 5" in answer
            assert b"application/problem+json" in answer
        assert client.post("/v1/predict", json={"text": "a"}).status_code == 200
        large = client.post("/v1/predict", content=WHOLE, headers={"content-type": "application/json"})
        assert large.status_code == 503


def test_who_kept_others_waiting_for_longest_gives_way(monkeypatch):
    monkeypatch.setattr(limits, "GRACE", 0)
    with running(LetterCounter(), limits=LIMITS) as client, ExitStack() as stack:
        lines = [half_a_request(client, stack) for _ in range(SENDERS)]
        (first, *_) = answered(lines[:1], 1)
        assert first.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 5" in first
        large = client.post("/v1/predict", content=WHOLE, headers={"content-type": "application/json"})
        assert large.status_code == 200


@pytest.mark.parametrize("path", ["/v1/labels", "/openapi.json"])
def test_room_is_returned(path, monkeypatch):
    """Requests and answers one after the other take no more than one at a time."""
    monkeypatch.setattr(limits, "FREE", 0)
    with running(LetterCounter(), limits=Limits(body_bytes=2000)) as client:
        for _ in range(3 * LARGEST_AT_ONCE):
            answer = client.post("/v1/predict", json={"text": "a" * 1900})
            assert answer.status_code == 200, answer.text
            assert client.get(path).status_code == 200


def test_an_answer_that_nobody_reads_gives_way_to_another(monkeypatch):
    monkeypatch.setattr(limits, "GRACE", 0)
    model = LetterCounter()
    model.label_names = tuple(letter * 2_000_000 for letter in "abc")
    with running(model, limits=Limits(body_bytes=500_000)) as client, ExitStack() as stack:  # 8 MB in flight
        for _ in range(4):
            line = stack.enter_context(socket.create_connection((client.base_url.host, client.base_url.port)))
            line.sendall(b"GET /v1/labels HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(3):
            answer = client.get("/v1/labels")
            assert answer.status_code == 200
            assert answer.json()["labels"][2]["name"] == model.label_names[2]
