"""The gradients of word and position vectors: a Triton kernel for NVIDIA GPUs.

Torch sorts the tokens and fills a new gradient as large as the table with zeros, for every batch and either table. Here
each token's gradient is read once and added to two rows of one gradient that stays from step to step.
"""

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from abalone.encoder.fast.elementwise_kernels import WARPS, added_up
from abalone.encoder.weights import RowGradients


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
    """words[tokens] + kind + positions[places], [N, h]; gradients of the two tables go `into` places of their own.

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
