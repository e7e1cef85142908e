"""Copies of a text, equal up to white space: told of where they are in two splits, or left out."""

from collections.abc import Mapping

import numpy as np

from abalone.data.corpus import SPLITS
from abalone.data.documents import Documents
from abalone.data.label_lists import LabelLists
from abalone.data.split import numbered
from abalone.data.texts import take


def repeated_notes(hashes: np.ndarray, rows: Mapping[str, np.ndarray]) -> list[str]:
    """What to tell of validation and test texts that are training texts.

    Args:
        hashes: of the texts of all documents, [n].
        rows: the documents of each split.
    """
    train, *others = SPLITS
    trained = hashes[rows[train]]
    repeated = {split: int(np.isin(hashes[rows[split]], trained).sum()) for split in others}
    return [
        f"{count:,} of {rows[split].size:,} {split} texts are also training texts, so scores on "
        "them will look too good."
        for split, count in repeated.items()
        if count
    ]


def without_copies(documents: Documents) -> Documents:
    """Leave out texts that occurred before; the first takes the labels of all its copies.

    So a table with one row for each label of a text becomes one with all its labels.
    """
    hashes = documents.text_hashes()
    rows = np.sort(np.unique(hashes, return_index=True)[1])  # [g], the documents that stay
    if len(rows) == len(hashes):
        return documents
    keeper = numbered(hashes)  # [n], which of those each document goes into
    labels = _merged(documents.labels, keeper, len(rows))
    per_document = np.diff(documents.label_matrix()[1].indptr)  # [n]
    differing = np.unique(keeper[per_document < labels.lengths()[keeper]]).size
    added = f"; {differing:,} of the remaining texts took labels from a copy" if differing else ""
    note = f"Duplicate texts left out: {len(hashes) - len(rows):,}{added}."
    return Documents(
        take(documents.texts, rows),
        labels,
        [documents.splits[row] for row in rows],
        documents.offered,
        documents.separator,
        [*documents.notes, note],
        hashes[rows],
    )


def _merged(lists: LabelLists, keeper: np.ndarray, kept: int) -> LabelLists:
    """The labels of documents, [n], put together by the document that each goes into; each label once."""
    together = lists.select(np.argsort(keeper, kind="stable"))
    indices, _ = together.arrays()
    owner = np.repeat(np.sort(keeper), together.lengths())  # [assignments]
    _, once = np.unique(owner * max(len(lists.names), 1) + indices, return_index=True)
    once.sort()
    return LabelLists(lists.names, indices[once], np.cumsum(np.bincount(owner[once], minlength=kept)))
