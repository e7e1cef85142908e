"""L_JSCL, the Jaccard similarity contrastive loss of earlier work."""

import torch
from torch import Tensor

from abalone.losses.comparison import compare
from abalone.losses.kernel import ContrastiveLoss, contrastive_sum, without_autocast


class JSCLLoss(ContrastiveLoss):
    """Jaccard similarity inside the logarithm, where it changes the value and nothing else.

    w(i,l) = 1/|B| on every l ≠ i that shares a label, g = 1, plus the constant −(1/|B|²) Σ log Jaccard(y_i, y_l).

    Since log(a·x) and log(x) have the same derivative, training with it is training with "any shared label makes a
    positive", unweighted: the paper's reason to move the Jaccard similarity outside, which gives `BaseLoss`.

    Args:
        temperature: τ.

    Shape:
        embeddings [B, d], labels [B, L] of 0/1. Returns a scalar.

    Reference:
        Lin et al., "An Effective Deployment of Contrastive Learning in Multi-label Text Classification", Findings of
        ACL 2023; appendix C of the paper. The paper prints a doubled minus; there is one here.

    Example:
        >>> import torch
        >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> labels = torch.tensor([[1, 0], [1, 1], [0, 1]])
        >>> round(JSCLLoss(temperature=1.0)(embeddings, labels).item(), 4)
        0.6006
    """

    @without_autocast
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss of one batch."""
        batch = compare(self.temperature, embeddings, labels)
        documents = len(embeddings)
        (jaccard,) = batch.jaccard()  # [B, B]
        positive = jaccard > 0
        constant = torch.where(positive, jaccard, 1).log().sum() / documents**2
        return contrastive_sum(batch.logits, [positive.to(jaccard.dtype) / documents], anchors=documents) - constant
