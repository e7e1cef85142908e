"""Losses on logits, one per document and label: BCE, focal, asymmetric, and ZLPR."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abalone.losses.checks import check_at_least_zero, check_finite, check_matrix
from abalone.losses.kernel import without_autocast, working_dtype
from abalone.losses.pairs import label_matrix


def checked_logits(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits and dense labels [B, L] in the working precision, or say what is wrong with them."""
    check_matrix("logits", logits, dims="[documents, labels]")
    if logits.shape != labels.shape:
        raise ValueError(
            f"logits and labels must have the same shape, got {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    check_finite("logits", logits)
    dtype = working_dtype(logits)
    return logits.to(dtype), label_matrix("labels", labels, dtype).dense()


def focal_terms(towards_truth: Tensor, gamma: float) -> Tensor:
    """Return −(1 − p)^γ log p of logits that are positive where they are right, [B, L]."""
    # As an exponential, because the derivative of a power below 1 is infinite at 0.
    return -(gamma * F.logsigmoid(-towards_truth)).exp() * F.logsigmoid(towards_truth)


class BCELoss(nn.Module):
    """Binary cross-entropy, averaged over documents and labels.

    Shape:
        logits [B, L], labels [B, L] of 0/1. Returns a scalar.

    Example:
        >>> import torch
        >>> round(BCELoss()(torch.zeros(2, 3), torch.tensor([[1, 0, 0], [1, 1, 0]])).item(), 4)
        0.6931
    """

    @without_autocast
    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss of one batch."""
        logits, targets = checked_logits(logits, labels)
        return F.binary_cross_entropy_with_logits(logits, targets)


class FocalLoss(nn.Module):
    """Binary cross-entropy that down-weights easy terms: each term times (1 − its probability)^γ.

    With γ = 0 it is `BCELoss`.

    Args:
        gamma: γ ≥ 0; the paper uses 2.

    Shape:
        logits [B, L], labels [B, L] of 0/1. Returns a scalar.

    Reference:
        Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017.

    Example:
        >>> import torch
        >>> round(FocalLoss(gamma=2.0)(torch.zeros(2, 3), torch.tensor([[1, 0, 0], [1, 1, 0]])).item(), 4)
        0.1733
    """

    def __init__(self, gamma: float = 2.0) -> None:
        super().__init__()
        self.gamma = check_at_least_zero("gamma", gamma)

    @without_autocast
    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss of one batch."""
        logits, targets = checked_logits(logits, labels)
        return focal_terms(logits * (2 * targets - 1), self.gamma).mean()

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        return f"gamma={self.gamma}"


class AsymmetricLoss(nn.Module):
    """Focal loss with one exponent for positives and one for negatives, and easy negatives left out altogether.

    Positives −(1−p)^γ⁺ log p; negatives −s^γ⁻ log(1−s) with s = max(p − m, 0). With γ⁺ = γ⁻ and m = 0 it is
    `FocalLoss`.

    Args:
        gamma_pos: γ⁺ ≥ 0; the paper uses 0.
        gamma_neg: γ⁻ ≥ 0; the paper uses 3.
        margin: m in [0, 1), the probability under which a negative costs nothing; the paper uses 0.3.

    Shape:
        logits [B, L], labels [B, L] of 0/1. Returns a scalar.

    Reference:
        Ben-Baruch et al., "Asymmetric Loss for Multi-Label Classification", ICCV 2021. The formula printed in the
        paper is garbled; this is the standard one.

    Example:
        >>> import torch
        >>> round(AsymmetricLoss()(torch.zeros(2, 3), torch.tensor([[1, 0, 0], [1, 1, 0]])).item(), 4)
        0.3475
    """

    def __init__(self, gamma_pos: float = 0.0, gamma_neg: float = 3.0, margin: float = 0.3) -> None:
        super().__init__()
        self.gamma_pos = check_at_least_zero("gamma_pos", gamma_pos)
        self.gamma_neg = check_at_least_zero("gamma_neg", gamma_neg)
        if not 0 <= margin < 1:
            raise ValueError(f"margin must be at least 0 and below 1, got {margin}")
        self.margin = float(margin)

    @without_autocast
    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss of one batch."""
        logits, targets = checked_logits(logits, labels)
        log_p, log_not_p = F.logsigmoid(logits), F.logsigmoid(-logits)
        positive = (self.gamma_pos * log_not_p).exp() * log_p
        negative = self._negative(logits, log_p, log_not_p)
        return -torch.where(targets > 0, positive, negative).mean()

    def _negative(self, logits: Tensor, log_p: Tensor, log_not_p: Tensor) -> Tensor:
        """Return s^γ⁻ · log(1−s), 0 where s is 0."""
        if self.margin == 0:
            return (self.gamma_neg * log_p).exp() * log_not_p
        counts = torch.sigmoid(logits) > self.margin
        # Where s is 0 a harmless value takes its place, because log 0 there would turn the gradient into NaN.
        shifted = torch.where(counts, torch.sigmoid(logits) - self.margin, 0.5)
        log_rest = torch.logaddexp(log_not_p, torch.full_like(log_not_p, math.log(self.margin)))  # log(1 − p + m)
        return torch.where(counts, shifted.pow(self.gamma_neg) * log_rest, 0.0)

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        return f"gamma_pos={self.gamma_pos}, gamma_neg={self.gamma_neg}, margin={self.margin}"


class ZLPRLoss(nn.Module):
    """Zero-bounded log-sum-exp and pairwise rank: every positive above 0, every negative below, as one softmax each.

    log(1 + Σ_{j ∉ y} e^{s_j}) + log(1 + Σ_{j ∈ y} e^{−s_j}), averaged over documents (it ranks a document's
    labels against each other and so has no value per label). The natural threshold is a logit of 0.

    Shape:
        logits [B, L], labels [B, L] of 0/1. Returns a scalar.

    Reference:
        Su et al., "ZLPR: A Novel Loss for Multi-label Classification", 2022.

    Example:
        >>> import torch
        >>> round(ZLPRLoss()(torch.zeros(2, 3), torch.tensor([[1, 0, 0], [1, 1, 0]])).item(), 4)
        1.7918
    """

    @without_autocast
    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss of one batch."""
        logits, targets = checked_logits(logits, labels)
        bound = logits.new_zeros(len(logits), 1)  # the 1 under the logarithm
        positive = targets > 0
        rising = torch.cat([bound, logits.masked_fill(positive, -math.inf)], dim=1)  # [B, 1 + L]
        falling = torch.cat([bound, (-logits).masked_fill(~positive, -math.inf)], dim=1)
        return (rising.logsumexp(1) + falling.logsumexp(1)).mean()
