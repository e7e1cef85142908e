"""L_MulCon: contrast between label-wise embeddings."""

from torch import Tensor

from abalone.losses.checks import check_finite, check_matrix, check_same_rows
from abalone.losses.kernel import (
    ContrastiveLoss,
    contrastive_sum,
    mask_self,
    normalise_rows_,
    unit_rows,
    without_autocast,
    working_dtype,
)
from abalone.losses.pairs import label_matrix


class MulConLoss(ContrastiveLoss):
    """The embedding of label j in one document attracts that of label j in the others.

    Anchors and references are the pairs (document, label) with y = 1; w = 1/|P| on pairs with the same label and
    another document, g = 1, M = number of pairs.

    Alone it is minimal when every label has one embedding whatever the document (appendix E of the paper), so train
    it together with a pointwise loss: `JointLoss(MulConLoss(), BCELoss())`.

    Args:
        temperature: τ.

    Shape:
        label_embeddings [B, L, d], one for each document and label; labels [B, L] of 0/1. Returns a scalar.

    Reference:
        Dao et al., "Contrast Learning Visual Attention for Multi Label Classification", 2021; appendix E of the
        paper, which prints no minus and one sum twice.

    Example:
        >>> import torch
        >>> label_embeddings = torch.eye(2).expand(3, 2, 2)  # the collapsed solution
        >>> labels = torch.tensor([[1, 0], [1, 1], [0, 1]])
        >>> round(MulConLoss(temperature=0.1)(label_embeddings, labels).item(), 4)
        0.0001
    """

    @without_autocast
    def forward(self, label_embeddings: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss of one batch."""
        check_matrix("label_embeddings", label_embeddings, dims="[documents, labels, dim]")
        check_same_rows("label_embeddings", label_embeddings, "labels", labels)
        check_finite("label_embeddings", label_embeddings)
        dtype = working_dtype(label_embeddings)
        documents, columns = label_matrix("labels", labels, dtype).pairs()  # [P] both
        if labels.shape != label_embeddings.shape[:2]:
            raise ValueError(
                f"label_embeddings must hold one vector for each document and label {tuple(labels.shape)}, "
                f"got shape {tuple(label_embeddings.shape)}"
            )
        if len(documents) == 0:
            return label_embeddings.sum().to(dtype) * 0
        unit = unit_rows(label_embeddings[documents, columns].to(dtype))  # [P, d]
        logits = mask_self(unit @ (unit / self.temperature).T)  # [P, P]
        same_label = (columns.unsqueeze(1) == columns).to(dtype).fill_diagonal_(0)
        return contrastive_sum([logits], normalise_rows_([same_label]), anchors=len(documents))
