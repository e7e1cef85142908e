"""Read and check the inputs of metrics, thresholds and calibration; errors name the argument."""

import numpy as np
from scipy.sparse import csr_array, issparse

from abalone.evaluation.blocks import Computed, Scores

Labels = np.ndarray | csr_array
"""0/1 of any type, [n, L], dense or sparse."""


def read_labels(name: str, values: Labels) -> csr_array:
    """Labels [n, L] as a sparse matrix of its own in which every stored entry is a 1; `name` is for the message."""
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
        raise ValueError(f"{name} must be 0 or 1 everywhere, found {wrong[0]} ({wrong.size} such values)")
    return matrix.astype(np.int64)


def read_probabilities(name: str, values: np.ndarray) -> np.ndarray:
    """Probabilities [n, L], none of them NaN or outside [0, 1]; `name` is for the message."""
    matrix = np.asarray(values)
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    _check_matrix(name, matrix.shape)
    if not (matrix.min() >= 0 and matrix.max() <= 1):  # written so that NaN is refused too
        row, column = np.argwhere(~((matrix >= 0) & (matrix <= 1)))[0]
        raise ValueError(
            f"{name} must lie in [0, 1], found {matrix[row, column]} in row {row}, column {column} of {matrix.shape}"
        )
    return matrix


def read_logits(name: str, values: np.ndarray) -> np.ndarray:
    """Logits [n, L] in double precision, all of them finite; `name` is for the message."""
    matrix = np.asarray(values, dtype=np.float64)
    _check_matrix(name, matrix.shape)
    if not np.isfinite(matrix).all():
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise ValueError(f"{name} hold {matrix[row, column]} in row {row}, column {column} of {matrix.shape}")
    return matrix


def read_probability_scores(name: str, values: Scores) -> Scores:
    """`read_probabilities` of a matrix, or of each block of one that is computed, when it is."""
    if isinstance(values, Computed):
        _check_matrix(name, values.shape)
        return Computed(values.shape, lambda rows, columns: read_probabilities(name, values[rows, columns]))
    return read_probabilities(name, values)


def read_logit_scores(name: str, values: Scores) -> Scores:
    """`read_logits` of a matrix, or of each block of one that is computed, when it is."""
    if isinstance(values, Computed):
        _check_matrix(name, values.shape)
        return Computed(values.shape, lambda rows, columns: read_logits(name, values[rows, columns]))
    return read_logits(name, values)


def read_one_per_label(name: str, values: np.ndarray, labels: int) -> np.ndarray:
    """A vector [L]; `name` is for the message."""
    vector = np.asarray(values)
    if vector.shape != (labels,):
        raise ValueError(f"{name} must have one entry for each of the {labels} labels, got shape {vector.shape}")
    return vector


def check_same_shape(name: str, matrix: Labels | Scores, other_name: str, other: Labels | Scores) -> None:
    """Both are about the same documents and labels."""
    if matrix.shape != other.shape:
        raise ValueError(f"{name} and {other_name} must have the same shape, got {matrix.shape} and {other.shape}")


def _check_matrix(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"{name} must be [documents, labels] and not empty, got shape {shape}")
