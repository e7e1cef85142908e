"""Sums over shared labels, without ever building a [B, K, L] tensor.

Every attraction of the family needs two sums over 0/1 labels: over the labels of a document, and over the
documents of a label. Both are products with the label matrix. A small matrix: a dense product. A large one, with
few labels per document: gathers over the label indices, which cost what is there and not what could be there.

Results are [A, n] views over [n, A] memory (references × anchors): it is what the gathers write, and all
tensors of one layout make the element-wise passes of the losses run at memory speed.
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from abalone.losses.checks import values_can_be_read

# A label matrix of up to this many entries is multiplied as it is: it costs little, and finding indices would wait
# for the device, which a captured training step must not do. Above it, gathers over indices are faster.
DENSE_ENTRIES = 2**22


class LabelMatrix(ABC):
    """The 0/1 labels of n documents over L labels."""

    sizes: Tensor
    """[n], the number of labels of each document."""
    counts: Tensor
    """[L], the number of documents of each label."""

    @abstractmethod
    def sum_over_labels(self, values: Tensor) -> Tensor:
        """Sum `values` over the labels of each document, [A, L] → [A, n]."""

    @abstractmethod
    def sum_over_documents(self, values: Tensor) -> Tensor:
        """Sum `values` over the documents of each label, [A, n] → [A, L]."""

    @abstractmethod
    def pairs(self) -> tuple[Tensor, Tensor]:
        """Return document and label, [pairs] each, of every 1 in the matrix, document by document."""

    @abstractmethod
    def dense(self) -> Tensor:
        """Return the matrix, [n, L]."""


class DenseLabels(LabelMatrix):
    """Labels as a matrix of floats."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix  # [n, L]
        self.sizes = matrix.sum(1)
        self.counts = matrix.sum(0)

    def sum_over_labels(self, values: Tensor) -> Tensor:  # noqa: D102 - see LabelMatrix
        return (self.matrix @ values.T).T

    def sum_over_documents(self, values: Tensor) -> Tensor:  # noqa: D102
        return (self.matrix.T @ values.T).T

    def pairs(self) -> tuple[Tensor, Tensor]:  # noqa: D102
        documents, labels = self.matrix.nonzero(as_tuple=True)
        return documents, labels

    def dense(self) -> Tensor:  # noqa: D102
        return self.matrix


class IndexedLabels(LabelMatrix):
    """Labels as lists of label numbers, sorted by document; made for large queues and many labels."""

    def __init__(self, documents: Tensor, labels: Tensor, shape: torch.Size, dtype: torch.dtype) -> None:
        self.documents, self.labels, self.shape, self.dtype = documents, labels, shape, dtype  # [nnz] both
        sizes = torch.bincount(documents, minlength=shape[0])
        counts = torch.bincount(labels, minlength=shape[1])
        self.document_starts = sizes.cumsum(0) - sizes
        self.label_starts = counts.cumsum(0) - counts
        self.documents_by_label = documents[labels.argsort(stable=True)]
        self.sizes, self.counts = sizes.to(dtype), counts.to(dtype)

    def sum_over_labels(self, values: Tensor) -> Tensor:  # noqa: D102
        return _sum_rows(values.T, self.labels, self.document_starts)

    def sum_over_documents(self, values: Tensor) -> Tensor:  # noqa: D102
        return _sum_rows(values.T, self.documents_by_label, self.label_starts)

    def pairs(self) -> tuple[Tensor, Tensor]:  # noqa: D102
        return self.documents, self.labels

    def dense(self) -> Tensor:  # noqa: D102
        matrix = torch.zeros(self.shape, dtype=self.dtype, device=self.labels.device)
        matrix[self.documents, self.labels] = 1
        return matrix


def _sum_rows(table: Tensor, rows: Tensor, starts: Tensor) -> Tensor:
    """Sum the rows of `table` in each run of `rows` that begins at `starts`; transposed."""
    return F.embedding_bag(rows, table.contiguous(), starts, mode="sum").T


def label_matrix(name: str, labels: Tensor, dtype: torch.dtype) -> LabelMatrix:
    """Read 0/1 labels [n, L] of any type, dense or sparse; `name` is the argument's, for the message."""
    if labels.dim() != 2:
        raise ValueError(f"{name} must be [rows, labels], got shape {tuple(labels.shape)}")
    if labels.layout is torch.strided and labels.numel() <= DENSE_ENTRIES:
        if labels.dtype is not torch.bool and values_can_be_read(labels):
            wrong = labels.eq(0).logical_or_(labels.eq(1)).logical_not_()
            if bool(wrong.any()):
                _refuse(name, labels[wrong])
        return DenseLabels(labels.detach().to(dtype))
    if labels.layout is torch.strided:
        documents, columns = labels.nonzero(as_tuple=True)
        values = labels[documents, columns]
    else:
        coordinates = labels.to_sparse_coo().coalesce()
        given = coordinates.values().ne(0)  # zeros may be stored too
        documents, columns = coordinates.indices()[:, given]
        values = coordinates.values()[given]
    wrong = values.ne(1)
    if bool(wrong.any()):
        _refuse(name, values[wrong])
    return IndexedLabels(documents, columns, labels.shape, dtype)


def _refuse(name: str, values: Tensor) -> None:
    shown = ", ".join(f"{value:g}" for value in values[:3].tolist())
    more = ", …" if len(values) > 3 else ""
    raise ValueError(f"{name} must be 0 or 1 everywhere, found {shown}{more} ({len(values)} such values)")
