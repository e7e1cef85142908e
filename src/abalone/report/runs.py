"""What a report is about: finished models, and what they make of documents whose labels are known."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from abalone.data.in_memory import known_labels
from abalone.errors import InputError
from abalone.evaluation.matrices import EVERY, Labels, Scores, of_documents
from abalone.evaluation.metrics import label_thirds
from abalone.evaluation.out_of_fold import WHERE
from abalone.inference.predictor import NOT_JUDGED

if TYPE_CHECKING:
    from abalone.classifier import AbaloneClassifier
    from abalone.evaluation.decision import Decision
    from abalone.evaluation.out_of_fold import OutOfFold

LIMIT_OF_MAP = 2000  # documents; t-SNE of more takes minutes, and their points would lie on top of each other


@dataclass(frozen=True)
class Documents:
    """The documents that every run of a report is scored on.

    Args:
        name: of the corpus.
        split: which part of it; "out of fold" where these are training documents of all models, to be shown with the
            answers of models that had not seen them.
        texts: the documents.
        labels: the label names of each.
    """

    name: str
    split: str
    texts: Sequence[str]
    labels: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.labels):
            raise InputError(f"{len(self.texts)} texts but labels for {len(self.labels)}")
        if not len(self.texts):
            raise InputError("there are no documents to score")

    @property
    def out_of_fold(self) -> bool:
        """Whether models are asked for what was said of them out of fold."""
        return self.split == WHERE


@dataclass(frozen=True, eq=False)
class Answers:
    """What a run makes of the documents. Columns are the run's own labels.

    Args:
        truth: 0/1, [n, L].
        probabilities: [n, L]; of out-of-fold answers, computed block by block.
        predictions: 0/1, [n, L]; of out-of-fold answers, sparse.
        mapped: rows that the map shows, in order.
        embeddings: of those rows, [m, h]; `None` of a model without an encoder.
        baseline: scores of the tf-idf model that is mixed in, by itself; `None` where there is none.
    """

    truth: csr_array
    probabilities: Scores
    predictions: Labels
    mapped: np.ndarray
    embeddings: np.ndarray | None
    baseline: dict[str, float] | None = None

    @classmethod
    def out_of_fold(cls, found: "OutOfFold", rows: np.ndarray | slice = slice(None)) -> "Answers":
        """Return what was said of training documents by models that had not seen them; nothing of it can be mapped."""
        order = np.arange(len(found))[rows]
        return cls(
            truth=found.labels[order],
            probabilities=of_documents(found.said(), order),
            predictions=found.given[order],
            mapped=np.zeros(0, dtype=np.int64),
            embeddings=None,
        )


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """One model of a report.

    Args:
        name: how the page calls it.
        label_names: [L].
        decision: from probabilities to labels.
        config: its settings.
        story: what its folder tells: history, scores, statistics of its data.
        answers: what it makes of the documents; `None` where there are none.
        out_of_fold: what was said of its training documents by models that had not seen them, if it is known.
    """

    name: str
    label_names: tuple[str, ...]
    decision: "Decision"
    config: dict[str, Any]
    story: dict[str, Any]
    answers: Answers | None = None
    out_of_fold: "OutOfFold | None" = None

    @property
    def scored(self) -> Answers:
        """Its answers, which must be there."""
        if self.answers is None:
            raise InputError(f"the run {self.name!r} was not scored on the documents of the report")
        return self.answers

    @property
    def frequencies(self) -> np.ndarray:
        """Training documents of each label, [L]."""
        return np.array(self.story["statistics"]["frequencies"], dtype=np.int64)

    @property
    def thirds(self) -> np.ndarray:
        """The third of each label, [L]."""
        return label_thirds(self.frequencies)


def run_of(name: str, model: "AbaloneClassifier", documents: Documents | None = None) -> ReportedRun:
    """A model as a report wants it, scored on the documents if there are any."""
    predictor = model.predictor_
    return ReportedRun(
        name=name,
        label_names=predictor.label_names,
        decision=predictor.decision,
        config=predictor.config.to_dict(),
        story=predictor.story,
        answers=None if documents is None else _answers(model, documents),
        out_of_fold=predictor.out_of_fold,
    )


def _answers(model: "AbaloneClassifier", documents: Documents) -> Answers:
    texts, predictor = documents.texts, model.predictor_
    if documents.out_of_fold:
        return _honest_answers(model, documents, None if predictor.backend is None else predictor.embed(texts))
    probabilities, vectors = predictor.probabilities_and_vectors(texts)
    embeddings = vectors if isinstance(vectors, np.ndarray) else None
    mapped = sample(len(texts))
    truth = known_labels(documents.labels, model.label_names)
    return Answers(
        truth=truth,
        probabilities=probabilities,
        predictions=predictor.decision.labels(probabilities),
        mapped=mapped,
        embeddings=None if embeddings is None else embeddings[mapped],
        baseline=predictor.tfidf_alone(truth, texts),
    )


def _honest_answers(model: "AbaloneClassifier", documents: Documents, embeddings: np.ndarray | None) -> Answers:
    """What was said of training documents out of fold; the embeddings [n, h] are those of the finished model."""
    predictor = model.predictor_
    if predictor.out_of_fold is None:
        raise InputError(NOT_JUDGED)
    rows = predictor.out_of_fold.rows(documents.texts)
    if unknown := int((rows < 0).sum()):
        raise InputError(f"{unknown} of {len(rows)} documents have no out-of-fold answer: leave them out")
    mapped = sample(len(rows))
    return Answers(
        truth=known_labels(documents.labels, model.label_names),
        probabilities=predictor.out_of_fold.said()[rows, EVERY],
        predictions=predictor.out_of_fold.given[rows].toarray().astype(bool),
        mapped=mapped,
        embeddings=None if embeddings is None else embeddings[mapped],
        baseline=predictor.story.get("scores", {}).get(f"{WHERE}, tf-idf alone"),
    )


def sample(documents: int, limit: int = LIMIT_OF_MAP) -> np.ndarray:
    """Rows to draw, in order: all, or as many as the limit allows, always the same ones."""
    if documents <= limit:
        return np.arange(documents)
    return np.sort(np.random.default_rng(0).choice(documents, size=limit, replace=False))
