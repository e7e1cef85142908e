"""Heads on the encoder: in pre-training projection, prototypes and label attention; in use, linear layers."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor, nn

from abalone.errors import InputError
from abalone.evaluation.matrices import Computed, Index, Scores, held

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
        """Project features, [B, h] → [B, dim]."""
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
        """Return the prototypes, [L, dim]."""
        return self.weight

    @classmethod
    def from_embeddings(cls, embeddings: Tensor) -> "Prototypes":
        """Start from what encoder and projection head make of the label names, [L, dim]."""
        if embeddings.dim() != 2:
            raise InputError(f"embeddings must be [labels, dim], got shape {tuple(embeddings.shape)}")
        prototypes = cls(*embeddings.shape)
        # Directions from the names, lengths as in a Xavier start: the loss sees only directions, but the shorter a
        # vector the faster a given learning rate turns it.
        rows, dim = embeddings.shape
        length = math.sqrt(dim * 2 / (rows + dim))
        prototypes.weight.data.copy_(length * nn.functional.normalize(embeddings.detach().float(), dim=1))
        return prototypes

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        return f"num_labels={self.weight.shape[0]}, dim={self.weight.shape[1]}"


class LabelAttention(nn.Module):
    """One embedding for every document and label: each label looks at the tokens that speak of it.

    What `MulConLoss` contrasts. Discarded after training, like the projection head.

    Args:
        hidden: h, the width of the encoder.
        num_labels: L.
        dim: width of a label embedding.
    """

    def __init__(self, hidden: int, num_labels: int, dim: int = PROJECTION_DIM) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.empty(num_labels, hidden))
        nn.init.xavier_uniform_(self.queries)
        self.value = nn.Linear(hidden, dim)

    def forward(self, states: Tensor, attention_mask: Tensor) -> Tensor:
        """Attend from labels to tokens: states [B, T, h] and their mask [B, T] → [B, L, dim]."""
        scores = states @ self.queries.T / math.sqrt(states.shape[2])  # [B, T, L]
        scores = scores.masked_fill(attention_mask.unsqueeze(2) == 0, -math.inf)
        looked_at: Tensor = self.value(scores.softmax(1).transpose(1, 2) @ states)
        return looked_at


@dataclass(frozen=True, eq=False)
class LinearHead:
    """From embeddings to logits: one linear layer, or several whose probabilities are averaged.

    Args:
        weight: [m, L, h]; m is 1 after fine-tuning, and the number of initialisations after linear evaluation.
        bias: [m, L].
    """

    weight: Tensor
    bias: Tensor

    @classmethod
    def of_layer(cls, layer: nn.Linear) -> "LinearHead":
        """Copy a trained layer."""
        return cls(layer.weight.detach().float().cpu().unsqueeze(0), layer.bias.detach().float().cpu().unsqueeze(0))

    @property
    def num_labels(self) -> int:
        """The number of labels, L."""
        return self.weight.shape[1]

    def logits(self, embeddings: np.ndarray) -> np.ndarray:
        """Return logits, [n, h] → [n, L], float32; of several layers the log-odds of the mean probability."""
        features = torch.from_numpy(np.ascontiguousarray(embeddings, dtype=np.float32))
        each = torch.einsum("nh,mlh->mnl", features, self.weight) + self.bias.unsqueeze(1)  # [m, n, L]
        if len(each) == 1:
            return each[0].numpy()
        # log of the mean of σ(x), and of 1 − σ(x), without leaving the logarithm: no probability rounds to 0 or 1.
        yes, no = nn.functional.logsigmoid(each).logsumexp(0), nn.functional.logsigmoid(-each).logsumexp(0)
        return (yes - no).numpy()

    def logits_in_blocks(self, embeddings: np.ndarray) -> Scores:
        """Return `logits`, computed block by block where documents and labels are many."""

        def block(rows: Index, columns: Index) -> np.ndarray:
            return LinearHead(self.weight[:, columns], self.bias[:, columns]).logits(embeddings[rows])

        return held(Computed((len(embeddings), self.num_labels), block))

    def predicted_at_half(self, embeddings: np.ndarray) -> Scores:
        """Return bool [n, L], true where the probability is 0.5 or more, as in the paper's tables."""
        logits = self.logits_in_blocks(embeddings)
        return held(Computed(logits.shape, lambda rows, columns: expit(logits[rows, columns]) >= 0.5))

    def merged(self) -> "LinearHead":
        """Return one layer with the mean of the weights, for tools that know a single linear layer."""
        return LinearHead(self.weight.mean(0, keepdim=True), self.bias.mean(0, keepdim=True))

    def state(self) -> dict[str, Tensor]:
        """Return the tensors to save."""
        return {"weight": self.weight, "bias": self.bias}
