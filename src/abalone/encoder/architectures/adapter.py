"""The forward pass of a transformer over packed tokens, and the interface of an architecture to it.

The pass is the same function as the padded layers of `transformers`, computed on the same parameters, without
arithmetic on padding and, where only the first token's state is wanted, without most of the last layer.

An architecture is one file in this folder with an `Adapter`, which finds the parts of a model, and its class in
`ADAPTERS` of `__init__.py`. Architectures built like BERT share the arithmetic of `post_norm.py`. One that computes
otherwise brings a `Layer` of its own. ModernBERT, for example, differs in these points, each of which has its place:

- norms before the products, a gated activation and no biases: in `forward` of its layer. Its one matrix for queries,
  keys and values is the only one of `projections`.
- rotary positions: its layer turns queries and keys before attention, by tables that its adapter makes once a pass.
- local attention in two layers of three: a field of its layer, passed on to attention.
- no table of positions, and a norm after the last layer: `Embeddings` and `Adapter` each get an optional part.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abalone.encoder.fast.attention import PieceAttention, has_packed_kernels
from abalone.encoder.fast.weights import LayerWeights, LowPrecisionWeights, RowGradients
from abalone.encoder.packed import Packed


class States(NamedTuple):
    """The states that layers hand on: in full precision, and as the next product reads them."""

    full: Tensor  # [n, h]
    read: Tensor  # [n, h], in low precision where products are; else the same tensor


@dataclass(frozen=True)
class Pass:
    """The settings and the attention of one forward pass, the same for all layers."""

    heads: int
    activation: Callable[[Tensor], Tensor]
    dropout: float  # 0 where nothing is trained
    seeds: Tensor | None  # [layers, 3], where kernels of ours do the work between products
    attention: PieceAttention


class Settings(NamedTuple):
    """The settings of all layers, as a model's configuration has them."""

    heads: int
    activation: str  # between the two products of the feed-forward part, by its name in `transformers`
    dropout: float  # the share of states that is dropped in training
    attention_dropout: float  # the share of the softmax that is


class Embeddings(NamedTuple):
    """The modules that make the first layer's states from token ids."""

    words: nn.Embedding
    positions: nn.Embedding
    token_type: Tensor | None  # [h], of type 0, which all tokens have; none where there are no types
    norm: nn.LayerNorm

    @property
    def first_position(self) -> int:
        """The row of a piece's first token: padding may have a row of its own, and counting begins after it."""
        return 0 if self.positions.padding_idx is None else self.positions.padding_idx + 1


@dataclass(frozen=True, eq=False)
class Layer(ABC):
    """The modules of one layer, whatever the architecture calls them, and what it computes with them.

    Args:
        projections: to queries, keys and values: three of [h, h], or one of [3h, h].
        output: after attention.
        up: to the inner width.
        down: back from it.
    """

    projections: tuple[nn.Linear, ...]
    output: nn.Linear
    up: nn.Linear
    down: nn.Linear

    @abstractmethod
    def forward(
        self, states: States, weights: LayerWeights, run: Pass, number: int, *, firsts_only: bool = False
    ) -> States:
        """Return the states after this layer, [N, h], or [P, h] of the first token of each piece.

        Args:
            states: [N, h].
            weights: this layer's matrices in the precision of the products.
            run: settings and attention of this pass.
            number: of this layer, which has the row of this number in `run.seeds`.
            firsts_only: whether only first tokens' states are wanted.
        """


class Adapter(ABC):
    """A view of a model that shows its parts under one set of names, and holds no weights of its own.

    Args:
        model: of one of the `classes`.
    """

    classes: ClassVar[tuple[str, ...]]  # names, so that `transformers` need not be imported

    def __init__(self, model: Any) -> None:
        self.model = model

    @abstractmethod
    def settings(self) -> Settings:
        """Return what the model's configuration says, whatever it calls it."""

    @abstractmethod
    def embeddings(self) -> Embeddings:
        """Return the modules that make states from ids. They are absent in the upper part of a split model."""

    @abstractmethod
    def layers(self) -> list[Layer]:
        """Return the layers, from the first to the last."""

    def position_bias(self, batch: Packed) -> Tensor | None:
        """Return what is added to the scores of attention, [heads, R, R] as `PieceAttention` wants them."""
        return None

    @property
    def tables(self) -> list[Tensor]:
        """The vectors of words and positions; none where the model is given states in their place."""
        if not hasattr(self.model.embeddings, "word_embeddings"):
            return []
        parts = self.embeddings()
        return [parts.words.weight, parts.positions.weight]

    @classmethod
    def from_checkpoint(cls, config: Any, tensors: Mapping[str, Tensor]) -> nn.Module | None:
        """Build the modules of a saved model without `transformers`; `None` where that has to read it.

        Args:
            config: what config.json holds.
            tensors: the weights, by their names in the file.
        """
        return None


def packed_states(
    adapter: Adapter, batch: Packed, *, firsts_only: bool = False, copies: LowPrecisionWeights | None = None
) -> Tensor:
    """Return the last layer's states: [N, h], or [P, h] of the first token of each piece.

    Args:
        adapter: of the model. Products are in low precision where autocast is on, or the model's weights are.
        batch: ids, or states for which the model's embeddings stand aside.
        firsts_only: whether only first tokens' states are wanted.
        copies: the weights in the precision of autocast, if they are at hand.
    """
    device, training = batch.tokens.device.type, adapter.model.training
    layers, settings = adapter.layers(), adapter.settings()
    autocast = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if autocast else layers[0].projections[0].weight.dtype
    seeds = _seeds(len(layers), batch, dtype)
    if copies is not None and copies.dtype is not dtype:
        copies = None
    with torch.autocast(device, enabled=False):
        dropout = settings.dropout if training else 0.0
        embedded = _embedded(adapter, batch, dropout, None if copies is None else copies.row_gradients)
        states = States(embedded, embedded.to(dtype))
        attention = PieceAttention(
            batch,
            dtype,
            bias=adapter.position_bias(batch),
            dropout=settings.attention_dropout if training else 0.0,
            width=None if seeds is None else embedded.shape[1] // settings.heads,
        )
        run = Pass(settings.heads, _activation(settings.activation), dropout, seeds, attention)
        for number, layer in enumerate(layers):
            if copies is None:  # one product for all projections is faster on a GPU, and worth a copy there
                weights = LayerWeights.cast(layer, dtype, joined=batch.cu_seqlens.is_cuda)
            else:
                weights = copies.layers[number]
            last = number == len(layers) - 1
            states = layer.forward(states, weights, run, number, firsts_only=firsts_only and last)
    return states.full


def _seeds(layers: int, batch: Packed, dtype: torch.dtype) -> Tensor | None:
    """Draw seeds on the device, [layers, 3], for a batch whose layers can use our kernels; none for others."""
    if not has_packed_kernels(batch.cu_seqlens.device, dtype) or not _has_triton():
        return None
    return torch.randint(2**62, (layers, 3), device=batch.cu_seqlens.device)


def _embedded(adapter: Adapter, batch: Packed, dropout: float, gradients: RowGradients | None) -> Tensor:
    """Return the first layer's states [N, h], in full precision."""
    if batch.tokens.is_floating_point():
        return batch.tokens
    words, positions, token_type, norm = embeddings = adapter.embeddings()
    places = batch.positions + embeddings.first_position
    if gradients is not None:
        from abalone.encoder.fast.elementwise_kernels import embedding_sum

        tables = words.weight, positions.weight
        states = embedding_sum(*tables, token_type, batch.tokens, places, into=gradients, padding=words.padding_idx)
    else:
        states = words(batch.tokens)
        if token_type is not None:
            states = states + token_type
        states = states + F.embedding(places, positions.weight)
    states = F.layer_norm(states, norm.weight.shape, norm.weight, norm.bias, norm.eps)
    return F.dropout(states, dropout) if dropout > 0 else states


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


@cache
def _activation(name: str) -> Callable[[Tensor], Tensor]:
    if name == "gelu":
        return F.gelu
    from transformers.activations import ACT2FN

    activation: Callable[[Tensor], Tensor] = ACT2FN[name]
    return activation
