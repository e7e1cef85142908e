"""Documents to choose a recipe on: whole corpora, subsamples and few-shot draws, never a test document.

A pool is what a user could have: documents to train on, and others, of the same training and validation splits, that
judge. `python -m benchmarks.recipe.screen prepare` writes their tokens and labels into one file, which is all that a
machine with a GPU needs.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, vstack

from abalone.data.benchmarks import exact_split
from abalone.data.corpus import Corpus
from abalone.data.tokens import TokenArray

FIFTHS = 5  # of a whole corpus: one judges what the others have trained
FRESH = 3000  # documents that judge a subsample: enough for all but the rarest labels
SUBSAMPLES = (500, 2000, 8000)
SHOTS = (8, 16)


@dataclass(frozen=True)
class Base:
    """The training and validation documents of a corpus."""

    tokens: TokenArray
    labels: csr_array  # [n, L]


@dataclass(frozen=True)
class Pool:
    """Rows of a base corpus: to train on, and to judge by."""

    base: str
    train: np.ndarray
    judged: np.ndarray


def joined(corpus: Corpus) -> tuple[list[str], csr_array]:
    """Return the texts and labels [n, L] of training and validation, in this order."""
    texts = [*corpus.train.texts, *corpus.validation.texts]
    return texts, csr_array(vstack([corpus.train.labels, corpus.validation.labels]))


def pools(base: str, labels: csr_array, seed: int = 0) -> dict[str, Pool]:
    """Return the pools of a corpus by name: the whole, subsamples (of large corpora), few-shot draws.

    Args:
        base: the name of the corpus; `reuters` is judged by its first fifth, `reuters/1` by its second, and so on.
        labels: [n, L].
        seed: of subsamples and few-shot draws; the fifths are always the same.
    """
    rng = np.random.default_rng(seed)
    parts = exact_split(labels, (1,) * FIFTHS, 0)
    made = {}
    for fold, judged in enumerate(parts):
        train = np.sort(np.concatenate([*parts[:fold], *parts[fold + 1 :]]))
        made[base if fold == 0 else f"{base}/{fold}"] = Pool(base, train, judged)
    order = rng.permutation(labels.shape[0])
    for size in SUBSAMPLES:
        if size + FRESH <= len(order) // 2:
            made[f"{base}-{size}"] = Pool(base, np.sort(order[:size]), np.sort(order[-FRESH:]))
    for shots in SHOTS:
        drawn = few_shots(labels, shots, rng)
        others = np.setdiff1d(order, drawn)
        made[f"{base}-{shots}shot"] = Pool(base, drawn, np.sort(rng.permutation(others)[:FRESH]))
    return made


def few_shots(labels: csr_array, shots: int, rng: np.random.Generator) -> np.ndarray:
    """Draw documents, the rarest label first, until each label has `shots` of them or all it has."""
    by_label = labels.T.tocsr()
    counts = np.diff(by_label.indptr)
    chosen = np.zeros(labels.shape[0], dtype=bool)
    for label in np.argsort(counts, kind="stable"):
        carriers = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]
        missing = min(shots, len(carriers)) - int(chosen[carriers].sum())
        if missing > 0:
            chosen[rng.permutation(carriers[~chosen[carriers]])[:missing]] = True
    return np.flatnonzero(chosen)


def rows_of(tokens: TokenArray, rows: np.ndarray) -> TokenArray:
    """Return some documents of a token array, in this order."""
    pieces = [tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]] for row in rows]
    offsets = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])])
    return TokenArray(np.concatenate(pieces), offsets, tokens.prefix, tokens.suffix)


def write_base(path: Path, base: Base, longest: int) -> None:
    """Write tokens, cut to what is read of them, and labels into one file."""
    lengths = np.minimum(np.diff(base.tokens.offsets), longest)
    pieces = [base.tokens.ids[start : start + n] for start, n in zip(base.tokens.offsets[:-1], lengths, strict=True)]
    np.savez(
        path,
        ids=np.concatenate(pieces),
        lengths=lengths.astype(np.uint16),
        around=np.array([base.tokens.prefix, base.tokens.suffix]),
        indices=base.labels.indices.astype(np.uint16),
        indptr=base.labels.indptr.astype(np.int32),
        columns=np.array(base.labels.shape[1]),
    )


def read_base(path: Path) -> Base:
    """Read what `write_base` wrote."""
    stored = np.load(path)
    offsets = np.concatenate([[0], np.cumsum(stored["lengths"].astype(np.int64))])
    prefix, suffix = (tuple(int(token) for token in each) for each in stored["around"])
    shape = len(offsets) - 1, int(stored["columns"])
    indices = stored["indices"].astype(np.int32)
    labels = csr_array((np.ones(len(indices), dtype=np.int32), indices, stored["indptr"]), shape=shape)
    return Base(TokenArray(stored["ids"], offsets, prefix, suffix), labels)
