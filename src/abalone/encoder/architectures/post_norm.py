"""The layer that BERT has introduced: a norm after attention, and one after the feed-forward part."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from abalone.encoder.architectures.adapter import Layer, Pass, States
from abalone.encoder.fast.weights import LayerWeights, Product

Projection = tuple[Product, Tensor]  # with its bias


@dataclass(frozen=True, eq=False)
class PostNormLayer(Layer):
    """The modules of a layer built like BERT's.

    Args:
        attention_norm: after attention.
        norm: after the feed-forward part.
        attention_output_dropout: whether training drops states between attention and its norm.
    """

    attention_norm: nn.LayerNorm
    norm: nn.LayerNorm
    attention_output_dropout: bool = True

    def forward(
        self, states: States, weights: LayerWeights, run: Pass, number: int, *, firsts_only: bool = False
    ) -> States:
        """Return the states after this layer, [N, h], or [P, h] of the first token of each piece."""
        if firsts_only:
            attended, states = _attend_from_firsts(states, weights, run)
        else:
            attended = _attend(states, weights, run, number)
        dropout = run.dropout if self.attention_output_dropout else 0.0
        output, norm = (weights.output, self.output.bias), self.attention_norm
        states = _add_and_normalise(attended, output, states, norm, run, (number, 1), dropout)
        inner = _activate(states.read, weights.up, self.up.bias, run)
        down = (weights.down, self.down.bias)
        return _add_and_normalise(inner, down, states, self.norm, run, (number, 2), run.dropout)


def _attend(states: States, weights: LayerWeights, run: Pass, number: int) -> Tensor:
    """Attend within each piece, [N, h] → [N, h]."""
    projections = list(zip(weights.projections, weights.projection_biases, strict=True))
    if run.attention.ours and run.seeds is not None:
        ((product, bias),) = projections
        (projected,) = _project(states.read, [(product, bias.detach())], run)
        return run.attention.by_ours(projected, bias, run.seeds[number, :1])
    return run.attention(_project(states.read, projections, run))


def _attend_from_firsts(states: States, weights: LayerWeights, run: Pass) -> tuple[Tensor, States]:
    """Attend from first tokens to all, [N, h] → [P, h]; return the first tokens' states too."""
    query, *rest = _apart(weights, states.read.shape[1])
    firsts = States(*(kind.index_select(0, run.attention.layout.firsts) for kind in states))  # [P, h]
    (queries,) = (x for product in _project(firsts.read, (query,), run) for x in product.unbind(1))
    keys, values = (x for product in _project(states.read, rest, run) for x in product.unbind(1))
    return run.attention.of_firsts(queries, keys, values), firsts


def _apart(weights: LayerWeights, hidden: int) -> list[Projection]:
    """Split the projections: queries by themselves, then keys and values, in one product or two."""
    projections = list(zip(weights.projections, weights.projection_biases, strict=True))
    if len(projections) == 1:
        ((product, bias),) = projections
        return [(product.rows(rows), bias[rows]) for rows in (slice(hidden), slice(hidden, None))]
    return projections


def _project(states: Tensor, projections: Iterable[Projection], run: Pass) -> tuple[Tensor, ...]:
    """Project states, [n, h] → [n, k, heads, d] for every k·h rows of weights."""
    shape = (len(states), -1, run.heads, states.shape[1] // run.heads)
    return tuple(product(states, bias).view(shape) for product, bias in projections)


def _add_and_normalise(
    x: Tensor,
    projection: Projection,
    states: States,
    norm: nn.LayerNorm,
    run: Pass,
    place: tuple[int, int],
    dropout: float,
) -> States:
    """Compute LayerNorm(dropout(x·Wᵀ + b) + states) in full precision: in low precision small updates would be lost.

    Args:
        place: of the seed of this dropout.
    """
    product, bias = projection
    if run.seeds is not None:
        from abalone.encoder.fast.elementwise_kernels import add_and_normalise

        mixed, seed = product(x), run.seeds[place].unsqueeze(0)
        given = mixed, bias, states.full, norm.weight, norm.bias, seed
        return States(*add_and_normalise(*given, eps=norm.eps, dropout=dropout))
    mixed = product(x, bias.to(x.dtype))
    if dropout > 0:
        mixed = F.dropout(mixed, dropout)
    full = mixed.to(norm.weight.dtype) + states.full
    full = F.layer_norm(full, norm.weight.shape, norm.weight, norm.bias, norm.eps)
    return States(full, full.to(x.dtype))


def _activate(x: Tensor, product: Product, bias: Tensor, run: Pass) -> Tensor:
    """Compute activation(x·Wᵀ + b)."""
    if run.seeds is not None and run.activation is F.gelu:
        from abalone.encoder.fast.elementwise_kernels import gelu

        return gelu(product(x), bias)
    return run.activation(product(x, bias.to(x.dtype)))
