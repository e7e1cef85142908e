"""Weights in 8 bits that give the same products on every processor.

x86 processors with AVX2 or AVX-512 but without VNNI multiply unsigned activations by signed weights two at a time
(`vpmaddubsw`), and cut off the sum of the two products where it needs more than 16 bits. All other processors, ARM
among them, add exactly. A file is right everywhere if no two neighbours in a column of its weights can reach the limit,
however large the activations are; the scale of each column is chosen so.
"""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from abalone.inference.onnx_graph import quiet

if TYPE_CHECKING:
    from onnx import ModelProto

IN_8_BITS = ("MatMul", "Gather")  # products and embeddings
PRODUCT = "MatMulInteger"  # what a product becomes
LARGEST_PAIR = (2**15 - 1) // 255  # 128: what two neighbours of one sign may add up to


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
