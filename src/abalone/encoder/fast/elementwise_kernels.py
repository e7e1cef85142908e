"""The element-wise work around a layer's products, as few passes over memory: Triton kernels for NVIDIA GPUs.

Residual, bias, dropout and norm are one kernel, bias and GELU another, the gradients of word and position vectors a
third. Their backward passes draw the same random
numbers again instead of storing masks, and sum the gradients of biases and norms on the way, so that nothing is
read twice. Values between products are rounded to low precision only where a product reads them.
"""

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from abalone.encoder.fast.weights import RowGradients

# Sizes that were fastest on an H200 at 7,000 × 768: rows and warps of a program, and programs of a backward pass,
# each of which sums gradients over its share of the rows.
ROWS, COLUMNS, WARPS = 2, 1024, 4
NORM_PROGRAMS, GELU_PROGRAMS = 528, 1056


@triton.jit
def _kept(seed_ptr, rows, dropout, BLOCK: tl.constexpr, TILE: tl.constexpr):
    """Return 1 / (1 − dropout) where a value is kept and 0 where it is dropped, [TILE, BLOCK].

    Four numbers come from one turn of the generator, which otherwise costs as much as the memory does.
    """
    quarter: tl.constexpr = BLOCK // 4
    offsets = rows[:, None] * quarter + tl.arange(0, quarter)[None, :]
    a, b, c, d = tl.rand4x(tl.load(seed_ptr), offsets)
    numbers = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (TILE, BLOCK))
    return tl.where(numbers >= dropout, 1 / (1 - dropout), 0.0)


@triton.jit
def _add_norm_forward(
    mixed_ptr, bias_ptr, states_ptr, weight_ptr, norm_bias_ptr, seed_ptr,
    full_ptr, low_ptr, mean_ptr, scale_ptr,
    row_count, width, eps, dropout,
    DROP: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.arange(0, BLOCK)
    there = columns < width
    inside = (rows[:, None] < row_count) & there[None, :]
    place = rows[:, None] * width + columns[None, :]
    x = tl.load(mixed_ptr + place, inside, 0.0).to(tl.float32) + tl.load(bias_ptr + columns, there, 0.0)[None, :]
    if DROP:
        x *= _kept(seed_ptr, rows, dropout, BLOCK, TILE)
    x += tl.load(states_ptr + place, inside, 0.0)
    mean = tl.sum(tl.where(there[None, :], x, 0.0), 1) / width
    centred = tl.where(there[None, :], x - mean[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 1) / width + eps)
    weight = tl.load(weight_ptr + columns, there, 0.0)[None, :]
    out = centred * scale[:, None] * weight + tl.load(norm_bias_ptr + columns, there, 0.0)[None, :]
    tl.store(full_ptr + place, out, inside)
    tl.store(low_ptr + place, out, inside)
    tl.store(mean_ptr + rows, mean, rows < row_count)
    tl.store(scale_ptr + rows, scale, rows < row_count)


@triton.jit
def _add_norm_backward(
    full_grad_ptr, low_grad_ptr, mixed_ptr, bias_ptr, states_ptr, weight_ptr, seed_ptr, mean_ptr, scale_ptr,
    mixed_grad_ptr, states_grad_ptr, sums_ptr,
    row_count, width, dropout,
    FULL: tl.constexpr, LOW: tl.constexpr, DROP: tl.constexpr,
    TURNS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, BLOCK)
    there = columns < width
    bias = tl.load(bias_ptr + columns, there, 0.0)[None, :]
    weight = tl.load(weight_ptr + columns, there, 0.0)[None, :]
    of_weight = tl.zeros((BLOCK,), tl.float32)
    of_norm_bias = tl.zeros((BLOCK,), tl.float32)
    of_bias = tl.zeros((BLOCK,), tl.float32)
    for turn in range(TURNS):
        rows = (turn * tl.num_programs(0) + tl.program_id(0)) * TILE + tl.arange(0, TILE)
        inside = (rows[:, None] < row_count) & there[None, :]
        place = rows[:, None] * width + columns[None, :]
        grad = tl.zeros((TILE, BLOCK), tl.float32)
        if FULL:
            grad += tl.load(full_grad_ptr + place, inside, 0.0)
        if LOW:
            grad += tl.load(low_grad_ptr + place, inside, 0.0).to(tl.float32)
        x = tl.load(mixed_ptr + place, inside, 0.0).to(tl.float32) + bias
        kept = tl.full((TILE, BLOCK), 1.0, tl.float32)
        if DROP:
            kept = _kept(seed_ptr, rows, dropout, BLOCK, TILE)
        x = x * kept + tl.load(states_ptr + place, inside, 0.0)
        mean = tl.load(mean_ptr + rows, rows < row_count, 0.0)[:, None]
        scale = tl.load(scale_ptr + rows, rows < row_count, 0.0)[:, None]
        unit = tl.where(inside, (x - mean) * scale, 0.0)
        of_weight += tl.sum(grad * unit, 0)
        of_norm_bias += tl.sum(grad, 0)
        grad *= weight
        along = tl.sum(grad * unit, 1)[:, None] / width
        common = tl.sum(grad, 1)[:, None] / width
        grad = tl.where(inside, (grad - common - unit * along) * scale, 0.0)
        tl.store(states_grad_ptr + place, grad, inside)
        grad *= kept
        of_bias += tl.sum(grad, 0)
        tl.store(mixed_grad_ptr + place, grad, inside)
    mine = sums_ptr + tl.program_id(0) * 3 * width + columns
    tl.store(mine, of_weight, there)
    tl.store(mine + width, of_norm_bias, there)
    tl.store(mine + 2 * width, of_bias, there)


@triton.jit
def _sum_rows(rows_ptr, out_ptr, row_count, width, BLOCK: tl.constexpr, TILE: tl.constexpr):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = columns < width
    total = tl.zeros((TILE, BLOCK), tl.float32)
    for first in range(0, row_count, TILE):
        rows = first + tl.arange(0, TILE)
        inside = (rows[:, None] < row_count) & there[None, :]
        total += tl.load(rows_ptr + rows[:, None] * width + columns[None, :], inside, 0.0)
    tl.store(out_ptr + columns, tl.sum(total, 0), there)


def added_up(shares: Tensor) -> Tensor:
    """Sum over the first dimension; torch's own sum is slow where it is this long."""
    total = shares.new_empty(shares.shape[1:])
    width = total.numel()
    _sum_rows[(triton.cdiv(width, 32),)](shares, total, len(shares), width, BLOCK=32, TILE=128, num_warps=8)
    return total


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mixed: Tensor, bias: Tensor, states: Tensor, weight: Tensor, norm_bias: Tensor,
        seed: Tensor, eps: float, dropout: float,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        rows, width = mixed.shape
        full, low = torch.empty_like(states), torch.empty_like(mixed)
        mean, scale = (torch.empty(rows, dtype=torch.float32, device=mixed.device) for _ in range(2))
        _add_norm_forward[(triton.cdiv(rows, ROWS),)](
            mixed, bias, states, weight, norm_bias, seed, full, low, mean, scale, rows, width, eps, dropout,
            DROP=dropout > 0, BLOCK=triton.next_power_of_2(width), TILE=ROWS, num_warps=WARPS,
        )  # fmt: skip
        ctx.save_for_backward(mixed, bias, states, weight, seed, mean, scale)
        ctx.dropout = dropout
        ctx.set_materialize_grads(False)
        return full, low

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, full_grad: Tensor | None, low_grad: Tensor | None) -> tuple[Tensor | None, ...]:
        mixed, bias, states, weight, seed, mean, scale = ctx.saved_tensors
        rows, width = mixed.shape
        mixed_grad, states_grad = torch.empty_like(mixed), torch.empty_like(states)
        programs = min(NORM_PROGRAMS, rows)
        sums = torch.empty(programs, 3, width, dtype=torch.float32, device=mixed.device)
        nothing = mean  # stands where a gradient is absent, and is not read
        _add_norm_backward[(programs,)](
            nothing if full_grad is None else full_grad.contiguous(),
            nothing if low_grad is None else low_grad.contiguous(),
            mixed, bias, states, weight, seed, mean, scale, mixed_grad, states_grad, sums,
            rows, width, ctx.dropout,
            FULL=full_grad is not None, LOW=low_grad is not None, DROP=ctx.dropout > 0,
            TURNS=triton.cdiv(rows, programs), BLOCK=triton.next_power_of_2(width), TILE=1, num_warps=WARPS,
        )  # fmt: skip
        of_weight, of_norm_bias, of_bias = added_up(sums)
        return mixed_grad, of_bias, states_grad, of_weight, of_norm_bias, None, None, None


def add_and_normalise(
    mixed: Tensor,
    bias: Tensor,
    states: Tensor,
    weight: Tensor,
    norm_bias: Tensor,
    seed: Tensor,
    *,
    eps: float,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Compute LayerNorm(dropout(mixed + bias) + states).

    Args:
        mixed: [n, h], low precision, what a product gave.
        bias, weight, norm_bias: [h], full precision.
        states: [n, h], full precision.
        seed: one integer on the device, from which the dropout follows.

    Returns:
        The same values in full and in low precision, [n, h].
    """
    results: tuple[Tensor, Tensor] = _AddNorm.apply(mixed, bias, states, weight, norm_bias, seed, eps, dropout)  # type: ignore[no-untyped-call]
    return results


@triton.jit
def _normal(x):
    """Return density φ and distribution Φ of the normal law, to 1e-7 (Abramowitz & Stegun 7.1.26).

    The tail is the small number itself and not 1 less something, so nothing cancels; and one exponential serves both.
    """
    z = tl.abs(x) * 0.7071067811865476
    t = 1 / (1 + 0.3275911 * z)
    power = tl.exp(-z * z)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * series * power
    return 0.3989422804014327 * power, tl.where(x > 0, 1 - tail, tail)


@triton.jit
def _gelu_forward(x_ptr, bias_ptr, out_ptr, row_count, width, BLOCK: tl.constexpr, TILE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = columns < width
    inside = (rows[:, None] < row_count) & there[None, :]
    place = rows[:, None] * width + columns[None, :]
    x = tl.load(x_ptr + place, inside, 0.0).to(tl.float32) + tl.load(bias_ptr + columns, there, 0.0)[None, :]
    _, below = _normal(x)
    tl.store(out_ptr + place, x * below, inside)


@triton.jit
def _gelu_backward(
    grad_ptr, x_ptr, bias_ptr, x_grad_ptr, sums_ptr,
    row_count, width, TURNS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = columns < width
    bias = tl.load(bias_ptr + columns, there, 0.0)[None, :]
    of_bias = tl.zeros((BLOCK,), tl.float32)
    for turn in range(TURNS):
        rows = (turn * tl.num_programs(0) + tl.program_id(0)) * TILE + tl.arange(0, TILE)
        inside = (rows[:, None] < row_count) & there[None, :]
        place = rows[:, None] * width + columns[None, :]
        x = tl.load(x_ptr + place, inside, 0.0).to(tl.float32) + bias
        density, below = _normal(x)
        grad = tl.load(grad_ptr + place, inside, 0.0).to(tl.float32) * (below + x * density)
        of_bias += tl.sum(grad, 0)
        tl.store(x_grad_ptr + place, grad, inside)
    tl.store(sums_ptr + tl.program_id(0) * width + columns, of_bias, there)


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        rows, width = x.shape
        out = torch.empty_like(x)
        grid = (triton.cdiv(rows, ROWS), triton.cdiv(width, COLUMNS))
        _gelu_forward[grid](x, bias, out, rows, width, BLOCK=COLUMNS, TILE=ROWS, num_warps=WARPS)
        ctx.save_for_backward(x, bias)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, bias = ctx.saved_tensors
        rows, width = x.shape
        x_grad = torch.empty_like(x)
        blocks = triton.cdiv(width, COLUMNS)
        programs = min(triton.cdiv(GELU_PROGRAMS, blocks), rows)
        sums = torch.empty(programs, width, dtype=torch.float32, device=x.device)
        _gelu_backward[(programs, blocks)](
            grad.contiguous(), x, bias, x_grad, sums, rows, width,
            TURNS=triton.cdiv(rows, programs), BLOCK=COLUMNS, TILE=1, num_warps=WARPS,
        )  # fmt: skip
        return x_grad, added_up(sums)


def gelu(x: Tensor, bias: Tensor) -> Tensor:
    """Compute GELU(x + bias): x [n, m] in low precision, bias [m] in full; the result as x."""
    result: Tensor = _Gelu.apply(x, bias)  # type: ignore[no-untyped-call]
    return result


@triton.jit
def _add_to_rows(
    grad_ptr, tokens_ptr, places_ptr, sums_ptr, touched_ptr,
    words, padding, width, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.load(tokens_ptr + tl.program_id(0)).to(tl.int64)
    place = words + tl.load(places_ptr + tl.program_id(0)).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    there = columns < width
    grad = tl.load(grad_ptr + tl.program_id(0).to(tl.int64) * width + columns, there, 0.0)
    counts = (token != padding).to(tl.int32)
    # In any order: nobody reads these rows before the kernel ends.
    tl.atomic_add(sums_ptr + token * width + columns, grad, columns < width * counts, sem="relaxed")
    tl.atomic_add(sums_ptr + place * width + columns, grad, there, sem="relaxed")
    tl.store(touched_ptr + token, counts)
    tl.store(touched_ptr + place, 1)


class _EmbeddingSum(torch.autograd.Function):
    """Sum of embeddings whose tables have one gradient that stays from step to step.

    Torch sorts the tokens and fills a new gradient as large as the table with zeros, for every batch and either table.
    Here each token's gradient is read once and added to two rows.
    """

    @staticmethod
    def forward(
        ctx: Any, words: Tensor, positions: Tensor, kind: Tensor | None,
        tokens: Tensor, places: Tensor, into: RowGradients, padding: int,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(tokens, places)
        ctx.words, ctx.into, ctx.padding = len(words), into, padding
        states = F.embedding(tokens, words)
        if kind is not None:
            states += kind
        states += F.embedding(places, positions)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tokens, places = ctx.saved_tensors
        sums, touched = ctx.into
        rows, width = grad.shape
        _add_to_rows[(rows,)](
            grad.contiguous(), tokens, places, sums, touched, ctx.words, ctx.padding, width,
            BLOCK=triton.next_power_of_2(width), num_warps=WARPS,
        )  # fmt: skip
        # Every token has a position and the one kind, so the positions' gradients together are that of the kind.
        of_kind = added_up(sums[ctx.words :]) if ctx.needs_input_grad[2] else None
        return None, None, of_kind, None, None, None, None


def embedding_sum(
    words: Tensor,
    positions: Tensor,
    kind: Tensor | None,
    tokens: Tensor,
    places: Tensor,
    *,
    into: RowGradients,
    padding: int | None,
) -> Tensor:
    """Compute words[tokens] + kind + positions[places], [N, h]; the tables' gradients go `into` places of their own.

    Args:
        words, positions: the tables [V, h] and [P, h], full precision.
        kind: [h], added to all tokens, with a gradient as usual; or none.
        tokens, places: [N], rows of either table.
        into: all zero before the backward pass.
        padding: a row of `words` that gets no gradient.
    """
    row = -1 if padding is None else padding
    result: Tensor = _EmbeddingSum.apply(words, positions, kind, tokens, places, into, row)  # type: ignore[no-untyped-call]
    return result
