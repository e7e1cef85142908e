"""What stands around every request: who may ask, what browsers may do with answers, and what becomes of errors."""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from abalone.serving.metrics import Metrics
from abalone.serving.problems import Refusal, problem

log = logging.getLogger("abalone.serving")

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
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics, in_flight: InFlight, hosts: Sequence[str] | None) -> None:
        self._app, self._metrics, self._in_flight = app, metrics, in_flight
        self._hosts = None if hosts is None else {name.lower() for name in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            async with self._in_flight.request() as deadline:
                if self._is_welcome(scope):
                    await self._app(scope, receive, send_guarded)
                else:
                    reason = "this server answers to its own host name only"
                    await problem(HTTPStatus.MISDIRECTED_REQUEST, reason)(scope, receive, send_guarded)
        except Exception as error:
            if isinstance(error, TimeoutError) and deadline.expired():
                answer = Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the server is stopping", 5).answer()
            else:
                instance = secrets.token_hex(8)
                log.exception("error %s at %s %s", instance, scope["method"], scope["path"])
                reason = f"an error of the server; its log has it as {instance}"
                answer = problem(HTTPStatus.INTERNAL_SERVER_ERROR, reason, instance=instance)
            if status == 0:
                await answer(scope, receive, send_guarded)
        finally:
            # The route's path and not the request's, which anyone can make up without end.
            path = getattr(scope.get("route"), "path", "other")
            self._metrics.requests.labels(path, str(status)).inc()
            self._metrics.seconds.labels(path).observe(time.perf_counter() - started)

    def _is_welcome(self, scope: Scope) -> bool:
        if self._hosts is None:
            return True
        host = Headers(scope=scope).get("host", "").lower()
        name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
        return name in self._hosts
