"""The weights of layers in the precision of their products: cast for one pass, or kept from step to step."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from abalone.encoder.architectures.adapter import Adapter, Layer

ALIGNMENT = 64  # matrices that lie end to end begin at multiples of so many numbers


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
        """Multiply, [n, k] → [n, m]."""
        if self.gradient is None:
            return F.linear(x, self.weight, bias)
        result: Tensor = _InPlace.apply(x, self.weight, bias, self.gradient)  # type: ignore[no-untyped-call]
        return result

    def rows(self, rows: slice) -> "Product":
        """Return the product with some rows of W alone."""
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


class LayerWeights(NamedTuple):
    """The matrices of one layer, and the projections' biases, in the precision of the products.

    All else of a layer, norms and the other biases, is read as it is trained.
    """

    projections: tuple[Product, ...]  # to queries, keys and values: one by [3h, h], or three by [h, h]
    projection_biases: tuple[Tensor, ...]
    output: Product
    up: Product
    down: Product

    @classmethod
    def cast(cls, layer: "Layer", dtype: torch.dtype, *, joined: bool) -> "LayerWeights":
        """Cast a layer's weights for one pass; with `joined`, the projections become one product."""
        matrices = tuple(module.weight.to(dtype) for module in layer.projections)
        biases = tuple(module.bias.to(dtype) for module in layer.projections)
        if joined:
            matrices, biases = (torch.cat(matrices),), (torch.cat(biases),)
        output, up, down = (Product(module.weight.to(dtype)) for module in (layer.output, layer.up, layer.down))
        return cls(tuple(map(Product, matrices)), biases, output, up, down)


class RowGradients(NamedTuple):
    """The gradient of tables of which a batch reads few rows: as many rows as all tables have, end to end.

    A backward pass adds to it and marks the rows; whoever uses it leaves it zero, and the marks too. One backward
    pass, then an update.
    """

    sums: Tensor  # [rows, h], full precision
    touched: Tensor  # [rows], 1 where anything was added

    @classmethod
    def of(cls, tables: list[Tensor]) -> "RowGradients":
        """Return zeros for these tables."""
        sums = torch.zeros(sum(map(len, tables)), tables[0].shape[1], device=tables[0].device)
        return cls(sums, torch.zeros(len(sums), dtype=torch.uint8, device=sums.device))


class LowPrecisionCopy(NamedTuple):
    """A parameter, its copy in low precision, and where the gradient of the copy comes."""

    parameter: Tensor
    copy: Tensor  # a part of what the products read
    gradient: Tensor


class LowPrecisionWeights:
    """Copies of the layers' weights in bf16 or fp16, ready for the products, beside the full ones that are trained.

    Autocast would make them anew for every pass, a kernel each. Here all are refreshed at once after an update, and
    gradients arrive in low precision, in places of their own that stay the same from step to step.

    Args:
        adapter: of the model.
        dtype: bfloat16 or float16.
    """

    def __init__(self, adapter: "Adapter", dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.layers: list[LayerWeights] = []
        self.matrices: list[LowPrecisionCopy] = []
        self._biases: list[tuple[Tensor, Tensor, slice]] = []
        self.tables = adapter.tables
        self.row_gradients: RowGradients | None = None  # where those of the tables come, if an update wants them there
        layers = adapter.layers()
        joined = [
            [module.weight for module in modules]
            for layer in layers
            for modules in (layer.projections, (layer.output,), (layer.up,), (layer.down,))
        ]
        copies, gradients = (self._allocate(joined) for _ in range(2))
        self.gradients = gradients.zero_()  # of all matrices, end to end
        products = self._products(joined, copies, gradients)
        for layer in layers:
            bias = self._join_biases([module.bias for module in layer.projections])
            projection, output, up, down = (next(products) for _ in range(4))
            self.layers.append(LayerWeights((projection,), (bias,), output, up, down))
        self.refresh()

    def _allocate(self, joined: list[list[Tensor]]) -> Tensor:
        """Return room for all matrices end to end, each from a place that suits the products."""
        size = sum(_aligned(sum(weight.numel() for weight in weights)) for weights in joined)
        return torch.empty(size, dtype=self.dtype, device=joined[0][0].device)

    def _products(self, joined: list[list[Tensor]], copies: Tensor, gradients: Tensor) -> Iterator[Product]:
        place = 0
        for weights in joined:
            shape = (sum(len(weight) for weight in weights), weights[0].shape[1])
            size = shape[0] * shape[1]
            copy, gradient = (room[place : place + size].view(shape) for room in (copies, gradients))
            place += _aligned(size)
            start = 0
            for weight in weights:
                rows = slice(start, start + len(weight))
                self.matrices.append(LowPrecisionCopy(weight, copy[rows], gradient[rows]))
                start += len(weight)
            yield Product(copy.detach().requires_grad_(weights[0].requires_grad), gradient)

    def _join_biases(self, biases: list[Tensor]) -> Tensor:
        joined = torch.empty(sum(map(len, biases)), dtype=self.dtype, device=biases[0].device)
        start = 0
        for bias in biases:
            self._biases.append((bias, joined, slice(start, start + len(bias))))
            start += len(bias)
        return joined.requires_grad_(biases[0].requires_grad)

    @torch.no_grad()
    def refresh(self, *, matrices: bool = True) -> None:
        """Copy the parameters, which have moved; without the `matrices` where those have been written already."""
        pairs = [(joined.detach()[rows], bias) for bias, joined, rows in self._biases]
        if matrices:
            pairs += [(matrix.copy, matrix.parameter) for matrix in self.matrices]
        torch._foreach_copy_([copy for copy, _ in pairs], [parameter for _, parameter in pairs])

    @torch.no_grad()
    def hand_over_gradients(self, *, matrices: bool = True) -> None:
        """Add the gradients that came in low precision to those of the parameters."""
        arrived = [(bias, joined.grad[rows]) for bias, joined, rows in self._biases if joined.grad is not None]
        if matrices:
            arrived += [(m.parameter, m.gradient) for m in self.matrices if m.parameter.requires_grad]
        whole = [torch.empty_like(parameter) for parameter, _ in arrived]
        torch._foreach_copy_(whole, [gradient for _, gradient in arrived])
        for (parameter, _), gradient in zip(arrived, whole, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        for _, joined, _ in self._biases:
            joined.grad = None


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
