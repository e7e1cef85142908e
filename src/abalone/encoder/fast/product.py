"""A matrix that states are multiplied with, and where its gradient goes."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


class Product(NamedTuple):
    """x·Wᵀ + b.

    Args:
        weight: W, [m, k].
        gradient: where the gradient of W is written instead of to `weight.grad`: a place that stays the same, so that
            kernels of an update can be told it once. Written, not added to: one backward pass, then an update.
    """

    weight: Tensor
    gradient: Tensor | None = None

    def __call__(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """[n, k] → [n, m]."""
        if self.gradient is None:
            return F.linear(x, self.weight, bias)
        result: Tensor = _InPlace.apply(x, self.weight, bias, self.gradient)  # type: ignore[no-untyped-call]
        return result

    def rows(self, rows: slice) -> "Product":
        """The product with some rows of W alone."""
        return Product(self.weight[rows], None if self.gradient is None else self.gradient[rows])


class _InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.gradient = gradient
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias, _ = ctx.needs_input_grad
        if of_weight:
            torch.mm(grad.t(), x, out=ctx.gradient)
        return grad @ weight if of_x else None, None, grad.sum(0) if of_bias else None, None
