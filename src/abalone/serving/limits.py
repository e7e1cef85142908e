"""Limits of requests: what one may ask for, and how much memory all bodies in flight may take together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from abalone.errors import InputError
from abalone.serving.predictions import PredictRequest, Refusal

EVIDENCE = 20
"""Training documents that may be asked for beside a prediction."""
LARGEST_AT_ONCE = 16
"""Requests of the largest size that are in flight together."""
FREE = 64 * 1024  # bytes of each body that count for nothing: connections are limited, so these are too
GRACE = 5.0  # seconds for which a client that sends or reads a large body is left in peace
PIECE = 64 * 1024  # bytes handed to a connection at a time, as much as it buffers


class Memory:
    """Budget of bytes for all bodies in flight.

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
    """The bytes that one body takes of the memory, until the end of the `with` block.

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
    """ASGI middleware that sends an answer as fast as its client reads, and counts the bytes that wait.

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


@dataclass(frozen=True)
class Limits:
    """Limits of one request.

    Args:
        body_bytes: of the request.
        texts: in one request.
        characters: of one text.
        labels: in the answer, over all texts.
        seconds: to send the request in, and again to wait for the answer.
    """

    body_bytes: int = 4 * 1024 * 1024
    texts: int = 256
    characters: int = 100_000
    labels: int = 100_000
    seconds: float = 60.0

    @property
    def bytes_in_flight(self) -> int:
        """Return the bytes of all requests together."""
        return LARGEST_AT_ONCE * self.body_bytes

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise InputError(f"{name} must be above 0, got {value}")


async def read_request(request: Request, limits: Limits, share: Share) -> PredictRequest:
    """Return the request, checked against the limits; its bytes count for `share`. Raises `Refusal`."""
    _check_type(request)
    body = await _read_body(request, limits, share)
    try:
        asked = PredictRequest.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error) from None
    if len(asked.all_texts) > limits.texts:
        raise _unusable(f"texts has {len(asked.all_texts):,} entries, at most {limits.texts:,} are taken at a time")
    for name, text in asked.named_texts():
        if reason := _bad_text(text, limits):
            raise _unusable(f"{name} {reason}")
    if asked.evidence > EVIDENCE:
        raise _unusable(f"evidence may be at most {EVIDENCE}")
    return asked


def _check_type(request: Request) -> None:
    # Nothing else than JSON, which also keeps other sites' forms out: a browser asks before it sends JSON across.
    kind, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    charset = parameters.strip().removeprefix("charset=").strip('"')
    if kind.strip() != "application/json" or charset not in ("", "utf-8", "utf8"):
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the Content-Type must be application/json, in UTF-8")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must not be compressed")


async def _read_body(request: Request, limits: Limits, share: Share) -> bytearray:
    too_large = Refusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body may have at most {limits.body_bytes:,} bytes; send fewer texts"
    )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limits.body_bytes:
        raise too_large
    body = bytearray()
    try:
        async with share.waiting_for_client(limits.seconds):
            async for chunk in request.stream():
                if len(body) + len(chunk) > limits.body_bytes:
                    raise too_large
                share.grow(len(chunk))
                body += chunk
    except TimeoutError:
        if share.gave_way:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "others needed the room while the body arrived", 5) from None
        raise Refusal(HTTPStatus.REQUEST_TIMEOUT, f"the body did not arrive within {limits.seconds:g} s") from None
    except ClientDisconnect:
        raise Refusal(HTTPStatus.BAD_REQUEST, "the connection closed before the body was complete") from None
    return body


def _refusal(error: ValidationError) -> Refusal:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return Refusal(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}")
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])[1:]
    if first["type"] == "extra_forbidden":
        known = ", ".join(PredictRequest.model_fields)
        return _unusable(f"no field is called {place[:100]!r}; there are {known}")
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return _unusable(f"{place or 'the body'}: {message}")


def _unusable(reason: str) -> Refusal:
    return Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, reason)


def _bad_text(text: str, limits: Limits) -> str | None:
    if not text.strip():
        return "is empty"
    if len(text) > limits.characters:
        return f"has {len(text):,} characters, at most {limits.characters:,} are taken"
    if "\0" in text:
        return "contains a NUL character"
    return None
