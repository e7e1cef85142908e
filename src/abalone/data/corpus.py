"""Corpora: texts, 0/1 label matrices, label names and provenance, the input of every later stage."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain

import numpy as np
from scipy.sparse import csr_array, vstack

from abalone.data.documents import Documents
from abalone.data.notes import label_notes, one_split_notes, repeated_notes, split_notes, unseen_note
from abalone.data.split import SPLITS, carrying_groups, iterative_split, lacking, stratified_holdout
from abalone.data.store import join, take
from abalone.errors import DataError, InputError

RARE = 30  # "labels under 30": the paper's cut for RCV1-v2, and a common one for few-shot labels
SHARES = (0.8, 0.1, 0.1)
HOLDOUT = 0.1


@dataclass(frozen=True, eq=False)
class Split:
    """Documents of one split: `texts[i]` carries the labels of row `i`.

    Args:
        texts: a list, or any sequence of strings (for example memory-mapped).
        labels: 0/1, [documents, labels].
    """

    texts: Sequence[str]
    labels: csr_array

    def __post_init__(self) -> None:
        if len(self.texts) != self.labels.shape[0]:
            raise InputError(f"{len(self.texts)} texts but {self.labels.shape[0]} rows of labels")
        self.labels.check_format(full_check=True)  # products follow indices that point out of the matrix into a crash

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def word_count(self) -> int:
        """Count the white-space separated words in all texts."""
        return sum(len(text.split()) for text in self.texts)


@dataclass(frozen=True, eq=False)
class Corpus:
    """Train, validation and test documents over one set of labels.

    Args:
        train, validation, test: the splits; validation and test may be empty.
        label_names: names of the label columns, in order.
        name: how tables call the corpus.
        provenance: where it came from and how it was prepared (source, licence, checksums, split, seed …).
        unseen_labels: labels of validation or test that no training document carries. They have no
            column, so nothing scores them; they are kept here by name so that nothing is dropped in silence.
        notes: findings a person should know of, one sentence each.
    """

    train: Split
    validation: Split
    test: Split
    label_names: tuple[str, ...]
    name: str = "corpus"
    provenance: Mapping[str, object] = field(default_factory=dict)
    unseen_labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for split_name, split in self.splits():
            if split.labels.shape[1] != len(self.label_names):
                raise InputError(
                    f"{split_name} has {split.labels.shape[1]} label columns for {len(self.label_names)} label names"
                )

    def splits(self) -> Iterator[tuple[str, Split]]:
        """Yield the three splits with their names, in order."""
        yield from zip(SPLITS, (self.train, self.validation, self.test), strict=True)

    def with_validation_in_train(self) -> "Corpus":
        """Return the same corpus with one training split of both, and no validation documents."""
        texts = join(self.train.texts, self.validation.texts)
        labels = csr_array(vstack([self.train.labels, self.validation.labels]))
        return replace(self, train=Split(texts, labels), validation=Split([], self.validation.labels[:0]))

    def stats(self) -> "CorpusStats":
        """Return the columns of the paper's Table 1 and the shape of the tail."""
        return CorpusStats.of(self)


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
            *label_notes(documents.labels, labels, names, documents.offered),
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
    """Build the corpus of documents whose splits are decided.

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
    findings = [unseen_note(unseen)] if unseen else []
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
        notes=(*notes, *findings, *one_split_notes(held, names, told)),
    )


def _columns(labels: csr_array, wanted: np.ndarray) -> csr_array:
    selected = csr_array(labels[:, wanted])
    selected.sort_indices()
    return selected


@dataclass
class _Partition:
    """The documents of each split, and how they came there."""

    rows: dict[str, np.ndarray]
    provenance: dict[str, object]
    notes: list[str] = field(default_factory=list)


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
        partition = _Partition(
            dict(zip(SPLITS, parts, strict=True)),
            made,
            ["No split was given: one was made by iterative stratification, 80/10/10."],
        )
        _note_exceptions(partition, labels, parts, names, groups)
        return partition
    if not train.size:
        raise DataError(f"no document is in the training split (given by {origin})")
    partition = _Partition(given, {"origin": origin})
    if not validation.size:
        of_train, own_groups = labels[train], None if groups is None else groups[train]
        kept, held_out = stratified_holdout(of_train, HOLDOUT, seed, own_groups)
        partition.rows = {"train": train[kept], "validation": train[held_out], "test": test}
        partition.provenance |= {
            "validation": "stratified from train",
            "seed": seed,
            "shares": [1 - HOLDOUT, HOLDOUT],
        }
        partition.notes.append("No validation split was given: a stratified tenth of train was split off.")
        _note_exceptions(partition, of_train, [kept, held_out], names, own_groups)
    if not test.size:
        partition.notes.append("No test split was given: test is empty.")
    return partition


def _note_exceptions(
    partition: _Partition, labels: csr_array, parts: list[np.ndarray], names: list[str], groups: np.ndarray | None
) -> None:
    """Note copies, and labels that stratification could not put everywhere: all in the provenance, some in notes."""
    copies = 0 if groups is None else groups.size - np.unique(groups).size
    absent = {
        split: [names[label] for label in missing]
        for split, missing in zip(SPLITS, lacking(labels, parts, groups), strict=False)
        if missing.size
    }
    texts = carrying_groups(labels, groups)  # [L]
    few = [names[label] for label in np.flatnonzero((texts > 0) & (texts < len(parts)))]
    if copies:
        partition.provenance["copies_together"] = True
    partition.provenance |= {"exceptions": absent, "too_few_documents": few}
    partition.notes += split_notes(copies, absent, few, len(parts))


@dataclass(frozen=True)
class CorpusStats:
    """Statistics of a corpus. Frequencies are those of the training split, the rest is over all documents."""

    train: int
    validation: int
    test: int
    labels: int
    labels_per_document: float
    words_per_document: float
    unlabelled_documents: int
    frequency_max: int
    frequency_median: float
    frequency_min: int
    labels_under_30: int
    gini: float  # 0: all labels equally frequent; towards 1: a few labels have everything
    head_share: float  # share of all label assignments that falls on the most frequent third of the labels
    frequencies: tuple[int, ...] = field(repr=False)  # per label, in the order of the label names

    @classmethod
    def of(cls, corpus: Corpus) -> "CorpusStats":
        """Measure `corpus`."""
        splits = [split for _, split in corpus.splits()]
        documents = sum(map(len, splits)) or 1
        per_document = np.concatenate([np.diff(split.labels.indptr) for split in splits])
        frequencies = np.asarray(corpus.train.labels.sum(axis=0), dtype=np.int64).ravel()
        known = frequencies if frequencies.size else np.zeros(1, dtype=np.int64)
        return cls(
            train=len(corpus.train),
            validation=len(corpus.validation),
            test=len(corpus.test),
            labels=len(corpus.label_names),
            labels_per_document=float(per_document.sum() / documents),
            words_per_document=sum(split.word_count for split in splits) / documents,
            unlabelled_documents=int((per_document == 0).sum()),
            frequency_max=int(known.max()),
            frequency_median=float(np.median(known)),
            frequency_min=int(known.min()),
            labels_under_30=int((frequencies < RARE).sum()),
            gini=gini(frequencies),
            head_share=head_share(frequencies),
            frequencies=tuple(frequencies.tolist()),
        )

    def as_dict(self) -> dict[str, object]:
        """Return plain values, for JSON and tables."""
        return asdict(self)


def gini(frequencies: np.ndarray) -> float:
    """Return the Gini coefficient of label frequencies: half the mean absolute difference over the mean."""
    ascending = np.sort(frequencies).astype(np.float64)
    n, total = ascending.size, ascending.sum()
    if total == 0:
        return 0.0
    rank = np.arange(1, n + 1)
    return float((2 * rank - n - 1) @ ascending / (n * total))


def head_share(frequencies: np.ndarray) -> float:
    """Return the share of the label assignments that falls on the most frequent third of the labels."""
    total = frequencies.sum()
    if total == 0:
        return 0.0
    head = np.sort(frequencies)[::-1][: -(-frequencies.size // 3)]
    return float(head.sum() / total)
