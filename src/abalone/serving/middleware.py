"""Middleware around every request: API key, host names, headers, errors, metrics and the access log."""

import asyncio
import json
import logging
import os
import re
import secrets
import sys
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hmac import compare_digest
from http import HTTPStatus
from pathlib import Path
from typing import TextIO

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from abalone.errors import InputError, printable
from abalone.serving.predictions import Refusal, problem

log = logging.getLogger("abalone.serving")
access = logging.getLogger("abalone.access")  # silent unless it is asked for

HEADERS = {
    # The page brings all it needs, and labels and texts are data: nothing else may load, run or frame it.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
OPEN = ("/livez", "/readyz", "/healthz")  # without a key
REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")  # of others: what cannot break a log or a header
KEY_VARIABLE = "ABALONE_API_KEY"
SHORTEST_KEY = 16  # characters; `openssl rand -hex 16` makes 32
LONGEST_KEY = 1000
SECOND_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
TEXT_BUCKETS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The counters of one server, in a registry of their own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter("abalone_requests", "Requests answered.", ["path", "status"], registry=registry)
        self.seconds = Histogram(
            "abalone_request_seconds", "From a request's headers to its last byte.", ["path"], buckets=SECOND_BUCKETS,
            registry=registry,
        )  # fmt: skip
        self.batch_texts = Histogram(
            "abalone_batch_texts",
            "Texts that went through the model together.",
            buckets=TEXT_BUCKETS,
            registry=registry,
        )
        self.batch_seconds = Histogram(
            "abalone_batch_seconds", "Time the model took for a batch.", buckets=SECOND_BUCKETS, registry=registry
        )
        self.in_flight = Gauge("abalone_requests_in_flight", "Requests that are being answered.", registry=registry)
        self.waiting = Gauge("abalone_waiting_texts", "Texts that wait for the model.", registry=registry)

    def observe_batch(self, texts: int, seconds: float) -> None:
        """Count one batch."""
        self.batch_texts.observe(texts)
        self.batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class InFlight:
    """The requests that are being answered."""

    def __init__(self) -> None:
        self._deadlines: set[asyncio.Timeout] = set()

    def __len__(self) -> int:
        return len(self._deadlines)

    @asynccontextmanager
    async def request(self) -> AsyncIterator[asyncio.Timeout]:
        """Answer one request; raises `TimeoutError` where the server ends first."""
        async with asyncio.timeout(None) as deadline:
            self._deadlines.add(deadline)
            try:
                yield deadline
            finally:
                self._deadlines.discard(deadline)

    def end(self) -> None:
        """Answer all of them now: the server is stopping."""
        now = asyncio.get_running_loop().time()
        for deadline in self._deadlines:
            if not deadline.expired():
                deadline.reschedule(now)


class Guard:
    """ASGI middleware around the whole application.

    Args:
        app: what it guards.
        metrics: counts every request.
        in_flight: knows every request until it is answered.
        hosts: names that the `Host` header may have, any without it. A server bound to this machine alone must not
            answer to others, or a web page could point its own name here and read what it gets.
        key: that requests have to bring, but for questions whether the server is well.
    """

    def __init__(
        self, app: ASGIApp, *, metrics: Metrics, in_flight: InFlight, hosts: Sequence[str] | None, key: str | None
    ) -> None:
        self._app, self._metrics, self._in_flight, self._key = app, metrics, in_flight, key
        self._hosts = None if hosts is None else {name.lower() for name in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = size = 0
        headers = Headers(scope=scope)
        request_id = _request_id(headers)
        method = scope["method"]
        if method == "HEAD":  # everything that can be got
            scope = {**scope, "method": "GET"}

        async def send_guarded(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                answered = MutableHeaders(scope=message)
                for name, value in (*HEADERS.items(), ("x-request-id", request_id)):
                    answered.setdefault(name, value)
            elif method == "HEAD":
                message = {**message, "body": b""}
            else:
                size += len(message.get("body", b""))
            await send(message)

        try:
            async with self._in_flight.request() as deadline:
                answer = self._refusal(scope["path"], headers)
                await (answer or self._app)(scope, receive, send_guarded)
        except Exception as error:
            if isinstance(error, TimeoutError) and deadline.expired():
                answer = Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the server is stopping", 5).answer()
            else:
                instance = secrets.token_hex(8)
                log.exception("error %s at %s %s, request %s", instance, method, _path(scope), request_id)
                reason = f"an error of the server; its log has it as {instance}"
                answer = problem(HTTPStatus.INTERNAL_SERVER_ERROR, reason, instance=instance)
            if status == 0:
                await answer(scope, receive, send_guarded)
        finally:
            seconds = time.perf_counter() - started
            # The route's path and not the request's, which anyone can make up without end.
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.requests.labels(route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(seconds)
            if access.isEnabledFor(logging.INFO):
                line = {
                    "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                    "request_id": request_id,
                    "client": (scope.get("client") or ("",))[0],
                    "method": method[:20],
                    "path": _path(scope),
                    "status": status,
                    "seconds": round(seconds, 4),
                    "bytes": size,
                }
                access.info("%s", json.dumps(line))

    def _refusal(self, path: str, headers: Headers) -> Response | None:
        if self._hosts is not None and _host(headers) not in self._hosts:
            return problem(HTTPStatus.MISDIRECTED_REQUEST, "this server answers to its own host name only")
        if self._key is not None and path not in OPEN and not brings(headers, self._key):
            reason = "this server asks for its API key, as `Authorization: Bearer KEY`"
            # Browsers then ask for a password, and bring it with what the page asks for as well.
            return problem(HTTPStatus.UNAUTHORIZED, reason, headers={"www-authenticate": 'Basic realm="ABALONE"'})
        return None


def _host(headers: Headers) -> str:
    host = headers.get("host", "").lower()
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def _request_id(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)


def _path(scope: Scope) -> str:
    return printable(scope["path"][:200]).replace("\n", "\\n")


def read_key(file: Path | None) -> str | None:
    """Return the API key from a file or the environment; the command line is visible to all users."""
    if file is not None:
        with file.open(encoding="ascii", errors="replace") as opened:
            return _checked(opened.read(LONGEST_KEY + 2).strip(), str(file))
    key = os.environ.get(KEY_VARIABLE)
    return None if key is None else _checked(key, KEY_VARIABLE)


def brings(headers: Headers, key: str) -> bool:
    """Tell whether a request has the key: as a bearer token, or as the password of any user, which browsers ask for."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            given = b64decode(given, validate=True).decode().partition(":")[2]
        except ValueError:
            return False
    elif scheme.lower() != "bearer":
        return False
    return compare_digest(given.strip().encode(), key.encode())  # in the same time, however much of it is right


def _checked(key: str, where: str) -> str:
    if not SHORTEST_KEY <= len(key) <= LONGEST_KEY or not all("!" <= character <= "~" for character in key):
        raise InputError(
            f"{where}: an API key has {SHORTEST_KEY} to {LONGEST_KEY:,} characters of ASCII without spaces; "
            "`openssl rand -hex 16` makes one"
        )
    return key


class _AccessLines(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # its name in the library
        """Write no more: who read the lines has gone, and requests go on."""
        access.disabled = True
        logging.getLogger("abalone.serving").warning("the access log ends: it cannot be written")


def write_access_log() -> None:
    """Write a line of JSON for every request to standard output."""
    access.handlers = [_AccessLines(sys.stdout)]
    access.propagate = access.disabled = False
    access.setLevel(logging.INFO)
