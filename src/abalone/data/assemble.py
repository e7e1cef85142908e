"""From documents to a `Corpus`: splits, label columns, and the findings a person should know of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array

from abalone.data.corpus import Corpus, Split
from abalone.data.documents import Documents
from abalone.data.errors import DataError
from abalone.data.labels import differing_by_case, in_order, label_matrix
from abalone.data.split import iterative_split, lacking, stratified_holdout

SPLITS = ("train", "validation", "test")
SHARES = (0.8, 0.1, 0.1)
HOLDOUT = 0.1
NAMED = 10  # names in a note, before it only counts


@dataclass
class _Partition:
    """The documents of each split, and how they came there."""

    rows: list[np.ndarray]  # of train, validation, test
    provenance: dict[str, object]
    notes: list[str] = field(default_factory=list)


def assemble(documents: Documents, *, name: str, origin: str, seed: int, provenance: Mapping[str, object]) -> Corpus:
    """Build the corpus.

    Args:
        documents: texts, labels and, where they are known, splits.
        name: of the corpus.
        origin: what the given splits come from, for the provenance.
        seed: of the splits that are made here.
        provenance: what is known so far.
    """
    notes = list(documents.notes)
    labels = [tuple(dict.fromkeys(carried)) for carried in documents.labels]
    names = in_order(label for carried in labels for label in carried)
    matrix = label_matrix(labels, names)  # [n, L], over all documents
    if not names:
        raise DataError("no document has a label", path=name)
    partition = _partition(matrix, documents.splits, names, origin, seed)
    notes += _label_findings(documents.labels, labels, names) + partition.notes

    held = np.stack([matrix[rows].sum(axis=0) for rows in partition.rows])  # [3, L]
    trained = np.flatnonzero(held[0])
    unseen = tuple(names[label] for label in np.flatnonzero(held[0] == 0))
    if not trained.size:
        raise DataError("no training document has a label", path=name)
    if unseen:
        notes.append(unseen_message(unseen))
    notes += _one_split_only(held, names)
    train, validation, test = (
        Split([documents.texts[row] for row in rows], csr_array(matrix[rows][:, trained])) for rows in partition.rows
    )
    return Corpus(
        train,
        validation,
        test,
        label_names=tuple(names[label] for label in trained),
        name=name,
        provenance={**provenance, "split": partition.provenance},
        unseen_labels=unseen,
        notes=tuple(notes),
    )


def unseen_message(unseen: Iterable[str]) -> str:
    """What to tell of labels that no training document carries."""
    return f"In no training document, so left out of training and scoring: {listed(unseen)}."


def listed(names: Iterable[str]) -> str:
    """Names for a sentence: the first few, then a count."""
    every = list(names)
    more = f" and {len(every) - NAMED} more" if len(every) > NAMED else ""
    return ", ".join(every[:NAMED]) + more


def _partition(matrix: csr_array, given: list[str | None], names: list[str], origin: str, seed: int) -> _Partition:
    """Take the splits that are given and make those that are missing."""
    of_row = np.array([split or "" for split in given])
    train, validation, test = (np.flatnonzero(of_row == split) for split in SPLITS)
    if not validation.size and not test.size:
        rows = iterative_split(matrix, SHARES, seed)
        made: dict[str, object] = {"origin": "stratified", "seed": seed, "shares": list(SHARES)}
        notes = ["No split was given: one was made by iterative stratification, 80/10/10."]
        notes += _exceptions(matrix, rows, names, SPLITS, made)
        return _Partition(rows, made, notes)
    if not train.size:
        raise DataError(f"no document is in the training split (given by {origin})")
    made = {"origin": origin}
    notes = []
    if not validation.size:
        of_train = matrix[train]
        parts = stratified_holdout(of_train, HOLDOUT, seed)
        notes.append("No validation split was given: a stratified tenth of train was split off.")
        made |= {"validation": "stratified from train", "seed": seed, "shares": [1 - HOLDOUT, HOLDOUT]}
        notes += _exceptions(of_train, list(parts), names, SPLITS[:2], made)
        train, validation = (train[part] for part in parts)
    if not test.size:
        notes.append("No test split was given: test is empty.")
    return _Partition([train, validation, test], made, notes)


def _exceptions(
    matrix: csr_array, parts: list[np.ndarray], names: list[str], splits: tuple[str, ...], made: dict[str, object]
) -> list[str]:
    """Labels that stratification could not put everywhere: all in the provenance, the first few in notes."""
    absent = {
        split: [names[label] for label in labels]
        for split, labels in zip(splits, lacking(matrix, parts), strict=True)
        if labels.size
    }
    frequencies = matrix.sum(axis=0)
    few = [names[label] for label in np.flatnonzero((frequencies > 0) & (frequencies < len(parts)))]
    made |= {"exceptions": absent, "too_few_documents": few}
    notes = [
        f"Stratification could not put into {split}, since their documents are needed elsewhere: {listed(labels)}."
        for split, labels in absent.items()
    ]
    if few:
        notes.append(f"With fewer than {len(parts)} documents, so not in every split: {listed(few)}.")
    return notes


def _label_findings(written: list[tuple[str, ...]], distinct: list[tuple[str, ...]], names: list[str]) -> list[str]:
    notes = []
    if repeated := sum(len(once) < len(all_) for all_, once in zip(written, distinct, strict=True)):
        notes.append(f"Documents that repeat a label, which counts once: {repeated}.")
    if unlabelled := sum(not carried for carried in distinct):
        notes.append(f"Documents without labels: {unlabelled}.")
    if groups := differing_by_case(names):
        notes.append(f"Labels that differ only by case are kept apart: {listed('/'.join(g) for g in groups)}.")
    return notes


def _one_split_only(held: np.ndarray, names: list[str]) -> list[str]:
    """Labels that only one split has, where another has documents at all."""
    if (held.sum(axis=1) > 0).sum() < 2:
        return []
    alone = np.flatnonzero((held > 0).sum(axis=0) == 1)
    where = held.argmax(axis=0)
    return [f"In one split only: {listed(f'{names[i]} ({SPLITS[where[i]]})' for i in alone)}."] if alone.size else []
