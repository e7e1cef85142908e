"""The lexical expert in training, and a model that is this expert alone: no encoder, trained in seconds."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from abalone.config import Config
from abalone.data.corpus import Corpus, Split
from abalone.data.hashes import SeenTexts
from abalone.evaluation import matrices
from abalone.evaluation.calibration import PlattScaling
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.matrices import Scores, stacked
from abalone.evaluation.tfidf import TermCounts
from abalone.inference.predictor import Predictor
from abalone.progress import overall
from abalone.training.decide import Decided, HeldOut, decide
from abalone.training.folds import Fold, divide, held_out_labels
from abalone.training.label_names import taught_by

# Kinds of work in the estimate: documents whose words are counted, and documents that experts are fitted to.
COUNTED, FITTED = "counting", "words"


class Words:
    """Documents whose words are counted once, to fit lexical experts to parts of them and ask these about others.

    Args:
        documents: texts and labels.
        seed: of the solver.
    """

    def __init__(self, documents: Split, seed: int) -> None:
        self.documents, self._seed = documents, seed
        overall().begin("Counting words")
        self._counts = TermCounts.of(documents.texts)
        overall().done(COUNTED, len(documents))

    def expert(self, rows: np.ndarray) -> LexicalModel:
        """Fit an expert to some of the documents; how its decisions become logits is left to `link`."""
        overall().begin("Fitting tf-idf")
        expert = LexicalModel(seed=self._seed).fit_counts(self._counts, rows, self.documents.labels[rows])
        overall().done(FITTED, len(rows))
        return expert

    def link(self, experts: Sequence[LexicalModel], folds: Sequence[Fold]) -> PlattScaling:
        """Fit the one link to what each expert says of the documents held out from it.

        An expert that was fitted to all documents takes it too: fitted to documents that the expert knows, it would
        take every decision for certain. Of many documents and labels some, evenly spread, are enough for its numbers.
        """
        labels = self.documents.labels
        pairs = sum(len(fold.held_out) for fold in folds) * labels.shape[1]
        step = math.ceil(pairs / matrices.AT_ONCE)
        said = []
        for expert, fold in zip(experts, folds, strict=True):
            rows, varied = fold.held_out[::step], ~expert.constant
            decisions = expert.decisions_of(self._counts, rows)[:, varied]
            positive = labels[rows].toarray()[:, varied] == 1
            log_odds = np.broadcast_to(expert.log_odds[varied], decisions.shape)
            said.append([each.ravel() for each in (decisions, positive, log_odds)])
        return PlattScaling.fitted(*(np.concatenate(part)[:, None] for part in zip(*said, strict=True)))

    def logits(self, expert: LexicalModel, rows: np.ndarray) -> Scores:
        """Return the logits of an expert for some of the documents, [n, L]."""
        return expert.logits_of(self._counts, rows)


def cross_fit_words(
    words: Words, experts: Sequence[LexicalModel], folds: Sequence[Fold]
) -> tuple[Scores, PlattScaling]:
    """Return what experts of folds say of their held-out documents, in the order of folds, and their Platt scaling."""
    link = words.link(experts, folds)
    for expert in experts:
        expert.link = link
    said = [words.logits(expert, fold.held_out) for expert, fold in zip(experts, folds, strict=True)]
    return stacked(said), link


def fit_words(config: Config, corpus: Corpus) -> Predictor:
    """Train a model of words alone, and fit its decision to documents held out, or to validation."""
    taught = taught_by(config, corpus)
    words, frequencies = Words(taught, config.seed), np.array(corpus.stats().frequencies)
    every = np.arange(len(taught))
    if config.folds:
        folds = divide(corpus.train, config.folds, len(taught) - len(corpus.train))
        logits, link = cross_fit_words(words, [words.expert(fold.taught) for fold in folds], folds)
        expert = words.expert(every)
        expert.link = link
        held = HeldOut(logits, {}, **held_out_labels(corpus.train, folds))
    else:
        validation = corpus.validation
        expert = words.expert(every).calibrate(validation.texts, validation.labels)
        held = HeldOut(expert.logits_in_blocks(validation.texts), {}, validation.labels, validation.labels)
    decided = decide(held, frequencies, config)
    return words_model(config, corpus, expert, decided)


def words_model(config: Config, corpus: Corpus, expert: LexicalModel, decided: Decided, **story: Any) -> Predictor:
    """Put a model of words alone together; the decision is fitted to the logits of the expert, and mixes none."""
    return Predictor(
        corpus.label_names,
        None,
        decided.decision,
        expert,
        story={**story_of(corpus), **decided.story, **story},
        seen=SeenTexts.of(corpus.train.texts, corpus.validation.texts),
        out_of_fold=decided.out_of_fold,
        trained_with=config,
    )


def story_of(corpus: Corpus) -> dict[str, Any]:
    """Return what a model tells of its data; history and scores are to be added."""
    return {
        "corpus": corpus.name,
        "provenance": dict(corpus.provenance),
        "statistics": corpus.stats().as_dict(),
        "history": {},
        "scores": {},
    }
