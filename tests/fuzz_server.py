"""Fuzzing the server: any request gets a result or a reason, and the next one is answered."""

import asyncio
import atexit
import json
import random
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from running import LetterCounter, running

from abalone.inference.evidence import Evidence
from abalone.serving.app import create_app
from abalone.serving.limits import Limits
from abalone.serving.predictions import Served
from fuzzing import Target
from mutations import TOKENS, mutated
from patience import PATIENCE

Numbers = random.Random
LIMITS = Limits(body_bytes=3000, texts=4, characters=50, seconds=PATIENCE / 2)
PATHS = (
    "/v1/predict",
    "/v1/labels",
    "/healthz",
    "/livez",
    "/readyz",
    "/metrics",
    "/",
    "/docs",
    "/openapi.json",
    "/static/page.js",
    "/static/",
)
METHODS = ("POST", "GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "post", "ÄÖ", "X" * 300)
REQUEST = b'{"texts": ["abc", "b a"], "top_k": 2, "evidence": 1}'

# Requests that are nearly right

texts = st.text(st.characters(exclude_categories=()), max_size=60)  # halves of characters and NUL among them
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
near_misses = st.fixed_dictionaries(
    {},
    optional={
        "text": texts | anything,
        "texts": st.lists(texts, max_size=6) | anything,
        "top_k": st.integers(-2, 10) | anything,
        "evidence": st.integers(-2, 3) | anything,
    },
)
bodies = st.one_of(st.binary(max_size=300), anything.map(json.dumps), near_misses.map(json.dumps))
kinds = st.sampled_from(["application/json"] * 8 + ["text/plain", "application/json; charset=utf-8", ""])


class Running:
    """The application without a socket: thousands of requests a minute, and whatever a server could hand on."""

    def __init__(self) -> None:
        model = LetterCounter()
        documents = ["a </script><script>alert(1)</script>", "b", "c"]
        evidence = Evidence(documents, [["a"], ["b"], ["c"]], model.vectors(documents))
        self.app = create_app(Served("letters", model, [1, 2, 3], evidence), limits=LIMITS)
        self.loop = asyncio.new_event_loop()

    def close(self) -> None:
        """Be done with it."""
        self.loop.close()

    def ask(
        self, method: str, path: str, query: bytes, headers: list[tuple[bytes, bytes]], chunks: list[bytes]
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer."""
        return self.loop.run_until_complete(self._ask(method, path, query, headers, chunks))

    async def _ask(
        self, method: str, path: str, query: bytes, headers: list[tuple[bytes, bytes]], chunks: list[bytes]
    ) -> tuple[int, dict[str, str], bytes]:
        waiting = [{"type": "http.request", "body": part, "more_body": True} for part in chunks]
        waiting.append({"type": "http.request", "body": b"", "more_body": False})
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if waiting:
                return waiting.pop(0)
            await asyncio.Event().wait()  # a client that waits for its answer
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode("utf-8", "replace"), "query_string": query, "root_path": "",
            "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {},
        }  # fmt: skip
        await asyncio.wait_for(self.app(scope, receive, send), PATIENCE)
        start = next(message for message in sent if message["type"] == "http.response.start")
        body = b"".join(message.get("body", b"") for message in sent if message["type"] == "http.response.body")
        return start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, body


@cache
def application() -> Running:
    """One for all cases."""
    one = Running()
    atexit.register(one.close)
    return one


def assert_answered(status: int, headers: dict[str, str], body: bytes) -> None:
    """A result, or a refusal that says why; the policy of the pages is on everything."""
    assert 200 <= status < 500, (status, body[:300])
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["x-content-type-options"] == "nosniff"
    for secret in (b"Traceback", b"root:", b"def create_app"):  # /etc/passwd and our own source lie outside the pages
        assert secret not in body
    if status >= 400 and body and not headers["content-type"].startswith("text/plain"):  # of files, on a bad range
        told = json.loads(body)
        assert told["detail"].strip()
        assert told["status"] == status


def check_request(case: tuple[bytes | str, str], place: Path) -> None:
    """A request to `/v1/predict` with any body."""
    body, kind = case
    content = body.encode() if isinstance(body, str) else body
    status, headers, answer = application().ask(
        "POST", "/v1/predict", b"", [(b"content-type", kind.encode())], [content]
    )
    assert_answered(status, headers, answer)
    if status == 200:
        asked = json.loads(content)
        expected = 1 if asked.get("text") is not None else len(asked["texts"])
        assert len(json.loads(answer)["predictions"]) == expected


def check_anything(numbers: Numbers, place: Path) -> None:
    """Any method to any address with any headers, and a body in pieces."""
    path = numbers.choice(PATHS)
    if numbers.random() < 0.3:
        path = "/" + mutated(path.encode(), numbers).decode("utf-8", "replace")[:3000]
        path = numbers.choice(
            (path, "/static/../../etc/passwd", "/static//etc/passwd", "/static/%2e%2e/app.py", "/static/\0")
        )
    body = REQUEST if numbers.random() < 0.3 else mutated(REQUEST, numbers)
    if numbers.random() < 0.1:
        body *= 100
    size = numbers.choice((1, 7, len(body) or 1, 4096))
    chunks = [body[start : start + size] for start in range(0, min(len(body), 4000), size)]
    headers = [
        (b"content-type", numbers.choice((b"application/json", b"application/json", b"text/html", b"", b"\xff")))
    ]
    for _ in range(numbers.choice((0, 0, 1, 3))):
        name = numbers.choice((b"content-length", b"content-encoding", b"host", b"range", b"if-none-match", b"origin",
                               b"if-modified-since", b"accept", b"x-forwarded-for", b"expect", b"cookie",
                               b"authorization", b"x-request-id"))  # fmt: skip
        headers.append((name, numbers.choice(TOKENS)[:500]))
    query = numbers.choice((b"", b"", numbers.choice(TOKENS)[:200]))
    assert_answered(*application().ask(numbers.choice(METHODS), path, query, headers, chunks))
    status, _, answer = application().ask(
        "POST", "/v1/predict", b"", [(b"content-type", b"application/json")], [REQUEST]
    )
    assert status == 200, answer


def check_bytes(numbers: Numbers, place: Path) -> None:
    """Any bytes to the socket of a real server, which goes on answering."""
    with running(LetterCounter(), limits=LIMITS) as client:
        address = (client.base_url.host, client.base_url.port)
        head = ("POST /v1/predict HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json")
        whole = "\r\n".join((*head, f"Content-Length: {len(REQUEST)}", "", "")).encode() + REQUEST
        for _ in range(BYTES_PER_SERVER):
            answer = b""
            # Refused before all was read, the rest is answered by a reset: that is how sockets say so.
            with socket.create_connection(address, timeout=PATIENCE) as connection, suppress(ConnectionError):
                connection.sendall(mutated(whole, numbers)[:200_000])
                with suppress(OSError):  # not connected any more
                    connection.shutdown(socket.SHUT_WR)
                while block := connection.recv(65536):
                    answer += block
            assert not answer or answer.startswith(b"HTTP/1.1 "), answer[:100]
            assert b" 500 " not in answer[:20], answer
            assert b"Traceback" not in answer
        assert client.post("/v1/predict", json={"text": "abc"}).status_code == 200
        assert client.get("/healthz").status_code == 200


BYTES_PER_SERVER = 25

TARGETS = {
    "server/requests": Target(check_request, small=60, share=1.5, values=st.tuples(bodies, kinds), prepare=application),
    "server/anything": Target(check_anything, small=40, share=1.5, prepare=application),
    "server/sockets": Target(check_bytes, small=1, share=0.04, seconds=60),
}
