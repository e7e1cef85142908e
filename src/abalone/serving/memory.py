"""How much memory the bodies of requests and answers may take together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from abalone.serving.problems import Refusal

FREE = 64 * 1024  # bytes of each body that count for nothing: connections are limited, so these are too
GRACE = 5.0  # seconds for which a client that sends or reads a large body is left in peace
PIECE = 64 * 1024  # bytes handed to a connection at a time, as much as it buffers


class Memory:
    """Bytes for all bodies in flight.

    Where there is no room left, the client that has kept a large body waiting for longest gives way, if that is more
    than a few seconds: halves of requests that never become whole must not keep others out. Small bodies always find
    room.

    Args:
        most: bytes in all, those that are free not counted.
    """

    def __init__(self, most: int) -> None:
        self.left = most
        self.slow: dict[Share, float] = {}  # those that wait for their client, and since when, the longest first

    def take(self, size: int) -> None:
        """Take so many bytes; raises `Refusal` where there is no room."""
        latest = asyncio.get_running_loop().time() - GRACE
        while size > self.left:
            oldest = next(iter(self.slow), None)
            if oldest is None or self.slow[oldest] > latest:
                raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many large requests at a time; try again later", 5)
            oldest.give_way()
        self.left -= size


class Share:
    """What one body takes of the memory, until the end of the `with` block.

    Args:
        memory: which all share.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._size = self._taken = 0
        self._deadline: asyncio.Timeout | None = None
        self.gave_way = False

    def __enter__(self) -> "Share":
        return self

    def __exit__(self, *error: object) -> None:
        self._return()

    def grow(self, size: int) -> None:
        """Take so many bytes more; raises `Refusal` where there is no room."""
        self._size += size
        more = max(self._size - FREE, 0) - self._taken
        if more > 0:
            self._memory.take(more)
            self._taken += more

    @asynccontextmanager
    async def waiting_for_client(self, seconds: float | None = None) -> AsyncIterator[None]:
        """Wait for so long at most; raises `TimeoutError` then, and when another client needs the room."""
        try:
            async with asyncio.timeout(seconds) as self._deadline:
                self._memory.slow[self] = asyncio.get_running_loop().time()
                yield
        finally:
            self._memory.slow.pop(self, None)

    def give_way(self) -> None:
        """Return everything and end the wait."""
        self.gave_way = True
        del self._memory.slow[self]
        self._return()
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time())

    def _return(self) -> None:
        self._memory.left += self._taken
        self._taken = 0


class Paced:
    """ASGI middleware that hands an answer on as fast as its client reads, and counts what waits.

    Args:
        app: whose answers they are.
        memory: where they are counted.
    """

    def __init__(self, app: ASGIApp, *, memory: Memory) -> None:
        self._app, self._memory = app, memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        head: Message | None = None  # kept until it is known whether there is room for the body
        ended = False

        async def send_paced(message: Message) -> None:
            nonlocal head, ended
            if ended:
                return
            if message["type"] == "http.response.start":
                head = message
                return
            body = message.get("body", b"")
            try:
                share.grow(len(body))
                if head is not None:
                    await send(head)
                    head = None
                if len(body) <= PIECE:
                    await send(message)
                    return
                async with share.waiting_for_client():
                    for start in range(0, len(body), PIECE):
                        more = start + PIECE < len(body) or message.get("more_body", False)
                        await send({**message, "body": body[start : start + PIECE], "more_body": more})
            except Refusal as refusal:
                ended = True
                await refusal.answer()(scope, receive, send)
            except TimeoutError:  # it reads too slowly; the server closes what is not complete
                ended = True

        with Share(self._memory) as share:
            await self._app(scope, receive, send_paced)
