"""The one shape of data that every later stage takes: texts, 0/1 label matrices, label names, provenance."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array, vstack

from abalone.data.texts import join

SPLITS = ("train", "validation", "test")
RARE = 30  # "labels under 30": the paper's cut for RCV1-v2, and a common one for few-shot labels


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
            raise ValueError(f"{len(self.texts)} texts but {self.labels.shape[0]} rows of labels")
        self.labels.check_format(full_check=True)  # products follow indices that point out of the matrix into a crash

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def word_count(self) -> int:
        """White-space separated words in all texts."""
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
                raise ValueError(
                    f"{split_name} has {split.labels.shape[1]} label columns for {len(self.label_names)} label names"
                )

    def splits(self) -> Iterator[tuple[str, Split]]:
        """The three splits with their names, in order."""
        yield from zip(SPLITS, (self.train, self.validation, self.test), strict=True)

    def with_validation_in_train(self) -> "Corpus":
        """Return the same corpus with one training split of both, and no validation documents."""
        texts = join(self.train.texts, self.validation.texts)
        labels = csr_array(vstack([self.train.labels, self.validation.labels]))
        return replace(self, train=Split(texts, labels), validation=Split([], self.validation.labels[:0]))

    def stats(self) -> "CorpusStats":
        """The columns of the paper's Table 1 and the shape of the tail."""
        return CorpusStats.of(self)


@dataclass(frozen=True)
class CorpusStats:
    """What a corpus looks like. Frequencies are those of the training split, the rest is over all documents."""

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
        """Plain values, for JSON and tables."""
        return asdict(self)


def gini(frequencies: np.ndarray) -> float:
    """Gini coefficient of label frequencies: half the mean absolute difference over the mean."""
    ascending = np.sort(frequencies).astype(np.float64)
    n, total = ascending.size, ascending.sum()
    if total == 0:
        return 0.0
    rank = np.arange(1, n + 1)
    return float((2 * rank - n - 1) @ ascending / (n * total))


def head_share(frequencies: np.ndarray) -> float:
    """Share of the label assignments that falls on the most frequent third of the labels."""
    total = frequencies.sum()
    if total == 0:
        return 0.0
    head = np.sort(frequencies)[::-1][: -(-frequencies.size // 3)]
    return float(head.sum() / total)
