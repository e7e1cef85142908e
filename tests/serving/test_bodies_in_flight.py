import asyncio
import json
import select
import socket
import time
from contextlib import ExitStack

import pytest
from running import LetterCounter, running

from abalone.serving import limits
from abalone.serving.limits import LARGEST_AT_ONCE, Limits, Memory, Paced, Share
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


class Streaming:
    """An application that answers in several messages, as a stream of any length does."""

    def __init__(self, *pieces):
        self.pieces = pieces

    async def __call__(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def sent_by(app, memory, before_each):
    """The messages that reach a client of one request, which may stop reading before any of them."""
    sent = []

    async def send(message):
        await before_each(sent)
        sent.append(message)

    async def ask():
        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        await Paced(app, memory=memory)(scope, None, send)

    asyncio.run(ask())
    return sent


async def at_once(sent):
    """A client that reads."""


def test_an_answer_without_room_is_refused_once_however_much_of_it_follows():
    sent = sent_by(Streaming(b"a" * SIZE, b"b" * SIZE, b"c"), Memory(SIZE // 2), at_once)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 503
    assert not sent[1].get("more_body", False)


def test_nothing_follows_an_answer_that_gave_way(monkeypatch):
    """What came after the gap would look like the rest of a whole answer."""
    monkeypatch.setattr(limits, "GRACE", 0)
    memory = Memory(2 * SIZE)

    async def stops_reading(sent):
        if len(sent) == 3:  # the head and two pieces
            Share(memory).grow(2 * SIZE)  # another needs the room
            await asyncio.Event().wait()

    sent = sent_by(Streaming(b"a" * SIZE, b"b", b"c"), memory, stops_reading)
    assert [message.get("body", b"")[:1] for message in sent] == [b"", b"a", b"a"]
    assert sent[-1]["more_body"]
