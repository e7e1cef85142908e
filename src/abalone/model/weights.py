"""The weights of the BERT family's layers, under one set of names and in the precision that is asked for."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

FAMILY = ("BertModel", "RobertaModel", "XLMRobertaModel", "CamembertModel", "MPNetModel")


def is_packable(model: nn.Module) -> bool:
    """Whether `packed_states` can stand for the model's own forward pass."""
    config = getattr(model, "config", None)
    return type(model).__name__ in FAMILY and not getattr(config, "is_decoder", False)


class LayerWeights(NamedTuple):
    """The tensors of one layer, whatever the architecture calls them.

    The projections to queries, keys and values are one matrix [3h, h], or three of [h, h]. Matrices are in the
    precision of the products, and so are the projections' biases; all else is as it is trained.
    """

    projections: tuple[Tensor, ...]
    projection_biases: tuple[Tensor, ...]
    output: Tensor
    output_bias: Tensor
    up: Tensor
    up_bias: Tensor
    down: Tensor
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
        rest = (tensor for module in modules for tensor in (module.weight.to(dtype), module.bias))
        return LayerWeights(projections, biases, *rest, *self.norms)  # type: ignore[call-arg]


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


class HalfWeights:
    """The layers' weights in half precision, ready for the products, beside the full ones that are trained.

    Autocast would make them anew for every pass, a kernel each. Here all are refreshed at once after an update, and
    gradients, which arrive in half precision, are handed over at once.

    Args:
        model: of a class for which `is_packable` holds.
        dtype: bfloat16 or float16.
    """

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.layers: list[LayerWeights] = []
        self._copies: list[_Copy] = []
        for layer in model.encoder.layer:
            parts = layer_parts(layer)
            attention = (parts.query, parts.key, parts.value)
            projection, bias = (self._join([getattr(part, name) for part in attention]) for name in ("weight", "bias"))
            modules = (parts.output, parts.up, parts.down)
            rest = (tensor for module in modules for tensor in (self._join([module.weight]), module.bias))
            self.layers.append(LayerWeights((projection,), (bias,), *rest, *parts.norms))  # type: ignore[call-arg]
        self.refresh()

    def _join(self, parameters: list[Tensor]) -> Tensor:
        """Room for these parameters below each other; gradients come to it where they are trained."""
        first, rows = parameters[0], sum(len(parameter) for parameter in parameters)
        joined = torch.empty(rows, *first.shape[1:], dtype=self.dtype, device=first.device)
        start = 0
        for parameter in parameters:
            self._copies.append(_Copy(parameter, joined, slice(start, start + len(parameter))))
            start += len(parameter)
        return joined.requires_grad_(first.requires_grad)

    @torch.no_grad()
    def refresh(self) -> None:
        """Follow the parameters: they have moved."""
        halves = [copy.joined.detach()[copy.rows] for copy in self._copies]
        torch._foreach_copy_(halves, [copy.parameter for copy in self._copies])

    @torch.no_grad()
    def hand_over_gradients(self) -> None:
        """Add the gradients that came to the halves to those of the parameters."""
        arrived = [(copy, copy.joined.grad[copy.rows]) for copy in self._copies if copy.joined.grad is not None]
        whole = [torch.empty_like(copy.parameter) for copy, _ in arrived]
        torch._foreach_copy_(whole, [half for _, half in arrived])
        for (copy, _), gradient in zip(arrived, whole, strict=True):
            copy.parameter.grad = gradient if copy.parameter.grad is None else copy.parameter.grad + gradient
            copy.joined.grad = None


class _Copy(NamedTuple):
    parameter: Tensor
    joined: Tensor
    rows: slice  # where in `joined` the parameter is
