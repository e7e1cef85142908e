"""Notes: what a person should know of a corpus (its labels, splits and copies), one sentence each."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from scipy.sparse import csr_array

from abalone.data.labels import LabelLists, differing_by_case, joined_names
from abalone.data.split import SPLITS

NOTHING = {"nan", "n/a", "none", "null"}  # what programs write into a cell that is empty
FEW = 100  # documents, of which a test split has ten
NAMED = 10  # names in a note, before it only counts


def blank_notes(blanks: Counter[str]) -> list[str]:
    """Return a note on blank cells in 0/1 columns, counted by column."""
    if not blanks:
        return []
    where = ", ".join(f"{column} {count:,}" for column, count in blanks.most_common(NAMED))
    more = f" and {len(blanks) - NAMED:,} more columns" if len(blanks) > NAMED else ""
    return [f"Blank cells in 0/1 columns, read as 0: {blanks.total():,} ({where}{more})."]


def separator_notes(given: str | None, occurs: bool, found: Sequence[str], names: Collection[str]) -> list[str]:
    """Return notes on how strings were split into labels.

    Args:
        given: the separator that a person named.
        occurs: whether it separates labels anywhere.
        found: the separators that were found where none is named, the one that was used first.
        names: of the labels, where any of them was in a string.
    """
    notes = []
    if len(found) > 1:
        others = " and ".join(map(repr, found[1:]))
        notes.append(
            f"Labels are split at {found[0]!r}, though {others} occur too; "
            "label_separator= (--label-separator) changes that."
        )
    if joined := joined_names(names):
        mark, examples = joined
        notes.append(
            f"{len(examples)} labels look like several joined by {mark!r}, such as {examples[0]!r}: "
            f"label_separator={mark!r} (--label-separator {shlex.quote(mark)}) would split them."
        )
    if given and not occurs:
        notes.append(f"The label separator {given!r} occurs in no label, so each is taken whole.")
    return notes


def label_notes(labels: LabelLists, matrix: csr_array, names: list[str], offered: Iterable[str]) -> list[str]:
    """Return notes on the labels of all documents.

    Args:
        labels: as they stand at the documents.
        matrix: the same as 0/1, [n, L].
        names: of the columns, [L].
        offered: the labels that the source has a place for.
    """
    notes = uncarried_notes(offered, names)
    distinct = np.diff(matrix.indptr)  # [n]
    if repeated := int((labels.lengths() > distinct).sum()):
        notes.append(f"Documents that repeat a label (it counts once): {repeated}.")
    if unlabelled := int((distinct == 0).sum()):
        notes.append(f"Documents without labels: {unlabelled}.")
    for column, name in enumerate(names):
        if name.casefold() in NOTHING:
            carrying = int(matrix[:, [column]].sum())
            notes.append(
                f"Documents that carry the label {name!r}: {carrying}. If it means no label, leave those cells empty."
            )
    if groups := differing_by_case(names):
        notes.append(
            f"Labels that differ only by case are kept apart: {_joined('/'.join(map(_told, g)) for g in groups)}; "
            "merge_case=True (--merge-case) merges them."
        )
    return notes + _doubts(names, distinct)


def _doubts(names: list[str], distinct: np.ndarray) -> list[str]:
    """Return notes on what may be wrong, or will disappoint, where there is very little of something.

    Args:
        names: of the labels.
        distinct: how many of them each document carries, [n].
    """
    doubts = []
    if len(distinct) < FEW:
        doubts.append(
            f"There are only {len(distinct)} documents: scores will change by many points from one split to the next. "
            "Label more before you trust them."
        )
    if len(names) == 1:
        without = int((distinct == 0).sum())
        doubts.append(
            f"There is only one label, {names[0]!r}, so a model can only learn which documents have it: "
            + (f"{without:,} do not." if without else "here all do. Add documents without it.")
        )
    elif distinct.max() == 1:
        doubts.append(
            "No document carries more than one label. If some should, check label_separator= (--label-separator); if "
            "one label excludes the others, `abalone predict --top 1` gives the most probable."
        )
    return doubts


def split_notes(copies: int, absent: Mapping[str, list[str]], few: list[str], parts: int) -> list[str]:
    """Return notes on a split that was made here.

    Args:
        copies: texts that are copies of another.
        absent: the labels that a split lacks though there are documents enough, by split.
        few: the labels with fewer documents than there are parts.
        parts: how many splits were made.
    """
    notes = []
    if copies:
        notes.append(
            f"Texts that are copies of another: {copies:,}. Copies are kept in the same split; drop_duplicates=True "
            "(--drop-duplicates) keeps one of each."
        )
    notes += [
        f"Labels missing from {split}, since their documents are needed in another split: {listed(untold)}."
        for split, missing in absent.items()
        if (untold := [name for name in missing if name not in few])
    ]
    if few:
        what = "different texts" if copies else "documents"
        notes.append(f"Labels with fewer than {parts} {what}, so not in every split: {listed(few)}.")
    return notes


def repeated_notes(hashes: np.ndarray, rows: Mapping[str, np.ndarray]) -> list[str]:
    """Return notes on validation and test texts that are training texts.

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


def one_split_notes(held: np.ndarray, names: list[str], told: set[str]) -> list[str]:
    """Return a note on labels that only one split has, where another has documents at all.

    Args:
        held: how often each split has each label, [3, L].
        names: of the labels, [L].
        told: labels of which another note says why.
    """
    if (held.sum(axis=1) > 0).sum() < 2:
        return []
    alone = np.flatnonzero((held > 0).sum(axis=0) == 1)
    where = held.argmax(axis=0)
    entries = [f"{_told(names[label])} ({SPLITS[where[label]]})" for label in alone if names[label] not in told]
    return [f"Labels in one split only: {_joined(entries)}."] if entries else []


def unseen_note(unseen: Iterable[str]) -> str:
    """Return the note on labels that no training document carries."""
    return f"Labels without a training document, left out of training and scoring: {listed(unseen)}."


def uncarried_notes(offered: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return a note on labels that the source has a place for but that are not among the `names` carried."""
    uncarried = sorted(set(offered) - set(names))
    return [f"No document carries {len(uncarried)} of the labels: {listed(uncarried)}."] if uncarried else []


def listed(names: Iterable[str]) -> str:
    """Return names for a sentence: the first few, then a count."""
    return _joined(map(_told, names))


def _told(name: str) -> str:
    """Return a name as it stands in a list of names, in quotes where its own comma would look like the next one."""
    return repr(name) if "," in name else name


def _joined(entries: Iterable[str]) -> str:
    every = list(entries)
    more = f" and {len(every) - NAMED} more" if len(every) > NAMED else ""
    return ", ".join(every[:NAMED]) + more
