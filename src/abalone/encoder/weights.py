"""The weights of the BERT family's layers, under one set of names and in the precision that is asked for."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from abalone.encoder.fast.product import Product

PLACE = 64  # matrices that lie end to end begin at multiples of so many numbers
FAMILY = ("BareEncoder", "BertModel", "RobertaModel", "XLMRobertaModel", "CamembertModel", "MPNetModel")


def is_packable(model: nn.Module) -> bool:
    """Whether `packed_states` can stand for the model's own forward pass."""
    config = getattr(model, "config", None)
    return type(model).__name__ in FAMILY and not getattr(config, "is_decoder", False)


class LayerWeights(NamedTuple):
    """The tensors of one layer, whatever the architecture calls them.

    The projections to queries, keys and values are one product by [3h, h], or three by [h, h]. Matrices are in the
    precision of the products, and so are the projections' biases; all else is as it is trained.
    """

    projections: tuple[Product, ...]
    projection_biases: tuple[Tensor, ...]
    output: Product
    output_bias: Tensor
    up: Product
    up_bias: Tensor
    down: Product
    down_bias: Tensor
    attention_norm: Tensor
    attention_norm_bias: Tensor
    norm: Tensor
    norm_bias: Tensor


class LayerParts(NamedTuple):
    """The modules of one layer, whatever the architecture calls them."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear
    up: nn.Linear
    down: nn.Linear
    attention_norm: nn.LayerNorm
    norm: nn.LayerNorm

    @property
    def norms(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Weight and bias of the two norms."""
        return self.attention_norm.weight, self.attention_norm.bias, self.norm.weight, self.norm.bias

    def weights(self, dtype: torch.dtype, *, fused: bool) -> LayerWeights:
        """The tensors in this precision; `fused` where one product is faster than three and worth a copy."""
        attention = (self.query, self.key, self.value)
        projections = tuple(part.weight.to(dtype) for part in attention)
        biases = tuple(part.bias.to(dtype) for part in attention)
        if fused:
            projections, biases = (torch.cat(projections),), (torch.cat(biases),)
        modules = (self.output, self.up, self.down)
        rest: Any = [part for module in modules for part in (Product(module.weight.to(dtype)), module.bias)]
        output, output_bias, up, up_bias, down, down_bias = rest
        return LayerWeights(
            tuple(map(Product, projections)), biases, output, output_bias, up, up_bias, down, down_bias, *self.norms
        )


def layer_parts(layer: Any) -> LayerParts:
    """The parts of a layer of one of the `FAMILY`."""
    attention = layer.attention
    if hasattr(attention, "attn"):  # MPNet
        inner, output, norm = attention.attn, attention.attn.o, attention.LayerNorm
        projections = inner.q, inner.k, inner.v
    else:
        inner, output, norm = attention.self, attention.output.dense, attention.output.LayerNorm
        projections = inner.query, inner.key, inner.value
    return LayerParts(*projections, output, layer.intermediate.dense, layer.output.dense, norm, layer.output.LayerNorm)


def embedding_tables(model: Any) -> list[Tensor]:
    """Word and position vectors of one of the `FAMILY`; none where it is given states in their place."""
    parts = model.embeddings
    return [parts.word_embeddings.weight, parts.position_embeddings.weight] if hasattr(parts, "word_embeddings") else []


class RowGradients(NamedTuple):
    """The gradient of tables of which a batch reads few rows: as many rows as all tables have, end to end.

    A backward pass adds to it and marks the rows; whoever uses it leaves it zero, and the marks too. One backward
    pass, then an update.
    """

    sums: Tensor  # [rows, h], full precision
    touched: Tensor  # [rows], 1 where anything was added

    @classmethod
    def of(cls, tables: list[Tensor]) -> "RowGradients":
        """Zeros for these tables."""
        sums = torch.zeros(sum(map(len, tables)), tables[0].shape[1], device=tables[0].device)
        return cls(sums, torch.zeros(len(sums), dtype=torch.uint8, device=sums.device))


class Half(NamedTuple):
    """A parameter, its copy in half precision, and where the gradient of the copy comes."""

    parameter: Tensor
    copy: Tensor  # a part of what the products read
    gradient: Tensor


class HalfWeights:
    """The layers' weights in half precision, ready for the products, beside the full ones that are trained.

    Autocast would make them anew for every pass, a kernel each. Here all are refreshed at once after an update, and
    gradients arrive in half precision, in places of their own that stay the same from step to step.

    Args:
        model: of a class for which `is_packable` holds.
        dtype: bfloat16 or float16.
    """

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.layers: list[LayerWeights] = []
        self.matrices: list[Half] = []
        self._biases: list[tuple[Tensor, Tensor, slice]] = []
        self.tables = embedding_tables(model)
        self.row_gradients: RowGradients | None = None  # where those of the tables come, if an update wants them there
        layers = [layer_parts(layer) for layer in model.encoder.layer]
        matrices = [[[p.query, p.key, p.value], [p.output], [p.up], [p.down]] for p in layers]
        joined = [[module.weight for module in modules] for groups in matrices for modules in groups]
        copies, gradients = (self._room(joined) for _ in range(2))
        self.gradients = gradients.zero_()  # of all matrices, end to end
        products = self._products(joined, copies, gradients)
        for parts in layers:
            bias = self._join_biases([part.bias for part in (parts.query, parts.key, parts.value)])
            projection, output, up, down = (next(products) for _ in range(4))
            between = (output, parts.output.bias, up, parts.up.bias, down, parts.down.bias)
            self.layers.append(LayerWeights((projection,), (bias,), *between, *parts.norms))
        self.refresh()

    def _room(self, joined: list[list[Tensor]]) -> Tensor:
        """One after the other, each from a place that suits the products."""
        size = sum(_whole_places(sum(weight.numel() for weight in weights)) for weights in joined)
        return torch.empty(size, dtype=self.dtype, device=joined[0][0].device)

    def _products(self, joined: list[list[Tensor]], copies: Tensor, gradients: Tensor) -> Iterator[Product]:
        place = 0
        for weights in joined:
            shape = (sum(len(weight) for weight in weights), weights[0].shape[1])
            size = shape[0] * shape[1]
            copy, gradient = (room[place : place + size].view(shape) for room in (copies, gradients))
            place += _whole_places(size)
            start = 0
            for weight in weights:
                rows = slice(start, start + len(weight))
                self.matrices.append(Half(weight, copy[rows], gradient[rows]))
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
        """Follow the parameters: they have moved. Without the `matrices` where those have been written already."""
        pairs = [(joined.detach()[rows], bias) for bias, joined, rows in self._biases]
        if matrices:
            pairs += [(half.copy, half.parameter) for half in self.matrices]
        torch._foreach_copy_([copy for copy, _ in pairs], [parameter for _, parameter in pairs])

    @torch.no_grad()
    def hand_over_gradients(self, *, matrices: bool = True) -> None:
        """Add the gradients that came in half precision to those of the parameters."""
        arrived = [(bias, joined.grad[rows]) for bias, joined, rows in self._biases if joined.grad is not None]
        if matrices:
            arrived += [(half.parameter, half.gradient) for half in self.matrices if half.parameter.requires_grad]
        whole = [torch.empty_like(parameter) for parameter, _ in arrived]
        torch._foreach_copy_(whole, [half for _, half in arrived])
        for (parameter, _), gradient in zip(arrived, whole, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        for _, joined, _ in self._biases:
            joined.grad = None


def _whole_places(size: int) -> int:
    return -(-size // PLACE) * PLACE
