"""The transformer layers of the BERT family over packed tokens.

The same function as the padded layers of `transformers`, computed on the same parameters, without arithmetic on
padding and, where only the first token's state is wanted, without most of the last layer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abalone.model.attention import PieceAttention
from abalone.model.packed import Packed

FAMILY = ("BertModel", "RobertaModel", "XLMRobertaModel", "CamembertModel", "MPNetModel")


class Layer(NamedTuple):
    """The parts of one layer, whatever the architecture calls them."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear
    attention_norm: nn.LayerNorm
    up: nn.Linear
    down: nn.Linear
    norm: nn.LayerNorm


@dataclass(frozen=True)
class Settings:
    """What holds for all layers of a model."""

    heads: int
    activation: Callable[[Tensor], Tensor]
    dropout: float
    training: bool  # whether dropout is on
    dtype: torch.dtype  # of the products; what runs from layer to layer, and norms, are in full precision
    compiled: bool


def is_packable(model: nn.Module) -> bool:
    """Whether `packed_states` can stand for the model's own forward pass."""
    config = getattr(model, "config", None)
    return type(model).__name__ in FAMILY and not getattr(config, "is_decoder", False)


def packed_states(model: Any, batch: Packed, *, firsts_only: bool = False, compiled: bool = False) -> Tensor:
    """The last layer's states: [N, h], or [P, h] of the first token of each piece.

    Args:
        model: of a class for which `is_packable` holds. In half precision where autocast is on, or its weights are.
        batch: ids, or states for which the model's embeddings stand aside.
        compiled: let torch compile what lies between the products.
    """
    config, device = model.config, batch.tokens.device.type
    layers = [_parts(layer) for layer in model.encoder.layer]
    autocast = torch.is_autocast_enabled(device)
    settings = Settings(
        heads=config.num_attention_heads,
        activation=_activation(config.hidden_act),
        dropout=config.hidden_dropout_prob,
        training=model.training,
        dtype=torch.get_autocast_dtype(device) if autocast else layers[0].query.weight.dtype,
        compiled=compiled,
    )
    with torch.autocast(device, enabled=False):
        states = _embedded(model, batch, settings)
        dropout = config.attention_probs_dropout_prob if model.training else 0.0
        attention = PieceAttention(batch, settings.dtype, bias=_position_bias(model, batch), dropout=dropout)
        for layer in layers[:-1]:
            states = _layer(states, layer, attention, settings)
        return (_layer_of_firsts if firsts_only else _layer)(states, layers[-1], attention, settings)


def _embedded(model: Any, batch: Packed, settings: Settings) -> Tensor:
    """[N, h], in full precision."""
    if batch.tokens.is_floating_point():
        return batch.tokens
    parts = model.embeddings
    # Where padding has a place of its own in the table of positions, counting begins after it.
    first = 0 if parts.position_embeddings.padding_idx is None else parts.position_embeddings.padding_idx + 1
    states = parts.word_embeddings(batch.tokens)
    if hasattr(parts, "token_type_embeddings"):
        states = states + parts.token_type_embeddings.weight[0]
    states = states + F.embedding(batch.positions + first, parts.position_embeddings.weight)
    norm = parts.LayerNorm
    states = F.layer_norm(states, norm.weight.shape, norm.weight, norm.bias, norm.eps)
    return _dropout(states, settings.dropout, settings.training)


def _layer(states: Tensor, layer: Layer, attention: PieceAttention, settings: Settings) -> Tensor:
    """[N, h] → [N, h]."""
    queries, keys, values = _project(states, (layer.query, layer.key, layer.value), settings)
    return _after_attention(attention(queries, keys, values), states, layer, settings)


def _layer_of_firsts(states: Tensor, layer: Layer, attention: PieceAttention, settings: Settings) -> Tensor:
    """[N, h] → [P, h]: keys and values of all tokens, everything else of the first ones alone."""
    keys, values = _project(states, (layer.key, layer.value), settings)
    firsts = states.index_select(0, attention.layout.firsts)  # [P, h]
    (queries,) = _project(firsts, (layer.query,), settings)
    return _after_attention(attention.of_firsts(queries, keys, values), firsts, layer, settings)


def _project(states: Tensor, parts: tuple[nn.Linear, ...], settings: Settings) -> tuple[Tensor, ...]:
    """[n, h] → one [n, heads, d] for each part, in one product where launches cost more than copies of weights."""
    states = states.to(settings.dtype)
    if not states.is_cuda:
        return tuple(_linear(states, part.weight, part.bias).view(len(states), settings.heads, -1) for part in parts)
    weight = torch.cat([part.weight.to(settings.dtype) for part in parts])
    bias = torch.cat([part.bias.to(settings.dtype) for part in parts])
    return F.linear(states, weight, bias).view(len(states), len(parts), settings.heads, -1).unbind(1)


def _after_attention(attended: Tensor, states: Tensor, layer: Layer, settings: Settings) -> Tensor:
    run = _feed_forward
    if settings.compiled:
        run = _compiled_feed_forward()
        for tensor in (attended, states):
            torch._dynamo.mark_dynamic(tensor, 0)  # one compilation for any number of tokens
    dropout, training = settings.dropout, settings.training
    return run(attended, states, _weights(layer), settings.activation, layer.norm.eps, dropout, training)


class _Weights(NamedTuple):
    """What follows attention in a layer, as tensors: a compiled function is made once for all layers."""

    output: Tensor
    output_bias: Tensor
    attention_norm: Tensor
    attention_norm_bias: Tensor
    up: Tensor
    up_bias: Tensor
    down: Tensor
    down_bias: Tensor
    norm: Tensor
    norm_bias: Tensor


def _weights(layer: Layer) -> _Weights:
    parts = (layer.output, layer.attention_norm, layer.up, layer.down, layer.norm)
    return _Weights(*(tensor for part in parts for tensor in (part.weight, part.bias)))


def _feed_forward(
    attended: Tensor,
    states: Tensor,
    weights: _Weights,
    activation: Callable[[Tensor], Tensor],
    eps: float,
    dropout: float,
    training: bool,
) -> Tensor:
    """Everything in a layer after attention, [n, h] → [n, h]."""
    mixed = _dropout(_linear(attended, weights.output, weights.output_bias), dropout, training)
    states = _add_and_normalise(mixed, states, weights.attention_norm, weights.attention_norm_bias, eps)
    inner = activation(_linear(states.to(attended.dtype), weights.up, weights.up_bias))
    mixed = _dropout(_linear(inner, weights.down, weights.down_bias), dropout, training)
    return _add_and_normalise(mixed, states, weights.norm, weights.norm_bias, eps)


@cache
def _compiled_feed_forward() -> Callable[..., Tensor]:
    return torch.compile(_feed_forward, fullgraph=True)


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear(x, weight.to(x.dtype), bias.to(x.dtype))


def _add_and_normalise(mixed: Tensor, states: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """LayerNorm of the sum, in full precision, where a half would lose what small updates add up to."""
    return F.layer_norm(mixed.to(weight.dtype) + states, weight.shape, weight, bias, eps)


def _dropout(x: Tensor, share: float, training: bool) -> Tensor:
    return F.dropout(x, share) if training and share > 0 else x


@cache
def _activation(name: str) -> Callable[[Tensor], Tensor]:
    """One object for each name: a compiled layer is made anew for every activation it meets."""
    from transformers.activations import ACT2FN

    activation: Callable[[Tensor], Tensor] = F.gelu if name == "gelu" else ACT2FN[name]
    return activation


def _position_bias(model: Any, batch: Packed) -> Tensor | None:
    """MPNet's relative positions, [heads, T, T]; the others have none."""
    table = getattr(model.encoder, "relative_attention_bias", None)
    if table is None:
        return None
    places = torch.arange(batch.longest, device=batch.starts.device)
    bucket = model.encoder.relative_position_bucket(places.unsqueeze(0) - places.unsqueeze(1))
    return F.embedding(bucket, table.weight).permute(2, 0, 1)


def _parts(layer: Any) -> Layer:
    attention = layer.attention
    if hasattr(attention, "attn"):  # MPNet
        of_attention = attention.attn
        projections = of_attention.q, of_attention.k, of_attention.v, of_attention.o, attention.LayerNorm
    else:
        of_attention, output = attention.self, attention.output
        projections = of_attention.query, of_attention.key, of_attention.value, output.dense, output.LayerNorm
    return Layer(*projections, layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm)
