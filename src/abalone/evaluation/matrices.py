"""Matrices of documents and labels [n, L]: their checks, and their computation a block at a time.

Many documents times many labels never stand in memory together. Errors name the argument.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, issparse

from abalone.errors import InputError

AT_ONCE = 2**24  # pairs of a document and a label that are looked at together; in double precision 128 MiB

Index = slice | np.ndarray
"""Some rows or columns; of the two in one look, one at most is an array."""

EVERY = slice(None)


@dataclass(frozen=True, eq=False)
class Computed:
    """A matrix that is nowhere: `matrix[rows, columns]` computes that block.

    Args:
        shape: (n, L).
        block: from rows and columns to the values there.

    Example:
        >>> table = Computed((3, 4), lambda rows, columns: np.arange(12).reshape(3, 4)[rows, columns])
        >>> table[1:3, :2].tolist()
        [[4, 5], [8, 9]]
    """

    shape: tuple[int, int]
    block: Callable[[Index, Index], np.ndarray]

    def __getitem__(self, at: tuple[Index, Index]) -> np.ndarray:
        return self.block(*at)


Scores = np.ndarray | Computed
"""Numbers [n, L], as an array or computed block by block."""


def held(scores: Scores) -> Scores:
    """Return an array where that is small, so that it is computed once."""
    small = scores.shape[0] * scores.shape[1] <= AT_ONCE
    return scores[EVERY, EVERY] if isinstance(scores, Computed) and small else scores


def stacked(parts: Sequence[Scores]) -> Scores:
    """Return the rows of all parts, one part after the other, [sum of n, L]; an array where that is small."""
    bounds = np.cumsum([0, *(part.shape[0] for part in parts)])

    def block(rows: Index, columns: Index) -> np.ndarray:
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(int(bounds[-1]))
            spans = [
                (part, max(start - low, 0), min(stop, high) - low)
                for part, low, high in zip(parts, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
                if start < high and low < stop
            ]
            return np.concatenate([part[first:last, columns] for part, first, last in spans])
        place = np.searchsorted(bounds, rows, side="right") - 1  # the part of each
        found = np.empty((len(rows), len(np.arange(parts[0].shape[1])[columns])), np.float32)
        for number in np.unique(place):
            found[place == number] = parts[number][rows[place == number] - bounds[number], EVERY][:, columns]
        return found

    return held(Computed((int(bounds[-1]), parts[0].shape[1]), block))


def transposed(scores: Scores) -> Scores:
    """Transpose, [L, n]."""
    if isinstance(scores, np.ndarray):
        return scores.T
    documents, labels = scores.shape
    return Computed((labels, documents), lambda rows, columns: scores[columns, rows].T)


def of_labels(scores: Scores, columns: np.ndarray) -> Scores:
    """Return some columns [C], [n, C]."""
    if isinstance(scores, np.ndarray):
        return scores[:, columns]
    return Computed((scores.shape[0], len(columns)), lambda rows, chosen: scores[rows, columns[chosen]])


def of_documents(scores: Scores, rows: np.ndarray) -> Scores:
    """Return some rows [R], [R, L]: an array where that is small, computed otherwise."""

    def block(chosen: Index, columns: Index) -> np.ndarray:
        if isinstance(columns, np.ndarray):  # rows are an array already, and one at most may be
            return scores[rows[chosen], EVERY][:, columns]
        return scores[rows[chosen], columns]

    return held(Computed((len(rows), scores.shape[1]), block))


def taken(scores: Scores, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return some rows [R] and columns [C] as an array, [R, C]."""
    return np.concatenate([scores[rows[part], EVERY][:, columns] for part in row_blocks((len(rows), scores.shape[1]))])


def row_blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield rows that are read together, all columns of each; one block where the matrix is small."""
    return _blocks(shape[0], shape[1])


def column_blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield columns that are read together, all rows of each; one block where the matrix is small."""
    return _blocks(shape[1], shape[0])


def _blocks(items: int, width: int) -> Iterator[slice]:
    step = max(1, AT_ONCE // max(width, 1))
    return (slice(start, min(start + step, items)) for start in range(0, items, step))


Labels = np.ndarray | csr_array
"""0/1 of any type, [n, L], dense or sparse."""


def read_labels(name: str, values: Labels) -> csr_array:
    """Read labels [n, L] into a new sparse matrix in which every stored entry is a 1; `name` is for the message."""
    _check_matrix(name, np.shape(values))
    if issparse(values):
        matrix = csr_array(values, copy=True)  # the caller's is not to be put in order in place
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        entries = matrix.data
    else:
        dense = np.asarray(values)
        matrix, entries = csr_array(dense != 0), dense[dense != 0]
    wrong = entries[entries != 1]
    if wrong.size:
        raise InputError(f"{name} must be 0 or 1 everywhere, found {wrong[0]} ({wrong.size} such values)")
    return matrix.astype(np.int64)


def read_probabilities(name: str, values: np.ndarray) -> np.ndarray:
    """Read probabilities [n, L], none of them NaN or outside [0, 1]; `name` is for the message."""
    matrix = np.asarray(values)
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    _check_matrix(name, matrix.shape)
    if not (matrix.min() >= 0 and matrix.max() <= 1):  # written so that NaN is refused too
        row, column = np.argwhere(~((matrix >= 0) & (matrix <= 1)))[0]
        raise InputError(
            f"{name} must lie in [0, 1], found {matrix[row, column]} in row {row}, column {column} of {matrix.shape}"
        )
    return matrix


def read_logits(name: str, values: np.ndarray) -> np.ndarray:
    """Read logits [n, L] in double precision, all of them finite; `name` is for the message."""
    matrix = np.asarray(values, dtype=np.float64)
    _check_matrix(name, matrix.shape)
    if not np.isfinite(matrix).all():
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise InputError(f"{name} hold {matrix[row, column]} in row {row}, column {column} of {matrix.shape}")
    return matrix


def read_probability_scores(name: str, values: Scores) -> Scores:
    """Call `read_probabilities` on a matrix, or on each block of a computed one when it is computed."""
    if isinstance(values, Computed):
        _check_matrix(name, values.shape)
        return Computed(values.shape, lambda rows, columns: read_probabilities(name, values[rows, columns]))
    return read_probabilities(name, values)


def read_logit_scores(name: str, values: Scores) -> Scores:
    """Call `read_logits` on a matrix, or on each block of a computed one when it is computed."""
    if isinstance(values, Computed):
        _check_matrix(name, values.shape)
        return Computed(values.shape, lambda rows, columns: read_logits(name, values[rows, columns]))
    return read_logits(name, values)


def read_one_per_label(name: str, values: np.ndarray, labels: int) -> np.ndarray:
    """Read a vector [L]; `name` is for the message."""
    vector = np.asarray(values)
    if vector.shape != (labels,):
        raise InputError(f"{name} must have one entry for each of the {labels} labels, got shape {vector.shape}")
    return vector


def check_same_shape(name: str, matrix: Labels | Scores, other_name: str, other: Labels | Scores) -> None:
    """Raise unless both have the same documents and labels."""
    if matrix.shape != other.shape:
        raise InputError(f"{name} and {other_name} must have the same shape, got {matrix.shape} and {other.shape}")


def _check_matrix(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or 0 in shape:
        raise InputError(f"{name} must be [documents, labels] and not empty, got shape {shape}")
