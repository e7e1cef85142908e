"""Answers that say why there is no other, as RFC 9457 has it."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import JSONResponse

MEDIA_TYPE = "application/problem+json"


class Refusal(Exception):  # noqa: N818  # an answer, not a failure
    """An answer other than 200.

    Args:
        status: the HTTP status.
        reason: a sentence for the client.
        retry_after: seconds, where trying again makes sense.
    """

    def __init__(self, status: HTTPStatus, reason: str, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.retry_after = status, reason, retry_after

    def answer(self) -> JSONResponse:
        """What the client gets."""
        return problem(self.status, self.reason, retry_after=self.retry_after)


def problem(
    status: HTTPStatus,
    reason: str,
    *,
    instance: str | None = None,
    retry_after: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """The answer that tells what went wrong."""
    content: dict[str, object] = {"title": status.phrase, "status": status.value, "detail": reason}
    if instance is not None:
        content["instance"] = instance
    waiting = {} if retry_after is None else {"retry-after": str(retry_after)}
    return JSONResponse(content, status.value, {**(headers or {}), **waiting}, media_type=MEDIA_TYPE)
