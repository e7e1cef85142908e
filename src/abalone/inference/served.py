"""What the server needs of a model, and how one answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from abalone.evaluation.blocks import Scores
from abalone.evaluation.decision import Decision
from abalone.inference.evidence import Document, Evidence
from abalone.inference.predictor import Vectors


class Classifier(Protocol):
    """A model that can be served: `Predictor` is one, `OnnxModel` is another."""

    @property
    def label_names(self) -> Sequence[str]:
        """[L], the columns of every matrix."""
        ...

    @property
    def decision(self) -> Decision:
        """Chooses labels from probabilities."""
        ...

    def probabilities_and_vectors(self, texts: Sequence[str], /) -> tuple[np.ndarray, Vectors]:
        """[n, L] and `vectors`, each text encoded once."""
        ...

    def scores(self, texts: Sequence[str], /) -> Scores:
        """The probabilities, computed block by block where texts and labels are many."""
        ...

    def vectors(self, texts: Sequence[str], /) -> Vectors:
        """[n, h]; only asked for where there is evidence to search."""
        ...


@dataclass(frozen=True)
class Query:
    """One text of a request, and how many training documents it wants to see."""

    text: str
    evidence: int = 0


@dataclass(frozen=True, eq=False)
class Verdict:
    """What the model says of one text."""

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
    classifier: Classifier
    frequencies: Sequence[int] | None = None
    evidence: Evidence | None = None
    label_f1: Sequence[float | None] | None = None

    def answer(self, queries: Sequence[Query]) -> list[Verdict]:
        """One answer a query, in order."""
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
