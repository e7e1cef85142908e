"""The weighted sum of a contrastive and a pointwise loss."""

from typing import Any

from torch import Tensor, nn

from abalone.losses.checks import check_at_least_zero


class JointLoss(nn.Module):
    """Any contrastive loss on the embeddings plus any pointwise loss on the logits of the same documents.

    Args:
        contrastive: for example `MSCLoss()`.
        pointwise: for example `BCELoss()`.
        contrastive_weight, pointwise_weight: what each is multiplied by.

    Shape:
        embeddings as the contrastive loss takes them, logits [B, L], labels [B, L] of 0/1; `queue` and `prototypes`
        go to the contrastive loss. Returns a scalar.

    Example:
        >>> import torch
        >>> from abalone.losses import BCELoss, MSCLoss
        >>> loss = JointLoss(MSCLoss(), BCELoss(), pointwise_weight=10.0)
        >>> labels = torch.tensor([[1, 0], [1, 1]])
        >>> round(loss(torch.eye(2), torch.zeros(2, 2), labels).item(), 4)
        5.2045
    """

    def __init__(
        self,
        contrastive: nn.Module,
        pointwise: nn.Module,
        contrastive_weight: float = 1.0,
        pointwise_weight: float = 1.0,
    ) -> None:
        super().__init__()
        self.contrastive = contrastive
        self.pointwise = pointwise
        self.contrastive_weight = check_at_least_zero("contrastive_weight", contrastive_weight)
        self.pointwise_weight = check_at_least_zero("pointwise_weight", pointwise_weight)

    def forward(self, embeddings: Tensor, logits: Tensor, labels: Tensor, **references: Any) -> Tensor:
        """Compute the loss of one batch; `references` are `queue` and `prototypes`."""
        contrast: Tensor = self.contrastive(embeddings, labels, **references)
        point: Tensor = self.pointwise(logits, labels)
        return self.contrastive_weight * contrast + self.pointwise_weight * point

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        return f"contrastive_weight={self.contrastive_weight}, pointwise_weight={self.pointwise_weight}"
