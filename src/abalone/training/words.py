"""A model without an encoder: tf-idf and a linear SVM a label, decided as every other model is. Trained in seconds."""

from typing import Any

import numpy as np

from abalone.config import Config
from abalone.data.corpus import Corpus, Split
from abalone.data.seen import SeenTexts
from abalone.evaluation.decision import Decision, fit_and_score
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.scored_model import label_f1
from abalone.model.predictor import Predictor


def fit_lexical(train: Split, held_out: Split, seed: int) -> LexicalModel:
    """Fit the SVMs to some documents, and their logits to others, which the SVMs must not have seen."""
    return LexicalModel(seed=seed).fit(train.texts, train.labels).calibrate(held_out.texts, held_out.labels)


def fit_words(config: Config, corpus: Corpus) -> Predictor:
    """Train a model of words alone on the training split, and fit its decision on validation."""
    lexical = fit_lexical(corpus.train, corpus.validation, config.seed)
    logits = lexical.logits_in_blocks(corpus.validation.texts)
    story = story_of(corpus)
    frequencies = np.array(story["statistics"]["frequencies"])
    decision, scores = fit_and_score(logits, {}, corpus.validation.labels, frequencies, config)
    story |= {
        "scores": {"validation": scores},
        "label_f1": label_f1(decision, decision.scores(logits, {}), corpus.validation.labels),
    }
    return words_model(config, corpus, lexical, decision, story)


def words_model(
    config: Config, corpus: Corpus, lexical: LexicalModel, decision: Decision, story: dict[str, Any]
) -> Predictor:
    """Put a finished model of words alone together; `decision` is fitted to the logits of `lexical`, and mixes none."""
    seen = SeenTexts.of(corpus.train.texts, corpus.validation.texts)
    return Predictor(config, corpus.label_names, None, None, None, decision, lexical, story=story, seen=seen)


def story_of(corpus: Corpus) -> dict[str, Any]:
    """Return what a model tells of its data; history and scores are to be added."""
    return {
        "corpus": corpus.name,
        "provenance": dict(corpus.provenance),
        "statistics": corpus.stats().as_dict(),
        "history": {},
        "scores": {},
    }
