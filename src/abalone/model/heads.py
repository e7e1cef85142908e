"""What stands on the encoder in pre-training: the projection head and the label prototypes."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

PROJECTION_DIM = 256  # the paper's d


class ProjectionHead(nn.Module):
    """W₂ · ReLU(W₁ · x), h → h → `dim`, discarded after pre-training.

    The loss flattens what does not help it; the head takes this on itself and leaves the encoder's features rich.

    Args:
        hidden: h, the width of the encoder.
        dim: width of the space in which documents are compared.
    """

    def __init__(self, hidden: int, dim: int = PROJECTION_DIM) -> None:
        super().__init__()
        self.inner = nn.Linear(hidden, hidden, bias=False)
        self.outer = nn.Linear(hidden, dim, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """[B, h] → [B, dim]."""
        projected: Tensor = self.outer(torch.relu(self.inner(features)))
        return projected


class Prototypes(nn.Module):
    """One trainable vector a label, so that every label of every document has a positive.

    Args:
        num_labels: L.
        dim: width of the projected space.
    """

    def __init__(self, num_labels: int, dim: int = PROJECTION_DIM) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_labels, dim))
        nn.init.xavier_uniform_(self.weight)

    def forward(self) -> Tensor:
        """[L, dim]."""
        return self.weight

    @classmethod
    def from_label_names(cls, names: Sequence[str], embed: Callable[[Sequence[str]], Tensor]) -> "Prototypes":
        """Start from what the encoder makes of the label names.

        Args:
            names: one for each label, in order.
            embed: texts → projected embeddings [L, dim], for example encoder and projection head on tokenised names.
        """
        with torch.no_grad():
            embeddings = embed(names)
        if embeddings.dim() != 2 or len(embeddings) != len(names):
            raise ValueError(f"embed must give one row for each of {len(names)} names, got {tuple(embeddings.shape)}")
        prototypes = cls(*embeddings.shape)
        # Directions from the names, lengths as in a Xavier start: the loss sees only directions, but the shorter a
        # vector the faster a given learning rate turns it.
        rows, dim = embeddings.shape
        length = math.sqrt(dim * 2 / (rows + dim))
        unit = nn.functional.normalize(embeddings.float(), dim=1)
        prototypes.weight.data.copy_(length * unit)
        return prototypes

    def extra_repr(self) -> str:
        """The settings, for `repr`."""
        return f"num_labels={self.weight.shape[0]}, dim={self.weight.shape[1]}"
