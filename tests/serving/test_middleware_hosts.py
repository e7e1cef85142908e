"""Host names that the guard answers to."""

import asyncio

import pytest

from abalone.serving.middleware import Guard, InFlight, Metrics


def answered(headers, hosts):
    """Whether a request with these headers reaches the application, and the status that it gets."""
    reached, statuses = [], []

    async def app(scope, receive, send):
        reached.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {"type": "http", "method": "GET", "path": "/healthz", "headers": headers}
    guard = Guard(app, metrics=Metrics(), in_flight=InFlight(), hosts=hosts, key=None)
    asyncio.run(guard(scope, None, send))
    return bool(reached), *statuses


@pytest.mark.parametrize(
    "headers",
    [[], [(b"host", b"")], [(b"host", b":8000")], [(b"host", b" ")], [(b"host", b"[")], [(b"host", b"[]:8000")]],
    ids=["none", "empty", "a port alone", "a space", "half of an address", "an empty address"],
)
def test_request_without_a_host_name_is_refused(headers):
    assert answered(headers, ["127.0.0.1", "localhost", "[::1]"]) == (False, 421)


@pytest.mark.parametrize("host", [b"localhost", b"LocalHost:8000", b"127.0.0.1", b"[::1]:8000"])
def test_request_for_an_own_host_name_is_let_through(host):
    assert answered([(b"host", host)], ["127.0.0.1", "Localhost", "[::1]"]) == (True, 200)


def test_any_host_is_let_through_where_none_is_named():
    assert answered([], None) == (True, 200)
