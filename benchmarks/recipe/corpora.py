"""Corpora that a recipe is scored on: whole ones, subsamples and few-shot draws, each with the whole's test split."""

import re
from functools import cache

import numpy as np

from abalone.data.corpus import Corpus, Split
from abalone.data.load import load_corpus
from abalone.data.store import take
from benchmarks.recipe.pools import few_shots

SUBSAMPLES = ("arxiv54-500", "arxiv54-2000", "arxiv54-8000")
FEW_SHOT = ("reuters-8shot", "reuters-16shot", "arxiv54-8shot", "arxiv54-16shot")
NAMES = ("reuters", "arxiv54", *SUBSAMPLES, *FEW_SHOT)


def read_corpus(name: str, path: str | None) -> Corpus:
    """Return a corpus whose training split holds all documents for training and validation.

    Args:
        name: of `NAMES`. A subsample is a random part of these documents, of the size in its name; a few-shot draw has
            8 or 16 documents per label, or all that there are. Labels without a document in it are left out.
        path: the archive of Reuters-21578, or the folder of arxiv54.
    """
    base, _, part = name.partition("-")
    corpus = _whole(base, path)
    if not part:
        return corpus
    labels, rng = corpus.train.labels, np.random.default_rng(0)
    if shots := re.fullmatch(r"(\d+)shot", part):
        rows = few_shots(labels, int(shots[1]), rng)
    else:
        rows = np.sort(rng.permutation(labels.shape[0])[: int(part)])
    kept = np.flatnonzero(np.asarray(labels[rows].sum(axis=0)).ravel())
    train = Split(take(corpus.train.texts, rows), labels[rows][:, kept])
    test = Split(corpus.test.texts, corpus.test.labels[:, kept])
    names = tuple(corpus.label_names[column] for column in kept)
    return Corpus(train, Split([], train.labels[:0]), test, names, name=name)


@cache
def _whole(base: str, path: str | None) -> Corpus:
    corpus = load_corpus(base, path=path) if base == "reuters" else load_corpus(path or base)
    return corpus.with_validation_in_train()
