"""A batch of anchors beside everything it is compared with: the batch itself, the queue, the prototypes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from abalone.losses.checks import check_columns, check_finite, check_matrix, check_same_rows
from abalone.losses.kernel import mask_self, unit_rows, working_dtype
from abalone.losses.pairs import LabelMatrix, label_matrix

Queue = tuple[Tensor, Tensor]
"""Embeddings [K, d] and labels [K, L] of earlier documents, as `MemoryQueue.contents()` gives them."""


@dataclass
class Comparison:
    """The logits and labels from which a cosine loss computes its attraction.

    Blocks come in the order batch, queue, prototypes; a block without rows is left out.
    """

    labels: Tensor  # [B, L], 0/1, of the anchors
    sizes: Tensor  # [B, 1], |y_i|
    instances: list[LabelMatrix]  # labels of the documents among the references: the batch, the queue
    logits: list[Tensor]  # s/τ of each block, [B, R_b]
    prototypes: bool  # whether the last block of logits is the prototypes

    def shared(self) -> list[Tensor]:
        """Return |y_i ∩ y_l| with every instance, [B, R_b] a block; 0 between an anchor and itself."""
        blocks = [instances.sum_over_labels(self.labels) for instances in self.instances]
        blocks[0].fill_diagonal_(0)
        return blocks

    def union(self) -> list[Tensor]:
        """Return |y_i ∪ y_l| with every instance, [B, R_b] a block; at least 1, so that it can divide."""
        return [
            both.neg_().add_(self.sizes).add_(instances.sizes).clamp_(min=1)
            for both, instances in zip(self.shared(), self.instances, strict=True)
        ]

    def jaccard(self) -> list[Tensor]:
        """Return |y_i ∩ y_l| / |y_i ∪ y_l| with every instance, [B, R_b] a block; 0 between an anchor and itself."""
        return [
            both.div_((self.sizes - both).add_(instances.sizes).clamp_(min=1))
            for both, instances in zip(self.shared(), self.instances, strict=True)
        ]


def compare(
    temperature: float,
    embeddings: Tensor,
    labels: Tensor,
    queue: Queue | None = None,
    prototypes: Tensor | None = None,
) -> Comparison:
    """Check the inputs and take the cosine similarities.

    Gradients flow into `embeddings` (as anchors and as references) and `prototypes`, never into the queue.
    """
    check_matrix("embeddings", embeddings)
    check_same_rows("embeddings", embeddings, "labels", labels)
    check_finite("embeddings", embeddings)
    dtype = working_dtype(embeddings)
    own = label_matrix("labels", labels, dtype)
    unit = unit_rows(embeddings.to(dtype))  # [B, d]
    anchors = (unit / temperature).T  # [d, B]: τ costs nothing here, and a pass over [B, R] later

    instances, logits = [own], [mask_self(unit @ anchors).T]
    if queue is not None and len(queue[0]) > 0:
        queue_embeddings, queue_labels = queue
        check_columns("queue embeddings", queue_embeddings, embeddings.shape[1], "the embeddings")
        check_columns("queue labels", queue_labels, labels.shape[1], "the labels")
        check_same_rows("queue embeddings", queue_embeddings, "queue labels", queue_labels)
        instances.append(label_matrix("queue labels", queue_labels, dtype))
        rows = queue_embeddings.detach().to(dtype)
        lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True)  # [K, 1]
        check_finite("queue embeddings", lengths, of=queue_embeddings)
        # Scaling the products instead of the rows spares a copy of the whole queue.
        logits.append((rows @ anchors).div_(lengths.masked_fill(lengths == 0, 1)).T)
    if prototypes is not None:
        check_columns("prototypes", prototypes, embeddings.shape[1], "the embeddings")
        if prototypes.shape[0] != labels.shape[1]:
            raise ValueError(
                f"prototypes must have one row for each of the {labels.shape[1]} labels, "
                f"got shape {tuple(prototypes.shape)}"
            )
        check_finite("prototypes", prototypes)
        logits.append((unit_rows(prototypes.to(dtype)) @ anchors).T)
    return Comparison(own.dense(), own.sizes.unsqueeze(1), instances, logits, prototypes is not None)
