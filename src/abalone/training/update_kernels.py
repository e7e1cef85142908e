"""AdamW, the momentum encoder and the copies in half precision in one pass over memory: a Triton kernel.

One after the other they read and write 66 bytes a parameter. Together it is 38, and an update is nothing but memory.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 1024, 4
COLUMNS = 7  # addresses of one matrix: parameter, both moments, gradient, copy; slow parameter and its copy


@triton.jit
def _pointer(entry_ptr, COLUMN: tl.constexpr, DTYPE: tl.constexpr):
    return tl.multiple_of(tl.load(entry_ptr + COLUMN).to(tl.pointer_type(DTYPE)), 16)


@triton.jit
def _update(
    table_ptr, blocks_ptr, sizes_ptr, divisor_ptr, rate_ptr, corrections_ptr,
    decay, beta1, beta2, eps, towards,
    HALF: tl.constexpr, SLOW: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    divisor = tl.load(divisor_ptr)
    if divisor < float("inf"):  # neither infinite nor no number
        matrix = tl.load(blocks_ptr + 2 * tl.program_id(0))
        # What is known to be round lets a thread read several numbers at once.
        first = tl.multiple_of(tl.load(blocks_ptr + 2 * tl.program_id(0) + 1), BLOCK)
        places = first + tl.arange(0, BLOCK)
        there = places < tl.multiple_of(tl.load(sizes_ptr + matrix), 16)
        entry = table_ptr + matrix * COLUMNS
        weight_ptr = _pointer(entry, 0, tl.float32) + places
        mean_ptr = _pointer(entry, 1, tl.float32) + places
        square_ptr = _pointer(entry, 2, tl.float32) + places
        gradient = tl.load(_pointer(entry, 3, HALF) + places, there, 0.0).to(tl.float32) / divisor
        rate = tl.load(rate_ptr)
        mean = tl.load(mean_ptr, there, 0.0)
        mean += (1 - beta1) * (gradient - mean)
        square = tl.load(square_ptr, there, 0.0) * beta2 + (1 - beta2) * gradient * gradient
        step = rate / tl.load(corrections_ptr).to(tl.float32)
        root = tl.sqrt(square) / tl.sqrt(tl.load(corrections_ptr + 1).to(tl.float32)) + eps
        weight = tl.load(weight_ptr, there, 0.0)
        weight = weight * (1 - rate * decay) - step * mean / root
        tl.store(mean_ptr, mean, there)
        tl.store(square_ptr, square, there)
        tl.store(weight_ptr, weight, there)
        tl.store(_pointer(entry, 4, HALF) + places, weight.to(HALF), there)
        if SLOW:
            slow_ptr = _pointer(entry, 5, tl.float32) + places
            slow = tl.load(slow_ptr, there, 0.0)
            slow += towards * (weight - slow)
            tl.store(slow_ptr, slow, there)
            tl.store(_pointer(entry, 6, HALF) + places, slow.to(HALF), there)


def tabulate(tensors: list[tuple[Tensor, ...]], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """What the kernel is told about where things are: addresses, blocks, sizes.

    Args:
        tensors: of every matrix, in the order of the columns; the last two may be left out.
    """
    addresses = [[tensor.data_ptr() for tensor in row] + [0] * (COLUMNS - len(row)) for row in tensors]
    sizes = [row[0].numel() for row in tensors]
    if any(number % 16 for row in [*addresses, sizes] for number in row):
        raise ValueError("a matrix begins or ends at an odd place")
    blocks = [(matrix, first) for matrix, size in enumerate(sizes) for first in range(0, size, BLOCK)]
    return (
        torch.tensor(addresses, dtype=torch.int64, device=device),
        torch.tensor(blocks, dtype=torch.int32, device=device),
        torch.tensor(sizes, dtype=torch.int32, device=device),
    )


def update(
    places: tuple[Tensor, Tensor, Tensor],
    divisor: Tensor,
    rate: Tensor,
    corrections: Tensor,
    *,
    half: torch.dtype,
    decay: float,
    betas: tuple[float, float],
    eps: float,
    towards: float | None,
) -> None:
    """One step of AdamW for all matrices of a table; none where `divisor` is no finite number.

    Args:
        places: from `tabulate`.
        divisor: of the gradients.
        rate: the learning rate.
        corrections: [2], what both moments still lack, 1 − βᵗ; in double precision, as small ones are differences.
        half: of gradients and copies.
        towards: how far the slow parameters go to the new ones; none where there are no slow ones.
    """
    table, blocks, sizes = places
    kinds: dict[torch.dtype, Any] = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
    _update[(len(blocks),)](
        table, blocks, sizes, divisor, rate, corrections,
        decay, *betas, eps, towards or 0.0,
        HALF=kinds[half], SLOW=towards is not None, COLUMNS=COLUMNS, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
