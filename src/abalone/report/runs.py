"""Documents to score, and finished models with their predictions on them."""

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
        split: which part of it; "out of fold" where these are training documents of all models, to be shown with
            out-of-fold predictions.
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
        """Whether to show the out-of-fold predictions of these documents."""
        return self.split == WHERE


@dataclass(frozen=True, eq=False)
class Answers:
    """The predictions of a run on the documents. Columns are the run's own labels.

    Args:
        truth: 0/1, [n, L].
        probabilities: [n, L]; out of fold, computed block by block.
        predictions: 0/1, [n, L]; out of fold, sparse.
        mapped: rows that the map shows, in order.
        embeddings: of those rows, [m, h]; `None` without an encoder.
        baseline: scores of the tf-idf expert alone; `None` without one.
    """

    truth: csr_array
    probabilities: Scores
    predictions: Labels
    mapped: np.ndarray
    embeddings: np.ndarray | None
    baseline: dict[str, float] | None = None

    @classmethod
    def out_of_fold(cls, found: "OutOfFold", rows: np.ndarray | slice = slice(None)) -> "Answers":
        """Return the out-of-fold predictions of training documents; without embeddings there is no map."""
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
        name: on the page.
        label_names: [L].
        decision: from probabilities to labels.
        config: its settings.
        story: metadata of its folder: history, scores, statistics of its data.
        answers: its predictions on the documents; `None` where there are none.
        out_of_fold: the out-of-fold predictions of its training documents, if the folder has them.
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
        """Its predictions; raise where there are none."""
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
    """Return a model as a run of a report, scored on the documents if there are any."""
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
        return _out_of_fold_answers(model, documents, None if predictor.backend is None else predictor.embed(texts))
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


def _out_of_fold_answers(model: "AbaloneClassifier", documents: Documents, embeddings: np.ndarray | None) -> Answers:
    """Return out-of-fold predictions of training documents; the embeddings [n, h] are the finished model's."""
    predictor = model.predictor_
    if predictor.out_of_fold is None:
        raise InputError(NOT_JUDGED)
    rows = predictor.out_of_fold.rows(documents.texts)
    if unknown := int((rows < 0).sum()):
        raise InputError(f"{unknown} of {len(rows)} documents have no out-of-fold prediction: leave them out")
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
    """Return the rows to draw, in order: all, or a fixed random sample of `limit`."""
    if documents <= limit:
        return np.arange(documents)
    return np.sort(np.random.default_rng(0).choice(documents, size=limit, replace=False))
