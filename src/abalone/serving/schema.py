"""Requests, answers and refusals of the HTTP interface: their JSON, as OpenAPI shows it."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.responses import JSONResponse

MEDIA_TYPE = "application/problem+json"


class PredictRequest(BaseModel):
    """One text or several, and what is wanted of them."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"text": "A text to label."}, {"texts": ["One.", "Two."], "top_k": 5}]},
    )

    text: str | None = Field(None, description="One text. Either this or `texts`.")
    texts: list[str] | None = Field(None, description="Several texts; the answer keeps their order.")
    top_k: int | None = Field(
        None,
        ge=1,
        description="Return this many of the most probable labels, whatever their thresholds. Without it, the labels "
        "whose probability reaches their threshold.",
    )
    evidence: int = Field(0, ge=0, description="Return this many nearest training documents with each prediction.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.text is None) == (self.texts is None):
            raise ValueError("give either text, one string, or texts, a list of strings")
        if self.texts == []:
            raise ValueError("texts is empty")
        return self

    @property
    def all_texts(self) -> list[str]:
        """Return the texts, be it one or several."""
        return [self.text] if self.text is not None else self.texts or []

    def named_texts(self) -> Iterator[tuple[str, str]]:
        """Yield each text with the name it has in the request, for messages."""
        if self.text is not None:
            yield "text", self.text
        else:
            yield from ((f"texts[{place}]", text) for place, text in enumerate(self.texts or []))


class ScoredLabel(BaseModel):
    """A label and how sure the model is of it."""

    name: str
    probability: float
    threshold: float | None = Field(description="The label is given from this probability on; null if it never is.")
    given: bool = Field(description="Whether the model gives the label to the text.")


class Neighbour(BaseModel):
    """A training document near the text."""

    text: str = Field(description="Its beginning.")
    labels: list[str]
    similarity: float = Field(description="Cosine of the embeddings.")


class Prediction(BaseModel):
    """The prediction for one text."""

    labels: list[ScoredLabel] = Field(description="The most probable first.")
    evidence: list[Neighbour] | None = Field(None, description="The nearest first; only if the request asks for it.")


class PredictResponse(BaseModel):
    """One prediction per text, in order."""

    model: str
    predictions: list[Prediction]


class KnownLabel(BaseModel):
    """A label that the model can give."""

    name: str
    threshold: float | None = Field(description="Null if it is never given.")
    documents: int | None = Field(description="Training documents that carry it; null if the model does not know.")
    f1: float | None = Field(description="F1 on validation, from 0 to 1; null if no validation document carries it.")


class LabelsResponse(BaseModel):
    """The model's labels and what a request may ask for."""

    model: str
    labels: list[KnownLabel]
    evidence: bool = Field(description="Whether requests may ask for training documents.")
    max_texts: int
    max_characters: int
    max_labels: int = Field(description="In one answer, over all of its texts.")


class Status(BaseModel):
    """All is well; anything else is a problem."""

    status: str


class Health(Status):
    """All is well with this model."""

    model: str


class Problem(BaseModel):
    """Why a request was refused, as RFC 9457 has it."""

    title: str
    status: int
    detail: str
    instance: str | None = Field(None, description="For a server error: its id in the server's log.")


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
        """Return the response for the client."""
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
