"""L_Con, the distance-based contrastive loss made for nearest-neighbour classifiers."""

import torch
from torch import Tensor

from abalone.losses.comparison import compare
from abalone.losses.kernel import (
    ContrastiveLoss,
    contrastive_sum,
    mask_self,
    normalise_rows_,
    unit_rows,
    without_autocast,
    working_dtype,
)


class ConLoss(ContrastiveLoss):
    """References attract by the number of labels they share, over Euclidean distances.

    s(i,l) = −‖ẑ_i − ẑ_l‖, w(i,l) = |y_i ∩ y_l| / Σ_l |y_i ∩ y_l|, g = 1.

    `BaseLoss` with the count of shared labels for the Jaccard similarity, so that documents with many labels attract
    most, and with distance for cosine, which suits k-nearest-neighbour classifiers. At distance 0 the gradient is 0.

    Args:
        temperature: τ.

    Shape:
        embeddings [B, d], labels [B, L] of 0/1. Returns a scalar.

    Reference:
        Su, Wang & Dai, "Contrastive Learning-Enhanced Nearest Neighbor Mechanism for Multi-Label Text
        Classification", ACL 2022; appendix C of the paper.

    Example:
        >>> import torch
        >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> labels = torch.tensor([[1, 0], [1, 1], [0, 1]])
        >>> round(ConLoss(temperature=1.0)(embeddings, labels).item(), 4)
        0.6118
    """

    @without_autocast
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss of one batch."""
        batch = compare(self.temperature, embeddings, labels)
        unit = unit_rows(embeddings.to(working_dtype(embeddings)))
        # Differences taken directly: √(2 − 2cos) would lose half the digits between close documents.
        distances = torch.cdist(unit, unit, compute_mode="donot_use_mm_for_euclid_dist")  # [B, B]
        logits = mask_self(-distances / self.temperature)
        return contrastive_sum([logits], normalise_rows_(batch.shared()), anchors=len(embeddings))
