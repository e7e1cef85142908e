"""Quantisation: weights in 8 bits that give the same products on every processor, of encoders smoothed for it.

Processors. x86 with AVX2 or AVX-512 but without VNNI multiplies unsigned activations by signed weights two at a time
(`vpmaddubsw`), and cuts off the sum of the two products where it needs more than 16 bits. All other processors, ARM
among them, add exactly. A file is right everywhere if no two neighbours in a column of its weights can reach the limit,
however large the activations are; the scale of each column is chosen so.

Smoothing. The states of an encoder have a few entries that are fifty times as large as the others. One scale for a
whole tensor is then set by those few, and the others keep only a handful of the 256 steps. A layer gives the same if
its inputs are divided by something and its weights multiplied by it, and weights have a scale for each output.

Reference:
    Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models", ICML 2023.
"""

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from onnx import ModelProto

IN_8_BITS = ("MatMul", "Gather")  # products and embeddings
PRODUCT = "MatMulInteger"  # what a product becomes
LARGEST_PAIR = (2**15 - 1) // 255  # 128: what two neighbours of one sign may add up to
# How much of the range moves from inputs to weights. MiniLM on 60 arXiv abstracts: probabilities are off by 0.0039 on
# average without smoothing, by 0.0056 with 0.5 and by 0.0029 with 0.75.
MIGRATION = 0.75
LEAST = 1e-5  # keeps an entry that is always 0 from being divided by 0


def in_8_bits(graph: "ModelProto") -> "ModelProto":
    """Return the graph with weights in 8 bits, a scale for each output; activations are scaled batch by batch."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    stored = {tensor.name: tensor for tensor in graph.graph.initializer}
    weights = {
        node.input[1]: onnx.numpy_helper.to_array(stored[node.input[1]])  # [K, N]
        for node in graph.graph.node
        if node.op_type == "MatMul" and node.input[1] in stored
    }
    ranges = {name: _ranges(values) for name, values in weights.items()}
    # The head costs nothing as it is. It is the only `Gemm`, which the quantiser takes apart under this name.
    head = [f"{node.name}_MatMul" for node in graph.graph.node if node.op_type == "Gemm"]
    with tempfile.TemporaryDirectory() as folder, quiet():
        path = Path(folder) / "int8.onnx"
        quantize_dynamic(
            graph,
            path,
            list(IN_8_BITS),
            per_channel=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=head,
            extra_options={"TensorQuantOverrides": ranges},
        )
        return onnx.load(path)


def _ranges(weights: np.ndarray) -> list[dict[str, object]]:
    """Return for each column of `weights` [K, N] the value that becomes 127, as the quantiser wants it.

    It is the largest sum of neighbours: two that add up to 127 are 128 at most once each is rounded.
    """
    return [{"axis": 1, "rmin": np.float32(-most), "rmax": np.float32(most)} for most in largest_pairs(weights)]


def largest_pairs(weights: np.ndarray) -> np.ndarray:
    """Return the largest sum of two neighbours of one sign in each column of [K, N], without its sign, [N].

    Kernels pair rows 0 and 1, 2 and 3, …; those between are counted too, for kernels that begin elsewhere.
    """
    one_sign = np.maximum([weights, -weights], 0)  # [2, K, N]
    after = np.pad(one_sign[:, 1:], ((0, 0), (0, 1), (0, 0)))  # the last row stands alone
    pairs: np.ndarray = (one_sign + after).max((0, 1))
    return pairs


def saturating(graph: "ModelProto") -> list[str]:
    """Return the names of 8-bit weights whose products depend on the processor."""
    from onnx.numpy_helper import to_array

    stored = {tensor.name: tensor for tensor in graph.graph.initializer}
    names = {node.input[1] for node in graph.graph.node if node.op_type == PRODUCT}
    return sorted(
        name
        for name in names
        if name not in stored or largest_pairs(to_array(stored[name]).astype(np.int32)).max() > LARGEST_PAIR
    )


class Smoothed(nn.Module):
    """A linear layer with its inputs divided by `scale` [in], and its weights multiplied by it."""

    factor: Tensor

    def __init__(self, layer: nn.Linear, scale: Tensor) -> None:
        super().__init__()
        self.layer = layer
        self.layer.weight = nn.Parameter(layer.weight.detach() * scale)
        self.register_buffer("factor", 1 / scale)

    def forward(self, states: Tensor) -> Tensor:
        """Return […, out] of states […, in], as the layer did."""
        computed: Tensor = self.layer(states * self.factor)
        return computed


def smooth(network: nn.Module, **inputs: Tensor) -> None:
    """Smooth the feed-forward layers of `network`, in place, by what they are given when it reads `inputs`.

    Those of the attention, the square ones, have tamer inputs, and would have to share them.
    """
    layers = {
        name: layer
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Linear) and layer.in_features != layer.out_features
    }
    largest = {name: torch.full((layer.in_features,), LEAST) for name, layer in layers.items()}  # [in] each
    hooks = [layer.register_forward_pre_hook(_Watch(largest[name])) for name, layer in layers.items()]
    with torch.no_grad():
        network(**inputs)
    for hook in hooks:
        hook.remove()
    for name, layer in layers.items():
        weights = layer.weight.detach().abs().amax(0).clamp(min=LEAST)  # [in]
        scale = largest[name] ** MIGRATION / weights ** (1 - MIGRATION)
        network.set_submodule(name, Smoothed(layer, scale / scale.mean()))


class _Watch:
    """Hook that keeps the largest absolute value of each entry of a layer's inputs."""

    def __init__(self, largest: Tensor) -> None:
        self.largest = largest

    def __call__(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen = inputs[0].detach().abs().flatten(0, -2).amax(0)
        torch.maximum(self.largest, seen, out=self.largest)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence exporter and quantiser: axes, deprecations and libraries that no user can fix."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
