"""The forward pass of a transformer over packed tokens.

The same function as the padded layers of `transformers`, computed on the same parameters, without arithmetic on
padding and, where only the first token's state is wanted, without most of the last layer.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abalone.encoder.architectures.adapter import Adapter, Pass, States
from abalone.encoder.architectures.bert import BertAdapter
from abalone.encoder.architectures.distilbert import DistilBertAdapter
from abalone.encoder.architectures.mpnet import MPNetAdapter
from abalone.encoder.fast.attention import PieceAttention, has_packed_kernels
from abalone.encoder.fast.weights import LayerWeights, LowPrecisionWeights, RowGradients
from abalone.encoder.packed import Packed

ADAPTERS: tuple[type[Adapter], ...] = (BertAdapter, MPNetAdapter, DistilBertAdapter)


def adapter_of(model: nn.Module) -> Adapter | None:
    """Return the adapter of a model; none where its own forward pass, on padded batches, has to be used."""
    if getattr(getattr(model, "config", None), "is_decoder", False):
        return None
    return next((adapter(model) for adapter in ADAPTERS if type(model).__name__ in adapter.classes), None)


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
        run = Pass(settings.heads, _activation(settings.activation), dropout, dtype, seeds, attention)
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
