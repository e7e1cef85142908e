"""Losses on logits that know how many documents carry each label: class-balanced and distribution-balanced."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from abalone.losses.checks import check_at_least_zero
from abalone.losses.kernel import without_autocast
from abalone.losses.pointwise import checked_logits, focal_terms

Counts = Sequence[int] | Tensor
"""[L], the training documents that carry each label."""


def class_balanced_weights(counts: Tensor, decay: float) -> Tensor:
    """Return (1 − β) / (1 − β^n) for each label, [L]: 1 for one document, falling to 1 − β for very many.

    The n documents of a label repeat each other, so they are worth the effective number (1 − β^n) / (1 − β).
    """
    return (1 - decay) / (1 - torch.pow(torch.full_like(counts, decay), counts))


def rebalanced_weights(targets: Tensor, counts: Tensor, floor: float, slope: float, centre: float) -> Tensor:
    """Return r̂ [B, L], which undoes that documents of several labels are drawn more often than each label asks for.

    Drawing labels evenly, then a document of the label, a document comes up for label i with 1/n_i, and in all with
    Σ_{j ∈ y} 1/n_j. Their ratio r is smoothed to r̂ = α + σ(β (r − μ)). A document without labels never comes up:
    its r is boundless, so r̂ = α + 1.

    Args:
        targets: 0/1, [B, L].
        counts: [L], at least 1.
        floor, slope, centre: α, β and μ.
    """
    wanted = counts.reciprocal()  # [L]
    drawn = (targets @ wanted).clamp(min=torch.finfo(wanted.dtype).tiny)  # [B]
    ratio = wanted / drawn.unsqueeze(1)  # [B, L]
    return floor + torch.sigmoid(slope * (ratio - centre))


class _CountedLoss(nn.Module):
    """A pointwise loss that holds the label counts of the training documents."""

    counts: Tensor

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        given = torch.as_tensor(counts, dtype=torch.float64)
        if given.dim() != 1 or len(given) == 0 or not bool(torch.isfinite(given).all()) or bool((given < 0).any()):
            raise ValueError(f"counts must be [labels], numbers of documents of at least 0, got {counts}")
        # A label that no document carries gets the weight of one document: 1/0 is no weight.
        self.register_buffer("counts", given.clamp(min=1), persistent=False)

    def _checked(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, targets = checked_logits(logits, labels)
        if logits.shape[1] != len(self.counts):
            raise ValueError(f"logits must have {len(self.counts)} columns, one per count, got {tuple(logits.shape)}")
        return logits, targets, self.counts.to(logits.dtype)


class ClassBalancedLoss(_CountedLoss):
    """Focal loss whose labels weigh less the more documents carry them, by the effective number of documents.

    With `decay=0` every label weighs the same, and it is `FocalLoss`.

    Args:
        counts: [L], the training documents that carry each label.
        decay: β in [0, 1); Huang et al. use 0.9.
        gamma: γ ≥ 0 of the focal factor; they use 2.

    Shape:
        logits [B, L], labels [B, L] of 0/1. Returns a scalar.

    Reference:
        Cui et al., "Class-Balanced Loss Based on Effective Number of Samples", CVPR 2019; for several labels Huang et
        al., "Balancing Methods for Multi-label Text Classification with Long-Tailed Class Distribution", EMNLP 2021.

    Example:
        >>> import torch
        >>> loss = ClassBalancedLoss([1, 100, 100])
        >>> round(loss(torch.zeros(2, 3), torch.tensor([[1, 0, 0], [1, 1, 0]])).item(), 4)
        0.0693
    """

    def __init__(self, counts: Counts, decay: float = 0.9, gamma: float = 2.0) -> None:
        super().__init__(counts)
        if not 0 <= decay < 1:
            raise ValueError(f"decay must be at least 0 and below 1, got {decay}")
        self.decay, self.gamma = float(decay), check_at_least_zero("gamma", gamma)

    @without_autocast
    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of one batch."""
        logits, targets, counts = self._checked(logits, labels)
        terms = focal_terms(logits * (2 * targets - 1), self.gamma)  # [B, L]
        return (class_balanced_weights(counts, self.decay) * terms).mean()

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        return f"decay={self.decay}, gamma={self.gamma}"


class DistributionBalancedLoss(_CountedLoss):
    """Focal loss with rebalanced weights, in which sure negatives of rare labels stop counting early.

    Two parts beside the focal factor, each a function or a line of its own:

    - rebalanced weighting, `rebalanced_weights`: a document that is there for its frequent label does not teach its
      rare one twice;
    - negative-tolerant regularisation: logits are compared with ν_i = κ log(N/n_i − 1), which starts rare labels at
      their log-odds, and those of negatives are scaled by λ at 1/λ of the weight, so that they saturate sooner.

        L = mean of r̂ · q^γ · { log(1 + e^{−(z−ν)})             where y = 1
                              { (1/λ) log(1 + e^{λ(z−ν)})        where y = 0

    with q the probability of the other answer. The natural threshold stays a logit of 0.

    Args:
        counts: [L], the training documents that carry each label.
        documents: N, the training documents.
        floor, slope, centre: α, β and μ of the weights; Huang et al. use 0.1, 10 and 0.9 for Reuters-21578.
        tolerance: λ ≥ 1; they use 2.
        shift: κ ≥ 0; they use 0.05.
        gamma: γ ≥ 0 of the focal factor; they use 2.

    Shape:
        logits [B, L], labels [B, L] of 0/1. Returns a scalar.

    Reference:
        Wu et al., "Distribution-Balanced Loss for Multi-Label Classification in Long-Tailed Datasets", ECCV 2020; for
        texts Huang et al., "Balancing Methods for Multi-label Text Classification with Long-Tailed Class
        Distribution", EMNLP 2021.

    Example:
        >>> import torch
        >>> loss = DistributionBalancedLoss([1, 100, 100], documents=200)
        >>> round(loss(torch.zeros(2, 3), torch.tensor([[1, 0, 0], [1, 1, 0]])).item(), 4)
        0.0803
    """

    def __init__(
        self,
        counts: Counts,
        documents: int,
        floor: float = 0.1,
        slope: float = 10.0,
        centre: float = 0.9,
        tolerance: float = 2.0,
        shift: float = 0.05,
        gamma: float = 2.0,
    ) -> None:
        super().__init__(counts)
        if documents < self.counts.max():
            raise ValueError(f"documents must be at least the largest of counts, got {documents}")
        if not tolerance >= 1:
            raise ValueError(f"tolerance must be at least 1, got {tolerance}")
        self.documents, self.tolerance = int(documents), float(tolerance)
        self.shift = check_at_least_zero("shift", shift)
        self.floor, self.slope = check_at_least_zero("floor", floor), check_at_least_zero("slope", slope)
        self.centre, self.gamma = float(centre), check_at_least_zero("gamma", gamma)

    @without_autocast
    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of one batch."""
        logits, targets, counts = self._checked(logits, labels)
        # Half a document is left without a label that all carry, whose log-odds would be infinite.
        shifted = logits - self.shift * ((self.documents - counts).clamp(min=0.5) / counts).log()
        scale = torch.where(targets > 0, 1.0, self.tolerance)  # [B, L]
        terms = focal_terms(shifted * scale * (2 * targets - 1), self.gamma) / scale
        weights = rebalanced_weights(targets, counts, self.floor, self.slope, self.centre)
        return (weights * terms).mean()

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        return (
            f"documents={self.documents}, floor={self.floor}, slope={self.slope}, centre={self.centre}, "
            f"tolerance={self.tolerance}, shift={self.shift}, gamma={self.gamma}"
        )
