"""L_MSC, the paper's balanced multi-label supervised contrastive loss."""

import math

import torch
from torch import Tensor

from abalone.losses.comparison import Comparison, Queue, compare
from abalone.losses.kernel import ContrastiveLoss, contrastive_sum, without_autocast


class MSCLoss(ContrastiveLoss):
    """Every label of an anchor attracts with the same total weight, and documents repel less than prototypes.

    For each label j of anchor i, the instances that carry j and the prototype of j share a weight of 1/|y_i|:

        w(i,l) = Σ_{j ∈ y_i ∩ y_l} f(i,l) / (|y_i| N(i,j)),   f(i,l) = 1/|y_i ∪ y_l|,
        w(i,j) = 1 / (|y_i| N(i,j))                            for the prototype of j ∈ y_i,
        N(i,j) = [prototypes given] + Σ_l f(i,l) y_l^j,
        g = β for instances, 1 for prototypes.

    So a rare label pulls as much as a frequent one (a label that finds no positive pulls nothing), and frequent
    labels do not rule the denominator by their number. Where N(i,j) is the same for all labels j and there are no
    prototypes, the weights are those of `BaseLoss`.

    Args:
        temperature: τ; the paper finds 0.1 best.
        beta: β in (0, 1], how much an instance repels beside a prototype; the paper sets 0.1 without a search.

    Shape:
        embeddings [B, d], labels [B, L] of 0/1, queue ([K, d], [K, L]), prototypes [L, d]. Returns a scalar.

    Reference:
        Audibert, Gauffre & Amini, "Exploring Contrastive Learning for Long-Tailed Multi-Label Text
        Classification", section 3.3. The printed denominator lacks τ; here it has it, as the numerator does.

    Example:
        >>> import torch
        >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> labels = torch.tensor([[1, 0], [1, 1], [0, 1]])
        >>> prototypes = torch.eye(2)
        >>> round(MSCLoss(temperature=1.0, beta=0.1)(embeddings, labels, prototypes=prototypes).item(), 4)
        0.672
    """

    def __init__(self, temperature: float = 0.1, beta: float = 0.1) -> None:
        super().__init__(temperature)
        if not 0 < beta <= 1:
            raise ValueError(f"beta must be above 0 and at most 1, got {beta}")
        self.beta = float(beta)

    @without_autocast
    def forward(
        self, embeddings: Tensor, labels: Tensor, queue: Queue | None = None, prototypes: Tensor | None = None
    ) -> Tensor:
        """Compute the loss of one batch."""
        batch = compare(self.temperature, embeddings, labels, queue, prototypes)
        log_repulsion = [math.log(self.beta)] * len(batch.instances) + [0.0] * batch.prototypes
        return contrastive_sum(batch.logits, self.attraction(batch), log_repulsion, anchors=len(embeddings))

    def attraction(self, batch: Comparison) -> list[Tensor]:
        """Return the weights w(i,l), [B, R_b] a block."""
        closeness = [either.reciprocal_() for either in batch.union()]  # f, [B, R_b] a block
        closeness[0].fill_diagonal_(0)
        available = torch.full_like(batch.labels, float(batch.prototypes))  # N, [B, L]
        for f, instances in zip(closeness, batch.instances, strict=True):
            available += instances.sum_over_documents(f)
        # What one unit of f receives for label j, and so what the prototype of j receives; 0 where j finds nobody.
        shares = batch.sizes.clamp(min=1) * available
        label_weight = batch.labels / shares.masked_fill(shares == 0, math.inf)  # [B, L]
        weights = [
            f.mul_(instances.sum_over_labels(label_weight))
            for f, instances in zip(closeness, batch.instances, strict=True)
        ]
        return [*weights, label_weight] if batch.prototypes else weights

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        return f"{super().extra_repr()}, beta={self.beta}"
