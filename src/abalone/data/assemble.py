"""From documents to a `Corpus`: splits, label columns, and the findings a person should know of."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from scipy.sparse import csr_array

from abalone.data.corpus import SPLITS, Corpus, Split
from abalone.data.documents import Documents
from abalone.data.labels import differing_by_case
from abalone.data.repeated import repeated_notes
from abalone.data.split import carrying_groups, iterative_split, lacking, stratified_holdout
from abalone.data.texts import take
from abalone.files.errors import DataError

SHARES = (0.8, 0.1, 0.1)
HOLDOUT = 0.1
NOTHING = {"nan", "n/a", "none", "null"}  # what programs write into a cell that is empty
FEW = 100  # documents, of which a test split has ten
NAMED = 10  # names in a note, before it only counts


@dataclass
class _Partition:
    """The documents of each split, and how they came there."""

    rows: dict[str, np.ndarray]
    provenance: dict[str, object]
    notes: list[str] = field(default_factory=list)


def assemble(
    documents: Documents,
    *,
    name: str,
    origin: str,
    seed: int,
    provenance: Mapping[str, object],
    copies_together: bool = True,
) -> Corpus:
    """Build the corpus of a user's documents; splits that are missing are made.

    Args:
        documents: texts, labels and, where they are known, splits.
        name: of the corpus.
        origin: what the given splits come from, for the provenance.
        seed: of the splits that are made here.
        provenance: what is known so far.
        copies_together: whether splits that are made keep copies of a text in one part. Those of models that were
            trained before did not, and have to come out again as they were.
    """
    names, labels = documents.label_matrix()  # [n, L]
    if not names:
        raise DataError("no document has a label", path=name)
    groups = documents.text_hashes() if copies_together else None
    partition = _partition(labels, documents.rows(), names, origin, seed, groups)
    return build_corpus(
        documents.texts,
        labels,
        names,
        partition.rows,
        name=name,
        provenance={**provenance, "split": partition.provenance},
        notes=[
            *documents.notes,
            *_label_findings(documents, names, labels),
            *partition.notes,
            *repeated_notes(documents.text_hashes(), partition.rows),
        ],
    )


def build_corpus(
    texts: Sequence[str],
    labels: csr_array,
    names: list[str],
    rows: Mapping[str, np.ndarray],
    *,
    name: str,
    provenance: Mapping[str, object],
    notes: Iterable[str] = (),
) -> Corpus:
    """The corpus of documents whose splits are decided.

    A label without a training document loses its column and is reported, as are labels of one split only.

    Args:
        texts: of all documents, in memory or mapped.
        labels: 0/1, [n, L].
        names: of the labels.
        rows: the documents of each split.
        name: of the corpus.
        provenance: where it came from and how it was prepared.
        notes: findings so far.
    """
    if not rows["train"].size:
        raise DataError("there are no training documents", path=name)
    held = np.stack([labels[rows[split]].sum(axis=0) for split in SPLITS])  # [3, L]
    trained = np.flatnonzero(held[0])
    if not trained.size:
        raise DataError("no training document has a label", path=name)
    unseen = tuple(names[label] for label in np.flatnonzero(held[0] == 0))
    findings = [unseen_message(unseen)] if unseen else []
    made = split if isinstance(split := provenance.get("split"), dict) else {}
    told = {*unseen, *made.get("too_few_documents", ()), *chain(*made.get("exceptions", {}).values())}
    train, validation, test = (
        Split(take(texts, rows[split]), _columns(labels[rows[split]], trained)) for split in SPLITS
    )
    return Corpus(
        train,
        validation,
        test,
        label_names=tuple(names[label] for label in trained),
        name=name,
        provenance=provenance,
        unseen_labels=unseen,
        notes=(*notes, *findings, *_one_split_only(held, names, told)),
    )


def _columns(labels: csr_array, wanted: np.ndarray) -> csr_array:
    selected = csr_array(labels[:, wanted])
    selected.sort_indices()
    return selected


def unseen_message(unseen: Iterable[str]) -> str:
    """What to tell of labels that no training document carries."""
    return f"Labels without a training document, left out of training and scoring: {listed(unseen)}."


def uncarried_notes(documents: Documents, names: Iterable[str]) -> list[str]:
    """What to tell of labels that the source has a place for but that are not among the `names` carried."""
    uncarried = sorted(set(documents.offered) - set(names))
    return [f"No document carries {len(uncarried)} of the labels: {listed(uncarried)}."] if uncarried else []


def listed(names: Iterable[str]) -> str:
    """Names for a sentence: the first few, then a count."""
    return _joined(map(_told, names))


def _told(name: str) -> str:
    """A name as it stands in a list of names, in quotes where its own comma would look like the next one."""
    return repr(name) if "," in name else name


def _joined(entries: Iterable[str]) -> str:
    every = list(entries)
    more = f" and {len(every) - NAMED} more" if len(every) > NAMED else ""
    return ", ".join(every[:NAMED]) + more


def _partition(
    labels: csr_array,
    given: dict[str, np.ndarray],
    names: list[str],
    origin: str,
    seed: int,
    groups: np.ndarray | None,
) -> _Partition:
    """Take the splits that are given and make those that are missing."""
    train, validation, test = (given[split] for split in SPLITS)
    if not validation.size and not test.size:
        parts = iterative_split(labels, SHARES, seed, groups)
        made: dict[str, object] = {"origin": "stratified", "seed": seed, "shares": list(SHARES)}
        notes = ["No split was given: one was made by iterative stratification, 80/10/10."]
        notes += _exceptions(labels, parts, names, made, groups)
        return _Partition(dict(zip(SPLITS, parts, strict=True)), made, notes)
    if not train.size:
        raise DataError(f"no document is in the training split (given by {origin})")
    made = {"origin": origin}
    notes = []
    if not validation.size:
        of_train, own_groups = labels[train], None if groups is None else groups[train]
        kept, held_out = stratified_holdout(of_train, HOLDOUT, seed, own_groups)
        notes.append("No validation split was given: a stratified tenth of train was split off.")
        made |= {"validation": "stratified from train", "seed": seed, "shares": [1 - HOLDOUT, HOLDOUT]}
        notes += _exceptions(of_train, [kept, held_out], names, made, own_groups)
        train, validation = train[kept], train[held_out]
    if not test.size:
        notes.append("No test split was given: test is empty.")
    return _Partition({"train": train, "validation": validation, "test": test}, made, notes)


def _exceptions(
    labels: csr_array,
    parts: list[np.ndarray],
    names: list[str],
    made: dict[str, object],
    groups: np.ndarray | None,
) -> list[str]:
    """Copies, and labels that stratification could not put everywhere: all in the provenance, some in notes."""
    notes = []
    copies = 0 if groups is None else groups.size - np.unique(groups).size
    if copies:
        made["copies_together"] = True
        notes.append(
            f"Texts that are copies of another: {copies:,}. Copies are kept in the same split; drop_duplicates=True "
            "(--drop-duplicates) keeps one of each."
        )
    absent = {
        split: [names[label] for label in missing]
        for split, missing in zip(SPLITS, lacking(labels, parts, groups), strict=False)
        if missing.size
    }
    texts = carrying_groups(labels, groups)  # [L]
    few = [names[label] for label in np.flatnonzero((texts > 0) & (texts < len(parts)))]
    made |= {"exceptions": absent, "too_few_documents": few}
    notes += [
        f"Labels missing from {split}, since their documents are needed in another split: {listed(untold)}."
        for split, missing in absent.items()
        if (untold := [name for name in missing if name not in few])
    ]
    if few:
        what = "different texts" if copies else "documents"
        notes.append(f"Labels with fewer than {len(parts)} {what}, so not in every split: {listed(few)}.")
    return notes


def _label_findings(documents: Documents, names: list[str], labels: csr_array) -> list[str]:
    notes = uncarried_notes(documents, names)
    distinct = np.diff(labels.indptr)  # [n]
    if repeated := int((documents.labels.lengths() > distinct).sum()):
        notes.append(f"Documents that repeat a label (it counts once): {repeated}.")
    if unlabelled := int((distinct == 0).sum()):
        notes.append(f"Documents without labels: {unlabelled}.")
    for column, name in enumerate(names):
        if name.casefold() in NOTHING:
            carrying = int(labels[:, [column]].sum())
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
    """What may be wrong, or will disappoint, where there is very little of something.

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


def _one_split_only(held: np.ndarray, names: list[str], told: set[str]) -> list[str]:
    """Labels that only one split has, where another has documents at all; less those of which a note says why."""
    if (held.sum(axis=1) > 0).sum() < 2:
        return []
    alone = np.flatnonzero((held > 0).sum(axis=0) == 1)
    where = held.argmax(axis=0)
    entries = [f"{_told(names[label])} ({SPLITS[where[label]]})" for label in alone if names[label] not in told]
    return [f"Labels in one split only: {_joined(entries)}."] if entries else []
