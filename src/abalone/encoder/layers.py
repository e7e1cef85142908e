"""The transformer layers of the BERT family over packed tokens.

The same function as the padded layers of `transformers`, computed on the same parameters, without arithmetic on
padding and, where only the first token's state is wanted, without most of the last layer.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from abalone.encoder.fast.attention import ROUND, PieceAttention, has_packed_kernels
from abalone.encoder.fast.product import Product
from abalone.encoder.packed import Packed
from abalone.encoder.weights import HalfWeights, LayerWeights, RowGradients, layer_parts

Projection = tuple[Product, Tensor]  # with its bias


class States(NamedTuple):
    """What runs from layer to layer: in full precision, and as the next product reads it."""

    whole: Tensor  # [n, h]
    read: Tensor  # [n, h], in half precision where products are; else the same tensor


@dataclass(frozen=True)
class Settings:
    """What holds for all layers of a model."""

    heads: int
    activation: Callable[[Tensor], Tensor]
    eps: float  # of the norms
    dropout: float  # 0 where nothing is trained
    dtype: torch.dtype  # of the products; norms, and what they add up, are in full precision
    seeds: Tensor | None  # [layers, 3], where kernels of ours do the work between products


def packed_states(model: Any, batch: Packed, *, firsts_only: bool = False, halves: HalfWeights | None = None) -> Tensor:
    """The last layer's states: [N, h], or [P, h] of the first token of each piece.

    Args:
        model: of a class for which `is_packable` holds. In half precision where autocast is on, or its weights are.
        batch: ids, or states for which the model's embeddings stand aside.
        halves: the weights in the precision of autocast, if they are at hand.
    """
    config, device = model.config, batch.tokens.device.type
    parts = [layer_parts(layer) for layer in model.encoder.layer]
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else parts[0].query.weight.dtype
    settings = Settings(
        heads=config.num_attention_heads,
        activation=_activation(config.hidden_act),
        eps=config.layer_norm_eps,
        dropout=config.hidden_dropout_prob if model.training else 0.0,
        dtype=dtype,
        seeds=_seeds(len(parts), batch, dtype),
    )
    if halves is not None and halves.dtype is not dtype:
        halves = None
    with torch.autocast(device, enabled=False):
        embedded = _embedded(model, batch, settings, None if halves is None else halves.row_gradients)
        states = States(embedded, embedded.to(dtype))
        dropout = config.attention_probs_dropout_prob if model.training else 0.0
        width = None if settings.seeds is None else embedded.shape[1] // settings.heads
        attention = PieceAttention(batch, dtype, bias=_position_bias(model, batch), dropout=dropout, width=width)
        for number, part in enumerate(parts):
            weights = part.weights(dtype, fused=batch.starts.is_cuda) if halves is None else halves.layers[number]
            of_firsts = firsts_only and number == len(parts) - 1
            states = (_layer_of_firsts if of_firsts else _layer)(states, weights, attention, settings, number)
    return states.whole


def _seeds(layers: int, batch: Packed, dtype: torch.dtype) -> Tensor | None:
    """Random numbers on the device, for a batch whose layers can use our kernels; none for others."""
    if not has_packed_kernels(batch.starts.device, dtype) or not _has_triton():
        return None
    return torch.randint(2**62, (layers, 3), device=batch.starts.device)


def _embedded(model: Any, batch: Packed, settings: Settings, gradients: RowGradients | None) -> Tensor:
    """[N, h], in full precision."""
    if batch.tokens.is_floating_point():
        return batch.tokens
    parts = model.embeddings
    words, positions = parts.word_embeddings, parts.position_embeddings
    # Where padding has a place of its own in the table of positions, counting begins after it.
    places = batch.positions + (0 if positions.padding_idx is None else positions.padding_idx + 1)
    kind = parts.token_type_embeddings.weight[0] if hasattr(parts, "token_type_embeddings") else None
    if gradients is not None:
        from abalone.encoder.fast.embedding_kernels import embedding_sum

        tables = words.weight, positions.weight
        states = embedding_sum(*tables, kind, batch.tokens, places, into=gradients, padding=words.padding_idx)
    else:
        states = words(batch.tokens)
        if kind is not None:
            states = states + kind
        states = states + F.embedding(places, positions.weight)
    norm = parts.LayerNorm
    states = F.layer_norm(states, norm.weight.shape, norm.weight, norm.bias, norm.eps)
    return F.dropout(states, settings.dropout) if settings.dropout > 0 else states


def _layer(states: States, weights: LayerWeights, attention: PieceAttention, settings: Settings, number: int) -> States:
    """[N, h] → [N, h]."""
    projections = list(zip(weights.projections, weights.projection_biases, strict=True))
    if attention.ours and settings.seeds is not None:
        ((product, bias),) = projections
        (projected,) = _project(states.read, [(product, bias.detach())], settings)
        attended = attention.by_ours(projected, bias, settings.seeds[number, :1])
    else:
        attended = attention(_project(states.read, projections, settings))
    return _feed_forward(attended, states, weights, settings, number)


def _layer_of_firsts(
    states: States, weights: LayerWeights, attention: PieceAttention, settings: Settings, number: int
) -> States:
    """[N, h] → [P, h]: keys and values of all tokens, everything else of the first ones alone."""
    query, *rest = _apart(weights, states.read.shape[1])
    firsts = States(*(kind.index_select(0, attention.layout.firsts) for kind in states))  # [P, h]
    (queries,) = (x for product in _project(firsts.read, (query,), settings) for x in product.unbind(1))
    keys, values = (x for product in _project(states.read, rest, settings) for x in product.unbind(1))
    return _feed_forward(attention.of_firsts(queries, keys, values), firsts, weights, settings, number)


def _apart(weights: LayerWeights, hidden: int) -> list[Projection]:
    """Queries by themselves, then keys and values, in one product or two."""
    projections = list(zip(weights.projections, weights.projection_biases, strict=True))
    if len(projections) == 1:
        ((product, bias),) = projections
        return [(product.rows(rows), bias[rows]) for rows in (slice(hidden), slice(hidden, None))]
    return projections


def _project(states: Tensor, projections: Iterable[Projection], settings: Settings) -> tuple[Tensor, ...]:
    """[n, h] → [n, k, heads, d] for every k·h rows of weights."""
    shape = (len(states), -1, settings.heads, states.shape[1] // settings.heads)
    return tuple(product(states, bias).view(shape) for product, bias in projections)


def _feed_forward(attended: Tensor, states: States, weights: LayerWeights, settings: Settings, number: int) -> States:
    """Everything in a layer after attention, [n, h] → [n, h]."""
    w = weights
    norm, last_norm = (w.attention_norm, w.attention_norm_bias), (w.norm, w.norm_bias)
    states = _add_and_normalise(attended, w.output, w.output_bias, states, norm, settings, (number, 1))
    inner = _activate(states.read, w.up, w.up_bias, settings)
    return _add_and_normalise(inner, w.down, w.down_bias, states, last_norm, settings, (number, 2))


def _add_and_normalise(
    x: Tensor,
    product: Product,
    bias: Tensor,
    states: States,
    norm: tuple[Tensor, Tensor],
    settings: Settings,
    place: tuple[int, int],
) -> States:
    """LayerNorm(dropout(x·Wᵀ + b) + states), in full precision: halves would lose what small updates add up to."""
    eps, dropout = settings.eps, settings.dropout
    if settings.seeds is not None:
        from abalone.encoder.fast.elementwise_kernels import add_and_normalise

        mixed, seed = product(x), settings.seeds[place].unsqueeze(0)
        return States(*add_and_normalise(mixed, bias, states.whole, *norm, seed, eps=eps, dropout=dropout))
    mixed = product(x, bias.to(x.dtype))
    if dropout > 0:
        mixed = F.dropout(mixed, dropout)
    whole = F.layer_norm(mixed.to(norm[0].dtype) + states.whole, norm[0].shape, *norm, eps)
    return States(whole, whole.to(x.dtype))


def _activate(x: Tensor, product: Product, bias: Tensor, settings: Settings) -> Tensor:
    """activation(x·Wᵀ + b)."""
    if settings.seeds is not None and settings.activation is F.gelu:
        from abalone.encoder.fast.elementwise_kernels import gelu

        return gelu(product(x), bias)
    return settings.activation(product(x, bias.to(x.dtype)))


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


def _position_bias(model: Any, batch: Packed) -> Tensor | None:
    """MPNet's relative positions, [heads, R, R] as `PieceAttention` wants them; the others have none."""
    table = getattr(model.encoder, "relative_attention_bias", None)
    if table is None:
        return None
    room = -(-batch.longest // ROUND) * ROUND
    distances = torch.arange(1 - room, room, device=batch.starts.device)  # of a key from a query
    bucket = model.encoder.relative_position_bucket(distances)
    by_distance = F.embedding(bucket, table.weight).T  # [heads, 2R − 1]
    return by_distance.unfold(1, room, 1).flip(1)  # query t has the keys at −t, 1 − t …
