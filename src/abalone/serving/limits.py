"""What a request may be, and how it is refused: every refusal says why."""

from dataclasses import dataclass
from http import HTTPStatus

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request

from abalone.serving.memory import Share
from abalone.serving.problems import Refusal
from abalone.serving.schema import PredictRequest

EVIDENCE = 20
"""Training documents that may be asked for beside a prediction."""
LARGEST_AT_ONCE = 16
"""Requests of the largest size that are in flight together."""


@dataclass(frozen=True)
class Limits:
    """How much one request may ask for.

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
        """Of all requests together."""
        return LARGEST_AT_ONCE * self.body_bytes

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise ValueError(f"{name} must be above 0, got {value}")


async def read_request(request: Request, limits: Limits, share: Share) -> PredictRequest:
    """The request, checked against the limits; its bytes count for `share`. Raises `Refusal`."""
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
