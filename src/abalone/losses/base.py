"""L_Base and, with more references, L_BQueue and L_BQProto."""

from torch import Tensor

from abalone.losses.comparison import Comparison, Queue, compare
from abalone.losses.kernel import ContrastiveLoss, contrastive_sum, normalise_rows_, without_autocast


class BaseLoss(ContrastiveLoss):
    """SupCon for several labels: a reference attracts an anchor by the Jaccard similarity of their labels.

    w(i,l) = Jaccard(y_i, y_l) / Σ_l Jaccard(y_i, y_l), g = 1.

    The paper's baseline, which pays no heed to the long tail. With `queue` it is L_BQueue, with `queue` and
    `prototypes` L_BQProto; a prototype counts as a document with the one label it stands for. `MSCLoss` balances
    the attraction by label and weakens the repulsion between documents. With one label per document and neither
    queue nor prototypes this is `SupConLoss`.

    Args:
        temperature: τ; the paper finds 0.1 best.

    Shape:
        embeddings [B, d], labels [B, L] of 0/1, queue ([K, d], [K, L]), prototypes [L, d]. Returns a scalar.

    Reference:
        Audibert, Gauffre & Amini, "Exploring Contrastive Learning for Long-Tailed Multi-Label Text
        Classification", section 3.1.

    Example:
        >>> import torch
        >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> labels = torch.tensor([[1, 0], [1, 1], [0, 1]])
        >>> round(BaseLoss(temperature=1.0)(embeddings, labels).item(), 4)
        0.6066
    """

    @without_autocast
    def forward(
        self, embeddings: Tensor, labels: Tensor, queue: Queue | None = None, prototypes: Tensor | None = None
    ) -> Tensor:
        """Compute the loss of one batch."""
        batch = compare(self.temperature, embeddings, labels, queue, prototypes)
        return contrastive_sum(batch.logits, self.attraction(batch), anchors=len(embeddings))

    def attraction(self, batch: Comparison) -> list[Tensor]:
        """Return the weights w(i,l), [B, R_b] a block."""
        jaccard = batch.jaccard()
        if batch.prototypes:
            jaccard.append(batch.labels / batch.sizes.clamp(min=1))  # |y_i ∩ {j}| / |y_i ∪ {j}|
        return normalise_rows_(jaccard)
