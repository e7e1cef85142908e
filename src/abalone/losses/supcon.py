"""SupCon, with label sets as classes."""

from torch import Tensor

from abalone.losses.comparison import Queue, compare
from abalone.losses.kernel import ContrastiveLoss, contrastive_sum, normalise_rows_, without_autocast


class SupConLoss(ContrastiveLoss):
    """A reference is a positive if it carries exactly the anchor's labels.

    w(i,l) = [y_i = y_l ≠ ∅] / number of such l, g = 1.

    The single-label loss taken literally: every combination of labels is a class of its own, so documents that share
    all labels but one repel each other. `BaseLoss` grades this by Jaccard similarity.

    Args:
        temperature: τ.

    Shape:
        embeddings [B, d], labels [B, L] of 0/1, queue ([K, d], [K, L]). Returns a scalar.

    Reference:
        Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020, equation 2 (L_out).

    Example:
        >>> import torch
        >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> labels = torch.tensor([[1, 0], [1, 0], [0, 1]])
        >>> round(SupConLoss(temperature=1.0)(embeddings, labels).item(), 4)
        0.2088
    """

    @without_autocast
    def forward(self, embeddings: Tensor, labels: Tensor, queue: Queue | None = None) -> Tensor:
        """Compute the loss of one batch."""
        batch = compare(self.temperature, embeddings, labels, queue)
        same = [
            ((both > 0) & (both == batch.sizes) & (both == instances.sizes)).to(both.dtype)
            for both, instances in zip(batch.shared(), batch.instances, strict=True)
        ]
        return contrastive_sum(batch.logits, normalise_rows_(same), anchors=len(embeddings))
