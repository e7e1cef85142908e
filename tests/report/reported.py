"""Runs without a model: random probabilities, and documents that carry some labels."""

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

import judged
from abalone.evaluation.decision import Decision, Thresholds
from abalone.report.runs import Answers, Documents, ReportedRun, sample

SETTINGS = {"objective": "msc", "device": "cpu"}


def answers(truth, probabilities, thresholds, embeddings=None) -> Answers:
    rng = np.random.default_rng(5)
    mapped = sample(len(probabilities))
    return Answers(
        truth=csr_array(truth),
        probabilities=probabilities,
        predictions=probabilities >= thresholds,
        mapped=mapped,
        embeddings=rng.normal(size=(len(mapped), 8)) if embeddings is None else embeddings,
    )


def run(
    name="run", documents=60, labels=7, seed=0, truth=None, names=None, probabilities=None, history=None
) -> ReportedRun:
    """A run whose first labels are frequent, with a threshold of its own for each label."""
    rng = np.random.default_rng(seed)
    if truth is None:
        truth = np.random.default_rng(99).random((documents, labels)) < np.linspace(0.6, 0.1, labels)
    truth = np.asarray(truth, dtype=np.int64)
    documents, labels = truth.shape
    if probabilities is None:
        probabilities = np.clip(0.35 * truth + 0.6 * rng.random(truth.shape), 0, 1)
    thresholds = np.linspace(0.5, 0.3, labels)
    frequencies = np.linspace(500, 3, labels).astype(int).tolist()
    return ReportedRun(
        name=name,
        label_names=tuple(names or (f"label {j}" for j in range(labels))),
        decision=Decision(Thresholds(thresholds)),
        config=dict(SETTINGS),
        story={
            "corpus": "made up",
            "statistics": {"train": 900, "validation": 90, "labels_under_30": 2, "frequencies": frequencies},
            "history": history or {},
            "scores": {},
        },
        answers=answers(truth, probabilities, thresholds),
    )


def judged_run(name="run", documents=60, labels=7, folds=3, seed=0, order=None) -> ReportedRun:
    """A run that was not scored on anything, with out-of-fold answers to its training documents in some order."""
    made = run(name, documents, labels, seed)
    order = np.arange(documents) if order is None else order
    texts = [f"document {i}" for i in order]
    answers = judged.out_of_fold(texts, made.scored.truth.toarray()[order], folds, seed=seed)
    return replace(made, answers=None, out_of_fold=answers)


def documents_of(run: ReportedRun, texts=None) -> Documents:
    """The documents that a run was scored on."""
    truth = run.scored.truth.toarray()
    labels = [[run.label_names[j] for j in np.flatnonzero(row)] for row in truth]
    return Documents("made up", "test", texts or [f"document {i}" for i in range(len(labels))], labels)
