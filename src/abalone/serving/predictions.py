"""Predictions of the served model: queries in, verdicts with evidence, and the body of an answer."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

import numpy as np

from abalone.inference.evidence import Document, Evidence
from abalone.inference.predictor import Predictor, Vectors
from abalone.serving.schema import Refusal


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
