"""The matrices' update in one pass, where a GPU has the kernel for it."""

from itertools import compress
from typing import Any

import torch
from torch import Tensor

from abalone.model.weights import Half, HalfWeights


class MatrixUpdate:
    """AdamW for the encoder's matrices, with all that follows from it: their copies, and the slow encoder's.

    It keeps its moments in the state of the given optimiser, which passes over parameters without a gradient: for a
    checkpoint both are one.

    Args:
        adamw: has the matrices in one of its groups, with a rate that lies on the device.
        fast: the encoder's weights in half precision, where the gradients come.
        slow: those of the slow encoder, if there is one.
        momentum: of the slow encoder.
    """

    def __init__(
        self, adamw: torch.optim.AdamW, fast: HalfWeights, slow: HalfWeights | None, momentum: float = 0.0
    ) -> None:
        self.adamw, self.fast, self.slow = adamw, fast, slow
        self.towards = None if slow is None else 1 - momentum
        followers = [None] * len(fast.matrices) if slow is None else slow.matrices
        trained = [half.parameter.requires_grad for half in fast.matrices]
        self.matrices: list[Half] = list(compress(fast.matrices, trained))
        self._followers: list[Half | None] = list(compress(followers, trained))
        self._group = self._only_group() if self.matrices else {}
        self._places: tuple[Tensor, Tensor, Tensor] | None = None

    def _only_group(self) -> dict[str, Any]:
        mine = {id(half.parameter) for half in self.matrices}
        groups = [g for g in self.adamw.param_groups if mine & {id(parameter) for parameter in g["params"]}]
        if len(groups) != 1:
            raise ValueError(f"the encoder's matrices are in {len(groups)} groups of the optimiser, not in one")
        return groups[0]

    def norm(self) -> Tensor:
        """Of all the matrices' gradients."""
        norm: Tensor = torch.linalg.vector_norm(self.fast.gradients, dtype=torch.float32)
        return norm

    @torch.no_grad()
    def __call__(self, divisor: Tensor) -> None:
        """Make the step with the gradients divided by this; none where it is no finite number."""
        from abalone.training.update_kernels import update

        if not self.matrices:
            return
        if self._places is None:  # only now: a checkpoint may have brought the moments
            self._places = self._tabulate()
        self._step += divisor.isfinite()
        update(
            self._places,
            divisor,
            self._group["lr"],
            1 - self._betas**self._step,
            half=self.fast.dtype,
            decay=self._group["weight_decay"],
            betas=self._group["betas"],
            eps=self._group["eps"],
            towards=self.towards,
        )

    def _tabulate(self) -> tuple[Tensor, Tensor, Tensor]:
        from abalone.training.update_kernels import tabulate

        device = self.fast.gradients.device
        state = self.adamw.state
        self._betas = torch.tensor(self._group["betas"], dtype=torch.float64, device=device)
        known = state[self.matrices[0].parameter].get("step")
        self._step = torch.zeros((), device=device) if known is None else known
        rows: list[tuple[Tensor, ...]] = []
        for (parameter, copy, gradient), slow in zip(self.matrices, self._followers, strict=True):
            moments = state[parameter]
            moments["step"] = self._step  # one for all
            for name in ("exp_avg", "exp_avg_sq"):
                moments.setdefault(name, torch.zeros_like(parameter))
            follower = () if slow is None else (slow.parameter, slow.copy)
            rows.append((parameter, moments["exp_avg"], moments["exp_avg_sq"], gradient, copy, *follower))
        return tabulate(rows, device)
