"""AdamW for the encoder's matrices, their copies in low precision and the momentum encoder, in one Triton kernel.

One after the other they read and write 66 bytes a parameter. Together it is 38, and an update is nothing but memory.
"""

from itertools import compress
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from abalone.encoder.fast.weights import LowPrecisionCopy, LowPrecisionWeights, RowGradients
from abalone.errors import InputError

BLOCK, WARPS = 1024, 4
TILE = 8  # rows of a program that sums squares
COLUMNS = 7  # addresses of one matrix: parameter, both moments, gradient, copy; average and its copy


@triton.jit
def _pointer(entry_ptr, COLUMN: tl.constexpr, DTYPE: tl.constexpr):
    return tl.multiple_of(tl.load(entry_ptr + COLUMN).to(tl.pointer_type(DTYPE)), 16)


@triton.jit
def _update(
    table_ptr, blocks_ptr, touched_ptr, divisor_ptr, rate_ptr, corrections_ptr,
    decay, beta1, beta2, eps, towards,
    GRADIENT: tl.constexpr, COPY: tl.constexpr, ROWS: tl.constexpr, EMA: tl.constexpr,
    COLUMNS: tl.constexpr, ROUND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    block = blocks_ptr + 3 * tl.program_id(0)
    matrix = tl.load(block)
    # What is known to be round lets a thread read several numbers at once.
    places = tl.multiple_of(tl.load(block + 1), ROUND) + tl.arange(0, BLOCK)
    stop = tl.load(block + 2)
    there = places < tl.multiple_of(stop, 16)
    entry = table_ptr + matrix * COLUMNS
    gradient_ptr = _pointer(entry, 3, GRADIENT) + places
    given = there
    if ROWS:
        given = places < tl.multiple_of(stop * tl.load(touched_ptr + tl.program_id(0)).to(tl.int32), 16)
    divisor = tl.load(divisor_ptr)
    if divisor < float("inf"):  # neither infinite nor NaN
        weight_ptr = _pointer(entry, 0, tl.float32) + places
        mean_ptr = _pointer(entry, 1, tl.float32) + places
        square_ptr = _pointer(entry, 2, tl.float32) + places
        average_ptr = _pointer(entry, 5, tl.float32) + places
        # All is asked for before anything is waited for or written, behind which the compiler would not move it up.
        rate = tl.load(rate_ptr)
        of_mean = tl.load(corrections_ptr)
        of_square = tl.load(corrections_ptr + 1)
        weight = tl.load(weight_ptr, there, 0.0)
        mean = tl.load(mean_ptr, there, 0.0)
        square = tl.load(square_ptr, there, 0.0)
        if EMA:
            average = tl.load(average_ptr, there, 0.0)
        gradient = tl.load(gradient_ptr, given, 0.0).to(tl.float32) / divisor
        mean += (1 - beta1) * (gradient - mean)
        square = square * beta2 + (1 - beta2) * gradient * gradient
        step = rate / of_mean.to(tl.float32)
        root = tl.sqrt(square) / tl.sqrt(of_square.to(tl.float32)) + eps
        weight = weight * (1 - rate * decay) - step * mean / root
        tl.store(mean_ptr, mean, there)
        tl.store(square_ptr, square, there)
        tl.store(weight_ptr, weight, there)
        if COPY:
            tl.store(_pointer(entry, 4, GRADIENT) + places, weight.to(GRADIENT), there)
        if EMA:
            average += towards * (weight - average)
            tl.store(average_ptr, average, there)
            if COPY:
                tl.store(_pointer(entry, 6, GRADIENT) + places, average.to(GRADIENT), there)
    if ROWS:
        tl.debug_barrier()  # another thread may still have to read what this one is about to empty
        tl.store(gradient_ptr, tl.zeros((BLOCK,), GRADIENT), given)
        tl.store(touched_ptr + tl.program_id(0), 0)


@triton.jit
def _squares(sums_ptr, touched_ptr, out_ptr, row_count, width, BLOCK: tl.constexpr, TILE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.arange(0, BLOCK)
    given = (tl.load(touched_ptr + rows, rows < row_count, 0) != 0)[:, None] & (columns < width)[None, :]
    sums = tl.load(sums_ptr + rows.to(tl.int64)[:, None] * width + columns[None, :], given, 0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(tl.sum(sums * sums, 1), 0))


def norm_of_rows(gradients: RowGradients) -> Tensor:
    """Return the norm of a gradient, reading only rows that were touched."""
    rows, width = gradients.sums.shape
    programs = triton.cdiv(rows, TILE)
    squares = gradients.sums.new_empty(programs)
    _squares[(programs,)](
        *gradients, squares, rows, width, BLOCK=triton.next_power_of_2(width), TILE=TILE, num_warps=WARPS
    )
    return squares.sum().sqrt()


class Places(NamedTuple):
    """The addresses of matrices and their division into blocks, as the kernel reads them."""

    table: Tensor  # [matrices, COLUMNS], addresses
    blocks: Tensor  # [programs, 3]: matrix, first number, and the one behind the last
    step: int  # numbers of a block


def tabulate(tensors: list[tuple[Tensor | None, ...]], device: torch.device, step: int = BLOCK) -> Places:
    """Tabulate the addresses of matrices, for `update`.

    Args:
        tensors: of every matrix, in the order of the columns; None where there is nothing.
        step: numbers that a program takes; of tables whose rows may be untouched, a row.
    """
    addresses = [[0 if tensor is None else tensor.data_ptr() for tensor in row] for row in tensors]
    sizes = [row[0].numel() for row in tensors if row[0] is not None]
    if any(number % 16 for row in [*addresses, sizes, [step]] for number in row):
        raise InputError("a matrix begins or ends at an odd place")
    blocks = [
        (matrix, first, min(first + step, size)) for matrix, size in enumerate(sizes) for first in range(0, size, step)
    ]
    return Places(
        torch.tensor(addresses, dtype=torch.int64, device=device),
        torch.tensor(blocks, dtype=torch.int32, device=device),
        step,
    )


def update(
    places: Places,
    divisor: Tensor,
    rate: Tensor,
    corrections: Tensor,
    *,
    gradient: torch.dtype,
    decay: float,
    betas: tuple[float, float],
    eps: float,
    towards: float | None,
    touched: Tensor | None = None,
) -> None:
    """Make one step of AdamW for all matrices of a table; none where `divisor` is not finite.

    Args:
        places: from `tabulate`.
        divisor: of the gradients.
        rate: the learning rate.
        corrections: [2], what both moments still lack, 1 − βᵗ; in double precision, as small ones are differences.
        gradient: the precision of the gradients, and of copies, which are kept where it is a low one.
        towards: how far the averages go to the new ones; none where there are no averages.
        touched: a mark for every block; where it is 0 there is no gradient. The others are left empty, and all marks 0.
    """
    kinds: dict[torch.dtype, Any] = {
        torch.bfloat16: tl.bfloat16,
        torch.float16: tl.float16,
        torch.float32: tl.float32,
    }
    _update[(len(places.blocks),)](
        places.table, places.blocks, divisor if touched is None else touched, divisor, rate, corrections,
        decay, *betas, eps, towards or 0.0,
        GRADIENT=kinds[gradient], COPY=gradient is not torch.float32, ROWS=touched is not None,
        EMA=towards is not None, COLUMNS=COLUMNS, ROUND=BLOCK if places.step == BLOCK else 16,
        BLOCK=triton.next_power_of_2(places.step), num_warps=WARPS,
    )  # fmt: skip


class MatrixUpdate:
    """AdamW for the encoder's matrices, with all that follows from it: their copies, and the momentum encoder.

    The tables of word and position vectors are among them where their gradients come in a place of their own, which
    is left zero. It keeps its moments in the state of the given optimiser, which passes over parameters without a
    gradient: for a checkpoint both are one.

    Args:
        adamw: has the matrices in one of its groups.
        weights: the encoder's in low precision, where the gradients come.
        average: those of the momentum encoder, if there is one.
        momentum: of the momentum encoder.
    """

    def __init__(
        self,
        adamw: torch.optim.AdamW,
        weights: LowPrecisionWeights,
        average: LowPrecisionWeights | None,
        momentum: float = 0.0,
    ) -> None:
        self.adamw, self.weights, self.average = adamw, weights, average
        self.towards = None if average is None else 1 - momentum
        followers = [None] * len(weights.matrices) if average is None else average.matrices
        trained = [matrix.parameter.requires_grad for matrix in weights.matrices]
        self.matrices: list[LowPrecisionCopy] = list(compress(weights.matrices, trained))
        self._followers: list[LowPrecisionCopy | None] = list(compress(followers, trained))
        self.tables: list[Tensor] = [] if weights.row_gradients is None else weights.tables
        self._group = self._only_group() if self.matrices else {}
        self._places: tuple[Places, Places | None] | None = None

    def _only_group(self) -> dict[str, Any]:
        mine = {id(parameter) for parameter in (*(matrix.parameter for matrix in self.matrices), *self.tables)}
        groups = [g for g in self.adamw.param_groups if mine & {id(parameter) for parameter in g["params"]}]
        if len(groups) != 1:
            raise InputError(f"the encoder's matrices are in {len(groups)} groups of the optimiser, not in one")
        return groups[0]

    def norm(self) -> Tensor:
        """Return the norm of all gradients that this update uses."""
        norm: Tensor = torch.linalg.vector_norm(self.weights.gradients, dtype=torch.float32)
        rows = self.weights.row_gradients
        return norm if rows is None else torch.hypot(norm, norm_of_rows(rows))

    @torch.no_grad()
    def __call__(self, divisor: Tensor) -> None:
        """Make the step with the gradients divided by this; none where it is not finite."""
        if not self.matrices:
            return
        if self._places is None:  # only now: a checkpoint may have brought the moments
            self._places = self._tabulate()
        self._step += divisor.isfinite()
        given = (divisor, self._rate(), 1 - self._betas**self._step)
        settings = {
            "decay": self._group["weight_decay"],
            "betas": self._group["betas"],
            "eps": self._group["eps"],
            "towards": self.towards,
        }
        matrices, tables = self._places
        update(matrices, *given, gradient=self.weights.dtype, **settings)
        if tables is not None and self.weights.row_gradients is not None:
            update(tables, *given, gradient=torch.float32, touched=self.weights.row_gradients.touched, **settings)

    def _rate(self) -> Tensor:
        rate = self._group["lr"]
        return rate if isinstance(rate, Tensor) else torch.tensor(rate, device=self.weights.gradients.device)

    def _tabulate(self) -> tuple[Places, Places | None]:
        device = self.weights.gradients.device
        self._betas = torch.tensor(self._group["betas"], dtype=torch.float64, device=device)
        known = self.adamw.state[self.matrices[0].parameter].get("step")
        self._step = torch.zeros((), device=device) if known is None else known
        matrices: list[tuple[Tensor | None, ...]] = []
        for (parameter, copy, gradient), average in zip(self.matrices, self._followers, strict=True):
            follower = (None, None) if average is None else (average.parameter, average.copy)
            matrices.append((parameter, *self._moments(parameter), gradient, copy, *follower))
        if self.weights.row_gradients is None:
            return tabulate(matrices, device), None
        gradients = self.weights.row_gradients.sums.split([len(table) for table in self.tables])
        followers = [None] * len(self.tables) if self.average is None else self.average.tables
        tables: list[tuple[Tensor | None, ...]] = [
            (table, *self._moments(table), gradient, None, follower, None)
            for table, gradient, follower in zip(self.tables, gradients, followers, strict=True)
        ]
        return tabulate(matrices, device), tabulate(tables, device, step=self.tables[0].shape[1])

    def _moments(self, parameter: Tensor) -> tuple[Tensor, Tensor]:
        moments = self.adamw.state[parameter]
        moments["step"] = self._step  # one for all
        mean, square = (moments.setdefault(name, torch.zeros_like(parameter)) for name in ("exp_avg", "exp_avg_sq"))
        return mean, square
