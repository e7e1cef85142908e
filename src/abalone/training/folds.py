"""Folds: documents that are held out from a model, to score it on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from abalone.data.corpus import Split
from abalone.data.hashes import text_hashes
from abalone.data.split import fold_of_documents, stratified_holdout
from abalone.errors import InputError
from abalone.training.open_settings import HELD_OUT

SEED = 0


@dataclass(frozen=True, eq=False)
class Fold:
    """Documents that are held out from a model, and those it is trained on.

    Args:
        number: from 1.
        train, held_out: sorted rows of all documents.
        taught: rows that the model is trained on: `train`, and what every model is trained on.
    """

    number: int
    train: np.ndarray
    held_out: np.ndarray
    taught: np.ndarray


def divide(documents: Split, folds: int, extra: int = 0) -> list[Fold]:
    """Divide the training documents so that each label is spread as evenly as its count allows.

    Copies of a text stay together, so that no copy of a document judges it. The same documents are always divided
    alike, whatever the seed of a training: so models with other seeds or settings are judged alike too.

    Args:
        documents: texts and labels.
        folds: how many; 1 holds out a fifth of the documents once.
        extra: further rows, after those of the documents, that every model is trained on.
    """
    labels, hashes = documents.labels, text_hashes(documents.texts)
    if folds == 1:
        parts = [stratified_holdout(labels, HELD_OUT, SEED, hashes)]
    else:
        fold_of = fold_of_documents(labels, hashes, folds, SEED)
        parts = [(np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)) for fold in range(folds)]
    for number, (train, held_out) in enumerate(parts, 1):
        if labels[train].nnz == 0 or len(held_out) == 0:
            what = "training documents without any label" if len(held_out) else "no document to hold out"
            raise InputError(f"fold {number} of {folds} has {what}: lower folds, or give more documents")
    always = len(documents) + np.arange(extra)
    made = [
        Fold(number, train, held_out, np.concatenate([train, always]))
        for number, (train, held_out) in enumerate(parts, 1)
    ]
    if all(learnable(labels, fold).nnz == 0 for fold in made):
        raise InputError(
            "no label is both on a document that is held out and on one that is trained on, so thresholds cannot be "
            "fitted: give two different documents for each label, or set folds to 0 and give validation documents"
        )
    return made


def learnable(labels: csr_array, fold: Fold) -> csr_array:
    """Return the labels [n, L] of the held-out documents without those that no training document of the fold has."""
    held_out = csr_array(labels[fold.held_out])
    known = np.asarray(labels[fold.train].sum(axis=0)).ravel() > 0  # [L]
    kept = csr_array(held_out * known[None, :])
    kept.eliminate_zeros()
    return kept


def held_out_labels(documents: Split, folds: Sequence[Fold]) -> dict[str, Any]:
    """Return what `HeldOut` wants to know of the documents, in the order of folds: labels, hashes, and their folds."""
    rows = np.concatenate([fold.held_out for fold in folds])
    return {
        "labels": documents.labels[rows],
        "learnable": csr_array(vstack([learnable(documents.labels, fold) for fold in folds])),
        "documents": text_hashes(documents.texts)[rows],
        "folds": np.repeat([fold.number - 1 for fold in folds], [len(fold.held_out) for fold in folds]),
    }
