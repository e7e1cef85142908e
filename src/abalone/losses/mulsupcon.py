"""MulSupCon: one SupCon anchor for every label of a document."""

import math

from torch import Tensor

from abalone.losses.comparison import Queue, compare
from abalone.losses.kernel import ContrastiveLoss, contrastive_sum, without_autocast


class MulSupConLoss(ContrastiveLoss):
    """Each (anchor, label) pair is an anchor of its own, whose positives are the references that carry the label.

    w(i,l) = Σ_{j ∈ y_i ∩ y_l} 1 / n(i,j), with n(i,j) the number of references of label j; g = 1; M = Σ|y_i|.

    Like `MSCLoss` it gives every label of an anchor the same total attraction; unlike it, documents with many labels
    count more, positives are not graded by label overlap, and the repulsion is left as it is.

    Args:
        temperature: τ.

    Shape:
        embeddings [B, d], labels [B, L] of 0/1, queue ([K, d], [K, L]). Returns a scalar.

    Reference:
        Zhang & Wu, "Multi-Label Supervised Contrastive Learning", AAAI 2024.

    Example:
        >>> import torch
        >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> labels = torch.tensor([[1, 0], [1, 1], [0, 1]])
        >>> round(MulSupConLoss(temperature=1.0)(embeddings, labels).item(), 4)
        0.6582
    """

    @without_autocast
    def forward(self, embeddings: Tensor, labels: Tensor, queue: Queue | None = None) -> Tensor:
        """Compute the loss of one batch."""
        batch = compare(self.temperature, embeddings, labels, queue)
        positives = sum((instances.counts for instances in batch.instances), start=-batch.labels)  # n, [B, L]
        label_weight = batch.labels / positives.masked_fill(batch.labels * positives == 0, math.inf)
        attraction = [instances.sum_over_labels(label_weight) for instances in batch.instances]
        attraction[0].fill_diagonal_(0)
        pairs = batch.sizes.sum().clamp(min=1)
        return contrastive_sum(batch.logits, attraction, anchors=1) / pairs
