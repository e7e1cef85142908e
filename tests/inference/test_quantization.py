"""8-bit products are the same on every processor, and lose less of a smoothed layer."""

import logging
import warnings

import numpy as np
import onnx
import pytest
import torch
from exported import TEXTS, fit
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import nn

import abalone.inference.onnx_model as running
from abalone.inference.export import export
from abalone.inference.onnx_model import (
    EXACT_PRODUCTS,
    PROBE,
    SAME_EVERYWHERE,
    OnnxModel,
    has_8_bit_products,
    processor_saturates,
    with_checksum,
)
from abalone.inference.quantization import Smoothed, in_8_bits, largest_pairs, quiet, saturating, smooth


def cut_off(activations, weights, before=0):
    """Multiply [M, K] by [K, N] as `vpmaddubsw` does: rows in pairs, the sum of each kept to 16 bits.

    `before` is how many rows of zeros come first, which makes other pairs.
    """
    after = (before + len(weights)) % 2
    activations = np.pad(activations.astype(np.int64), ((0, 0), (before, after)))
    products = activations[:, :, None] * np.pad(weights.astype(np.int64), ((before, after), (0, 0)))  # [M, K, N]
    return np.clip(products[:, ::2] + products[:, 1::2], -(2**15), 2**15 - 1).sum(1)


def product_graph(weights):
    """A graph with one product, by `weights` [K, N]."""
    rows, columns = weights.shape
    states = helper.make_tensor_value_info("states", TensorProto.FLOAT, ["batch", rows])
    result = helper.make_tensor_value_info("result", TensorProto.FLOAT, ["batch", columns])
    node = helper.make_node("MatMul", ["states", "weights"], ["result"], "product")
    graph = helper.make_graph([node], "graph", [states], [result], [numpy_helper.from_array(weights, "weights")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def stored(graph, name):
    return numpy_helper.to_array(next(tensor for tensor in graph.graph.initializer if tensor.name == name))


@pytest.fixture(params=["normal", "outliers", "equal", "one row", "nothing"])
def weights(request):
    random = np.random.default_rng(0)
    values = random.normal(size=(1 if request.param == "one row" else 33, 20)).astype(np.float32)
    if request.param == "outliers":
        values[::7] *= 50
    if request.param == "equal":
        values[:] = -0.3
    if request.param == "nothing":
        values[:] = 0
    return values


def worst(weights):
    """Activations that make sums as large as they can be, and random ones: [M, K]."""
    random = np.random.default_rng(1).integers(0, 256, (20, len(weights)))
    return np.concatenate([255 * (weights > 0).T, 255 * (weights < 0).T, np.full((1, len(weights)), 255), random])


@pytest.mark.parametrize("before", [0, 1])
def test_products_are_exact_whatever_the_processor(weights, before):
    graph = in_8_bits(product_graph(weights))
    small, scale = stored(graph, "weights_quantized"), stored(graph, "weights_scale")
    assert saturating(graph) == []
    activations = worst(small)
    np.testing.assert_array_equal(cut_off(activations, small, before), activations @ small.astype(np.int64))
    np.testing.assert_allclose(small * scale, weights, atol=scale.max() * 0.501)  # rounded, none cut off


def test_weights_in_all_of_the_8_bits_are_found(tmp_path):
    weights = np.random.default_rng(0).normal(size=(33, 20)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantize_dynamic(product_graph(weights), tmp_path / "m.onnx", per_channel=True, weight_type=QuantType.QInt8)
    graph = onnx.load(tmp_path / "m.onnx")
    assert saturating(graph) == ["weights_quantized"]
    small = stored(graph, "weights_quantized")
    assert (cut_off(worst(small), small) != worst(small) @ small.astype(np.int64)).any()


@pytest.mark.parametrize(
    ("column", "most"),
    [([64, 64], 128), ([127, -127], 127), ([0, -64, -65], 129), ([100, 1, 100], 101), ([127], 127), ([3, 0, 0, 3], 3)],
)
def test_largest_pairs_tell_whether_a_product_is_exact(column, most):
    weights = np.array(column)[:, None]
    assert largest_pairs(weights).tolist() == [most]
    exact = worst(weights) @ weights
    kept = all((cut_off(worst(weights), weights, before) == exact).all() for before in (0, 1))
    assert kept == (most <= 128)


def test_probe_is_one_product_of_8_bits():
    graph = onnx.ModelProto.FromString(PROBE)
    onnx.checker.check_model(graph)
    assert [node.op_type for node in graph.graph.node] == ["MatMulInteger"]
    assert saturating(graph) == ["b"]
    assert processor_saturates() in (True, False)  # by the processor


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file as it is made, and one as an earlier version made it."""
    folder = tmp_path_factory.mktemp("int8")
    new = export(fit(folder / "model").predictor_, folder / "new.onnx", int8=True).path
    graph = onnx.load(new)
    stored = {entry.key: entry.value for entry in graph.metadata_props if entry.key not in (SAME_EVERYWHERE, "sha256")}
    onnx.helper.set_model_props(graph, stored)
    (folder / "old.onnx").write_bytes(with_checksum(graph.SerializeToString()))
    return new, folder / "old.onnx"


def is_exact(model):
    return model.backend.session.get_session_options().get_session_config_entry(EXACT_PRODUCTS) == "1"


def test_old_file_runs_exactly_where_products_are_cut_off(files, monkeypatch):
    new, old = files
    monkeypatch.setattr(running, "processor_saturates", lambda: True)
    fresh = OnnxModel.load(new)  # a warning is an error here
    for source in (old, old.read_bytes()):
        with pytest.warns(UserWarning, match="exported by an earlier version.*slower: export it again with --int8"):
            model = OnnxModel.load(source)
        np.testing.assert_allclose(model.probabilities(TEXTS), fresh.probabilities(TEXTS), atol=1e-6)
        assert (is_exact(model), is_exact(fresh)) == (True, False)
    monkeypatch.setattr(running, "processor_saturates", lambda: False)
    assert not is_exact(OnnxModel.load(old))


def test_8_bit_products_are_found_in_the_file(files):
    assert has_8_bit_products(files[0])
    assert not has_8_bit_products(product_graph(np.ones((2, 2), np.float32)).SerializeToString())


class Block(nn.Module):
    """Something square, something that widens, something that narrows."""

    def __init__(self):
        super().__init__()
        self.square, self.wide, self.narrow = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, states):
        return self.narrow(torch.relu(self.wide(self.square(states))))


def rounded(values, dim=None):
    """Rounded to 255 steps of the whole range, or of each row's."""
    largest = values.abs().max() if dim is None else values.abs().amax(dim, keepdim=True)
    return (values / largest * 127).round() / 127 * largest


def test_smoothing_keeps_the_function_and_leaves_square_layers_alone():
    torch.manual_seed(0)
    block, states = Block(), torch.randn(4, 5, 8)
    before, beyond = block(states), block(10 * states)
    smooth(block, states=states)
    assert [type(layer) for layer in (block.square, block.wide, block.narrow)] == [nn.Linear, Smoothed, Smoothed]
    torch.testing.assert_close(block(states), before)
    torch.testing.assert_close(block(10 * states), beyond)  # also where inputs are larger than those it has seen


def test_eight_bits_lose_less_of_a_smoothed_layer():
    torch.manual_seed(0)
    layer, states = nn.Linear(64, 128, bias=False), torch.randn(200, 64)
    states[:, 3] *= 50  # the outlier
    exact = states @ layer.weight.T
    plain = rounded(states) @ rounded(layer.weight, 1).T
    holder = nn.Sequential(layer)
    smooth(holder, input=states)
    smoothed = rounded(states * holder[0].factor) @ rounded(holder[0].layer.weight, 1).T
    assert (smoothed - exact).abs().mean() < 0.5 * (plain - exact).abs().mean()


def test_smoothing_an_entry_that_is_always_zero():
    layer = nn.Linear(4, 2)
    states = torch.tensor([[0.0, 1.0, -2.0, 0.0]])
    before = layer(states)
    holder = nn.Sequential(layer)
    smooth(holder, input=states)
    torch.testing.assert_close(holder(states), before)
    assert torch.isfinite(holder[0].layer.weight).all()


def test_libraries_are_quiet_meanwhile_and_whoever_needs_the_log_is_not_after(caplog):
    library = logging.getLogger("exporter")
    with quiet():
        library.warning("an axis has no name")
        warnings.warn("this is deprecated", stacklevel=1)  # an error in these tests
        library.error("no memory")
    library.warning("after")
    assert caplog.messages == ["no memory", "after"]
