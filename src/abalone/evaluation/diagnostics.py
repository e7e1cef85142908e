"""Measures of the paper's two problems: attraction–repulsion imbalance, and the lack of positives.

Both are reported per (document, label) pair and averaged by label, so that head and tail can be set side by side.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from abalone.errors import as_input_error
from abalone.losses.checks import check_finite, check_matrix, check_same_rows
from abalone.losses.kernel import unit_rows, working_dtype
from abalone.losses.pairs import label_matrix


@dataclass(frozen=True)
class Forces:
    """S_att and S_rep of every (document, label) pair with y = 1; NaN without a document to attract or repel."""

    documents: Tensor  # [pairs]
    labels: Tensor  # [pairs]
    attraction: Tensor  # [pairs], −mean cosine to the other documents of the label: −1 when they coincide
    repulsion: Tensor  # [pairs], mean cosine to the documents without the label
    num_labels: int

    def attraction_by_label(self) -> Tensor:
        """Return the mean over each label's documents, [L]."""
        return _mean_by_label(self.attraction, self.labels, self.num_labels)

    def repulsion_by_label(self) -> Tensor:
        """Return the mean over each label's documents, [L]."""
        return _mean_by_label(self.repulsion, self.labels, self.num_labels)


def forces(embeddings: Tensor, labels: Tensor) -> Forces:
    """Measure attraction and repulsion (appendix D of the paper) over a batch or a whole corpus.

    Linear in the number of documents: the sum over a label's documents is taken once, not once a pair.

    Args:
        embeddings: [n, d]; compared by cosine.
        labels: [n, L] of 0/1, dense or sparse.
    """
    with as_input_error():
        check_matrix("embeddings", embeddings)
        check_same_rows("embeddings", embeddings, "labels", labels)
        check_finite("embeddings", embeddings)
        dtype = working_dtype(embeddings)
        matrix = label_matrix("labels", labels, dtype)
    unit = unit_rows(embeddings.detach().to(dtype))  # [n, d]
    with_label = matrix.sum_over_documents(unit.T).T  # [L, d]
    without_label = unit.sum(0) - with_label  # [L, d]
    documents, columns = matrix.pairs()
    members = matrix.counts[columns]  # [pairs]
    own = unit[documents]  # [pairs, d]
    to_members = (own * with_label[columns]).sum(1) - (own * own).sum(1)
    to_others = (own * without_label[columns]).sum(1)
    nan = torch.tensor(torch.nan, dtype=dtype, device=unit.device)
    return Forces(
        documents,
        columns,
        torch.where(members > 1, -to_members / (members - 1), nan),
        torch.where(members < len(unit), to_others / (len(unit) - members), nan),
        labels.shape[1],
    )


def _mean_by_label(values: Tensor, labels: Tensor, num_labels: int) -> Tensor:
    known = ~values.isnan()
    total = torch.zeros(num_labels, dtype=values.dtype, device=values.device)
    total = total.index_add(0, labels[known], values[known])
    return total / torch.bincount(labels[known], minlength=num_labels)


@dataclass(frozen=True)
class Positives:
    """How many positives an anchor finds for each of its labels."""

    labels: np.ndarray  # [pairs]
    in_batch: np.ndarray  # [pairs], other documents of the batch that carry the label
    in_queue: np.ndarray  # [pairs], documents of the queue that carry it
    num_labels: int

    def mean(self, *, queue: bool = False, prototypes: bool = False) -> np.ndarray:
        """Return how many positives an anchor of each label finds, the mean, [L]; NaN for a label without documents."""
        return self._by_label(self._found(queue, prototypes).astype(np.float64))

    def missing(self, *, queue: bool = False, prototypes: bool = False) -> np.ndarray:
        """Return the share of each label's anchors that find no positive, [L]; NaN for a label without documents."""
        return self._by_label((self._found(queue, prototypes) == 0).astype(np.float64))

    def _found(self, queue: bool, prototypes: bool) -> np.ndarray:
        found: np.ndarray = self.in_batch + queue * self.in_queue + prototypes
        return found

    def _by_label(self, values: np.ndarray) -> np.ndarray:
        anchors = np.bincount(self.labels, minlength=self.num_labels)
        total = np.bincount(self.labels, weights=values, minlength=self.num_labels)
        mean: np.ndarray = np.divide(total, anchors, out=np.full(self.num_labels, np.nan), where=anchors > 0)
        return mean


def positives_in_epoch(labels: csr_array, *, batch_size: int = 32, queue_size: int = 512, seed: int = 0) -> Positives:
    """Count the positives of one shuffled epoch's anchors, with a queue that holds the documents before the batch.

    The queue is taken as it is in later epochs: full from the first batch on.

    Args:
        labels: 0/1, [n, L].
        batch_size, queue_size: as in training; a queue of 0 is none.
        seed: of the shuffle.
    """
    documents, num_labels = labels.shape
    order = np.random.default_rng(seed).permutation(documents)
    by_label = labels[order].tocsc()
    by_label.sort_indices()
    columns, in_batch, in_queue = [], [], []
    for label in range(num_labels):
        at = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]].astype(np.int64)  # sorted positions
        start = at // batch_size * batch_size
        before_batch = np.searchsorted(at, start)
        columns.append(np.full(len(at), label))
        in_batch.append(np.searchsorted(at, start + batch_size) - before_batch - 1)
        # Positions before 0 are the end of the epoch before, here taken to be in the same order.
        around = np.concatenate([at - documents, at])
        in_queue.append(np.searchsorted(around, start) - np.searchsorted(around, start - min(queue_size, documents)))
    return Positives(np.concatenate(columns), np.concatenate(in_batch), np.concatenate(in_queue), num_labels)


def positives_in_batch(labels: Tensor, queue_labels: Tensor | None = None) -> Positives:
    """Count the positives of one batch's anchors.

    Args:
        labels: [B, L] of 0/1.
        queue_labels: [K, L] of 0/1.
    """
    batch = label_matrix("labels", labels, torch.float32)
    counts = batch.counts.long()
    earlier = torch.zeros_like(counts)
    if queue_labels is not None and len(queue_labels):
        earlier = label_matrix("queue labels", queue_labels, torch.float32).counts.long()
    _, columns = batch.pairs()
    return Positives(
        columns.cpu().numpy(), (counts[columns] - 1).cpu().numpy(), earlier[columns].cpu().numpy(), labels.shape[1]
    )
