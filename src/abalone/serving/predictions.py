"""Predictions of the served model: what a request asks, what is answered or refused, and the JSON of each."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.responses import JSONResponse

from abalone.inference.evidence import Document, Evidence
from abalone.inference.predictor import Predictor, Vectors

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


@dataclass(frozen=True)
class Query:
    """One text of a request, and how many training documents it wants to see."""

    text: str
    evidence: int = 0


@dataclass(frozen=True, eq=False)
class Verdict:
    """The prediction for one text."""

    probabilities: np.ndarray  # [L]
    given: np.ndarray  # [L], bool
    evidence: list[Document] | None


@dataclass(frozen=True, eq=False)
class Served:
    """A model as the server knows it.

    Args:
        name: how answers call it.
        classifier: the model; used by one thread at a time.
        frequencies: [L], training documents of each label, where they are known.
        evidence: training documents to show, if any.
        label_f1: [L], F1 of each label on validation, where it is known.
    """

    name: str
    classifier: Predictor
    frequencies: Sequence[int] | None = None
    evidence: Evidence | None = None
    label_f1: Sequence[float | None] | None = None

    def answer(self, queries: Sequence[Query]) -> list[Verdict]:
        """Return the prediction for each query, in order."""
        texts = [query.text for query in queries]
        probabilities, vectors = self.classifier.probabilities_and_vectors(texts)  # [n, L], [n, h]
        given = self.classifier.decision.labels(probabilities)  # [n, L]
        near = self._nearest(queries, vectors)
        return [Verdict(probabilities[row], given[row], near.get(row)) for row in range(len(queries))]

    def _nearest(self, queries: Sequence[Query], vectors: Vectors) -> dict[int, list[Document]]:
        asking = [row for row, query in enumerate(queries) if query.evidence]
        if self.evidence is None or not asking:
            return {}
        found = self.evidence.nearest(vectors[asking], max(queries[row].evidence for row in asking))
        return {row: near[: queries[row].evidence] for row, near in zip(asking, found, strict=True)}


@dataclass(frozen=True)
class Predictions:
    """Writer of the answers of one model.

    Args:
        served: the model.
        most: labels in one answer, over all of its texts.
    """

    served: Served
    most: int

    def check(self, texts: int, top_k: int | None) -> None:
        """Refuse a request whose answer would be too large, before the model works on it."""
        if top_k is not None:
            self._check_size(texts * min(top_k, len(self.served.classifier.label_names)))

    def body(self, verdicts: Sequence[Verdict], top_k: int | None) -> bytes:
        """Return the JSON of an answer. It takes a while where labels are many: call it in a thread."""
        if top_k is None:
            self._check_size(sum(int(verdict.given.sum()) for verdict in verdicts))
        # One text at a time: `json` gives no other thread a turn before it is done.
        predictions = ",".join(_json(self._prediction(verdict, top_k)) for verdict in verdicts)
        return f'{{"model":{_json(self.served.name)},"predictions":[{predictions}]}}'.encode()

    def _check_size(self, labels: int) -> None:
        if labels > self.most:
            raise Refusal(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"the answer would have {labels:,} labels, at most {self.most:,} are given at a time; send fewer texts "
                "or a smaller top_k",
            )

    def _prediction(self, verdict: Verdict, top_k: int | None) -> dict[str, object]:
        names, thresholds = self.served.classifier.label_names, self.served.classifier.decision.thresholds.values
        order = np.argsort(-verdict.probabilities, kind="stable")
        chosen = order[verdict.given[order]] if top_k is None else order[:top_k]
        labels = [
            {
                "name": names[j],
                "probability": round(float(verdict.probabilities[j]), 6),
                "threshold": shown_threshold(thresholds[j]),
                "given": bool(verdict.given[j]),
            }
            for j in chosen.tolist()
        ]
        evidence = None if verdict.evidence is None else [vars(document) for document in verdict.evidence]
        return {"labels": labels, "evidence": evidence}


def shown_threshold(value: float) -> float | None:
    """Return a threshold as answers show it; `None` for a label that is never given."""
    return round(float(value), 6) if value <= 1 else None


def _json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
