"""Texts and labels as Python objects: lists of names or 0/1 matrices, into a `Corpus`."""

import warnings
from collections.abc import Iterable, KeysView, Mapping, Sequence, Set
from itertools import pairwise
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
from scipy.sparse import coo_array, coo_matrix, csr_array, issparse

from abalone.data.corpus import Corpus, Split
from abalone.data.hashes import text_hashes
from abalone.data.labels import LabelLists, in_order
from abalone.data.notes import listed
from abalone.data.split import stratified_holdout
from abalone.data.store import MappedTexts, take
from abalone.data.tables import lone_surrogate
from abalone.errors import InputError

LabelMatrix = np.ndarray | csr_array


@runtime_checkable
class LabelTable(Protocol):
    """A table with a column of 0 and 1 for each label, under its name: a `DataFrame` of pandas or polars."""

    @property
    def columns(self) -> Iterable[Any]:
        """Return the names of the labels."""
        ...

    def to_numpy(self) -> np.ndarray:
        """Return the values, [n, L]."""
        ...


Plain = Sequence[Sequence[str]] | LabelMatrix
Labels = Plain | LabelTable

Texts = Sequence[str] | LabelTable | np.ndarray
"""Texts; of a table or a matrix [n, 1], those in its only column."""

VALIDATION_SHARE = 0.1

__all__ = ["Labels", "Texts", "corpus_of", "is_matrix", "known_labels", "label_lists", "listed", "read_texts"]


def corpus_of(
    texts: Texts,
    labels: Labels,
    validation: tuple[Texts, Labels] | None = None,
    *,
    label_names: Sequence[str] | None = None,
    seed: int = 0,
) -> Corpus:
    """Build a corpus of training and validation documents.

    Args:
        texts: the documents: a list, or a table of one column.
        labels: a list of label names for each text, a 0/1 matrix [n, L], or a table of such columns.
        validation: texts and labels; without it a stratified tenth of the documents is set aside, with copies of a
            text on one side.
        label_names: names of the columns of a matrix; without them the columns are numbered. Those of a table
            have names.
        seed: of the split.
    """
    texts = read_texts(texts)
    if isinstance(labels, LabelTable):
        label_names = _columns(labels) if label_names is None else label_names
        labels = _lists_of(labels)
    names = _label_names(labels, label_names)
    train = Split(texts, _matrix(labels, names))
    if validation is None:
        kept, held_out = stratified_holdout(train.labels, VALIDATION_SHARE, seed, text_hashes(texts))
        own, other = (Split(take(texts, rows), train.labels[rows]) for rows in (kept, held_out))
    else:
        own, other = train, Split(read_texts(validation[0]), known_labels(validation[1], names))
    return Corpus(own, other, Split([], train.labels[:0]), tuple(names), name="own data")


def known_labels(labels: Labels, names: Sequence[str]) -> csr_array:
    """Return labels as columns of the known names; the names of others are given in a warning."""
    if is_matrix(labels):
        return _matrix(labels, names)
    if isinstance(labels, LabelTable):
        labels = _lists_of(labels)
    if not isinstance(labels, LabelLists):
        _check_lists(labels)
    lists = LabelLists.of(labels)  # type: ignore[arg-type]  # what is no matrix is lists
    if unseen := in_order(set(lists.carried()).difference(names)):
        warnings.warn(f"no training document carries {listed(unseen)}: left out of the scores", stacklevel=3)
    return lists.matrix(names)


def label_lists(labels: csr_array, names: Sequence[str]) -> list[list[str]]:
    """Return the names of each row's labels, from a 0/1 matrix [n, L]."""
    return [[names[j] for j in labels.indices[a:b]] for a, b in pairwise(labels.indptr)]


def is_matrix(labels: Labels) -> TypeGuard[LabelMatrix]:
    """Return whether labels are a 0/1 matrix and not lists of names."""
    return issparse(labels) or (isinstance(labels, np.ndarray) and labels.ndim == 2)


def read_texts(texts: Texts) -> Sequence[str]:
    """Return the texts; raise where they are none.

    An empty one is refused, as it is in files and by the server: an answer to nothing would hide that a text is
    missing. Texts of a corpus, which a memory map holds, were looked at when they were read.
    """
    if isinstance(texts, str):
        raise TypeError("texts must be a list of texts, got one text; put it in a list: [text]")
    if isinstance(texts, MappedTexts):
        return texts
    texts = _one_column(texts)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"text {number} is {type(text).__name__}, not a string")
        if not text or text.isspace():
            raise InputError(
                f"text {number} is empty, so there is nothing to label: leave out such texts, with their labels if "
                "they have any"
            )
        if reason := lone_surrogate(text):
            raise InputError(f"text {number} {reason}: repair it or leave it out")
    return texts


def _one_column(texts: Texts) -> Sequence[str]:
    """Return the texts as a sequence; those of a table or a matrix [n, 1] stand in its only column."""
    if isinstance(texts, Sequence):
        return texts
    _refuse_unordered(texts, "texts")
    columns: list[str] | None = None
    if isinstance(texts, LabelTable):
        columns, texts = _columns(texts), texts.to_numpy()
    if isinstance(texts, np.ndarray) and texts.ndim > 1:
        if texts.ndim > 2 or texts.shape[1] != 1:
            held = f"the columns {listed(columns)}" if columns else f"the shape {texts.shape}"
            raise TypeError(
                f"texts has {held}: give the column of the texts, for example df['text'], or several columns joined to "
                "one text per row"
            )
        texts = texts[:, 0]
    return list(texts)


def _refuse_unordered(values: object, name: str) -> None:
    """Raise where texts could not be paired with their labels, or answers with their texts, by position."""
    if isinstance(values, Mapping) or (isinstance(values, Set) and not isinstance(values, KeysView)):
        raise TypeError(
            f"{name} is a {type(values).__name__}, and texts and labels belong together by their order: give a list"
        )


def _columns(table: LabelTable) -> list[str]:
    return [str(column) for column in table.columns]


def _lists_of(table: LabelTable) -> LabelLists:
    """Return the labels by name: another table may have its columns in another order, or other ones."""
    columns = _columns(table)
    try:
        values = np.asarray(table.to_numpy(), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"a table of labels must hold only 0 and 1, one column per label, here {listed(columns)} ({error}); if "
            "one column holds lists of names, give that column"
        ) from None
    matrix = _matrix(values, columns)
    return LabelLists(columns, matrix.indices, matrix.indptr[1:])


def _label_names(labels: Plain, label_names: Sequence[str] | None) -> list[str]:
    if label_names is None:
        if is_matrix(labels):
            return [str(column) for column in range(labels.shape[1])]
        _check_lists(labels)
        return in_order({name for row in labels for name in row})
    _refuse_unordered(label_names, "label_names")
    names = list(label_names)
    if isinstance(label_names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"label_names must be a list of names, got {label_names!r}")
    _check_names(names)
    if len(set(names)) < len(names):
        raise InputError(f"label_names holds a name twice: {listed(sorted({n for n in names if names.count(n) > 1}))}")
    if not is_matrix(labels):
        _check_lists(labels)
        if unknown := in_order({name for row in labels for name in row}.difference(names)):
            raise InputError(f"labels that are not among label_names: {listed(unknown)}")
    return names


def _check_lists(labels: Plain) -> None:
    _refuse_unordered(labels, "labels")
    names: set[str] = set()
    for number, row in enumerate(labels):
        if isinstance(row, str) or not isinstance(row, Iterable) or not all(isinstance(name, str) for name in row):
            raise TypeError(f"the labels of text {number} must be a list of names, got {row!r}")
        names.update(row)
    _check_names(names)


def _check_names(names: Iterable[str]) -> None:
    """Raise for a name that no file can hold: better now than when the trained model is saved."""
    for name in names:
        if reason := lone_surrogate(name):
            raise InputError(f"the label {name!r} {reason}: repair it or leave it out")


def _sound(labels: LabelMatrix) -> csr_array:
    """Return a copy as a CSR matrix; raise where its indices point out of it, since scipy follows them into a crash."""
    if not issparse(labels):
        return csr_array(labels)
    try:
        copied: Any = labels.copy()  # of any sparse format
        if isinstance(copied, coo_array | coo_matrix):
            copied = coo_array((copied.data, copied.coords), shape=copied.shape)  # the constructor checks them
        elif hasattr(copied, "check_format"):  # CSR, CSC and BSR
            copied.check_format(full_check=True)
        return csr_array(copied)
    except ValueError as error:
        raise InputError(f"the label matrix is damaged: {error}") from None


def _matrix(labels: Plain, names: Sequence[str]) -> csr_array:
    if not is_matrix(labels):
        return LabelLists.of(labels).matrix(names)  # type: ignore[arg-type]  # what is no matrix is lists
    matrix = _sound(labels)
    if matrix.shape[1] != len(names):
        raise InputError(f"the label matrix has {matrix.shape[1]} columns for {len(names)} label names")
    matrix.sum_duplicates()  # or twice the same 1 would pass for a 1, and count as 2
    wrong = ~np.isin(matrix.data, (0, 1))
    if wrong.any():
        raise InputError(f"a label matrix must hold 0 and 1 only, found {matrix.data[wrong][0]}")
    matrix = matrix.astype(np.int32)
    matrix.eliminate_zeros()
    return matrix
