"""AdamW for the encoder's matrices in one pass, on GPUs with Triton."""

from itertools import compress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from abalone.encoder.fast.weights import LowPrecisionCopy, LowPrecisionWeights

if TYPE_CHECKING:
    from abalone.encoder.fast.optimizer_kernels import Places


class MatrixUpdate:
    """AdamW for the encoder's matrices, with all that follows from it: their copies, and the momentum encoder.

    The tables of word and position vectors are among them where their gradients come in a place of their own, which
    is left zero. It keeps its moments in the state of the given optimiser, which passes over parameters without a
    gradient: for a checkpoint both are one.

    Args:
        adamw: has the matrices in one of its groups, with a rate that lies on the device.
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
            raise ValueError(f"the encoder's matrices are in {len(groups)} groups of the optimiser, not in one")
        return groups[0]

    def norm(self) -> Tensor:
        """Return the norm of all gradients that this update uses."""
        from abalone.encoder.fast.optimizer_kernels import norm_of_rows

        norm: Tensor = torch.linalg.vector_norm(self.weights.gradients, dtype=torch.float32)
        rows = self.weights.row_gradients
        return norm if rows is None else torch.hypot(norm, norm_of_rows(rows))

    @torch.no_grad()
    def __call__(self, divisor: Tensor) -> None:
        """Make the step with the gradients divided by this; none where it is not finite."""
        from abalone.encoder.fast.optimizer_kernels import update

        if not self.matrices:
            return
        if self._places is None:  # only now: a checkpoint may have brought the moments
            self._places = self._tabulate()
        self._step += divisor.isfinite()
        given = (divisor, self._group["lr"], 1 - self._betas**self._step)
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

    def _tabulate(self) -> "tuple[Places, Places | None]":
        from abalone.encoder.fast.optimizer_kernels import tabulate

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
