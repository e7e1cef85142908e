"""On a GPU where there is one, else in Triton's interpreter."""

import os

import pytest
import torch
from torch import Tensor

ON_GPU = torch.cuda.is_available()
if not ON_GPU:
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs a GPU, or Triton's interpreter", allow_module_level=True)
    pytest.importorskip("triton")

from transformers import AutoModel, DistilBertConfig, MPNetConfig  # noqa: E402

from abalone.encoder.architectures import adapter as packed_adapter  # noqa: E402
from abalone.encoder.architectures import adapter_of  # noqa: E402
from abalone.encoder.fast import attention, attention_kernels  # noqa: E402 - the interpreter is chosen before
from abalone.encoder.fast.attention_kernels import Tiles, packed_attention  # noqa: E402
from abalone.encoder.fast.weights import LowPrecisionWeights  # noqa: E402
from abalone.encoder.packed import Packed  # noqa: E402

DEVICE = "cuda" if ON_GPU else "cpu"
DTYPE, NEAR = (torch.float16, 3e-3) if ON_GPU else (torch.float32, 1e-5)
HEADS, D = 2, 32
LENGTHS = (1, 0, 37, 16, 70)


@pytest.fixture(params=[(16, 32), (32, 16), None], ids=["16x32", "32x16", "as they are"])
def every_tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones too, so that short pieces are several blocks, and rows and columns are cut differently."""
    if request.param is None:
        return
    own, others = request.param
    monkeypatch.setattr(attention_kernels, "FORWARD", Tiles(own, others, 4, 1))
    monkeypatch.setattr(attention_kernels, "QUERIES", Tiles(others, own, 4, 1))
    monkeypatch.setattr(attention_kernels, "KEYS", Tiles(own, own, 4, 1))


def _batch(lengths: tuple[int, ...] = LENGTHS) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    starts = torch.tensor([0, *lengths]).cumsum(0).int().to(DEVICE)
    qkv = torch.randn(sum(lengths), 3, HEADS, D).mul(2).to(DEVICE, DTYPE)
    return qkv, starts


def _bias() -> Tensor:
    return torch.zeros(3 * HEADS * D, device=DEVICE, dtype=DTYPE)


def _seed(value: int = 7) -> Tensor:
    return torch.tensor([value], device=DEVICE)


def _expected(qkv: Tensor, starts: Tensor, kept: list[Tensor] | None = None, positions: Tensor | None = None) -> Tensor:
    """In double precision, with the softmax of each piece times `kept`, [heads, T, T]."""
    pieces = []
    for number, (start, stop) in enumerate(zip(starts.tolist(), starts.tolist()[1:], strict=False)):
        q, k, v = qkv[start:stop].unbind(1)  # [T, heads, d]
        scores = torch.einsum("qhd,khd->hqk", q, k) / D**0.5
        if positions is not None:
            scores = scores + positions[:, : stop - start, : stop - start]
        p = torch.softmax(scores, -1)
        if kept is not None:
            p = p * kept[number]
        pieces.append(torch.einsum("hqk,khd->qhd", p, v).flatten(1))
    return torch.cat(pieces)


def _kept(starts: Tensor, longest: int, seed: Tensor, dropout: float) -> list[Tensor]:
    """The factors that each piece's softmax is multiplied with, [heads, T, T], one band of keys after the other.

    Where queries are zero the softmax is even, and where the values are rows of the identity the output shows it.
    """
    tokens = int(starts[-1])
    lengths = (starts[1:] - starts[:-1]).tolist()
    positions = torch.cat([torch.arange(length) for length in lengths])
    kept = [torch.zeros(HEADS, length, length, dtype=torch.float64) for length in lengths]
    for first in range(0, longest, D):
        qkv = torch.zeros(tokens, 3, HEADS, D)
        for column in range(D):
            qkv[positions == first + column, 2, :, column] = 1
        out = packed_attention(qkv.to(DEVICE, DTYPE), _bias(), starts, longest, seed, dropout).cpu().double()
        for factors, piece in zip(kept, out.view(tokens, HEADS, D).split(lengths), strict=True):
            length = len(piece)
            width = max(0, min(D, length - first))
            factors[:, :, first : first + width] = piece.transpose(0, 1)[:, :, :width] * length
    return kept


def _distance(got: Tensor, wanted: Tensor) -> float:
    return float((got.cpu().double() - wanted).norm() / wanted.norm())


@pytest.mark.usefixtures("every_tile")
@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_values_and_gradients_are_those_of_plain_attention(dropout: float, *, biased: bool) -> None:
    qkv, starts = _batch()
    kept = _kept(starts, 70, _seed(), dropout) if dropout else None
    exact = qkv.cpu().double().requires_grad_()
    qkv.requires_grad_()
    bias = _bias().requires_grad_()
    positions = torch.randn(HEADS, 128, 128).mul(2).to(DEVICE).requires_grad_() if biased else None
    exact_positions = None if positions is None else positions.detach().cpu().double().requires_grad_()
    got = packed_attention(qkv, bias, starts, 70, _seed(), dropout, positions)
    wanted = _expected(exact, starts.cpu(), kept, exact_positions)
    grad = torch.randn(wanted.shape).to(DEVICE, DTYPE)
    got.backward(grad)
    wanted.backward(grad.cpu().double())
    assert qkv.grad is not None
    assert exact.grad is not None
    assert _distance(got.detach(), wanted.detach()) < NEAR
    for part in range(3):
        assert _distance(qkv.grad[:, part], exact.grad[:, part]) < NEAR
    assert bias.grad is not None
    assert _distance(bias.grad.view(3, HEADS, D)[::2], exact.grad.sum(0)[::2]) < NEAR
    # That of the keys is nothing: a softmax does not change when all scores do by the same.
    assert bias.grad.view(3, HEADS, D)[1].abs().max() < NEAR * bias.grad.abs().max()
    if positions is not None and exact_positions is not None:
        assert positions.grad is not None
        assert exact_positions.grad is not None
        assert _distance(positions.grad, exact_positions.grad) < NEAR


@pytest.mark.filterwarnings("ignore:overflow encountered in exp2")  # in rows beyond a piece's end, never stored
@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.usefixtures("every_tile")
def test_large_scores_stay_finite() -> None:
    qkv, starts = _batch()
    qkv[:, :2] *= torch.tensor([40.0, -40.0], device=DEVICE, dtype=DTYPE)[None, :, None, None]
    qkv[:, 1] = -qkv[:, 0]  # every score of a token with itself is far below zero
    qkv.requires_grad_()
    out = packed_attention(qkv, _bias(), starts, 70, _seed())
    out.sum().backward()
    assert out.isfinite().all()
    assert qkv.grad is not None
    assert qkv.grad.isfinite().all()


def test_the_same_values_are_dropped_whatever_the_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    qkv, starts = _batch()
    results = []
    for tiles in (Tiles(16, 16, 4, 1), Tiles(64, 32, 4, 1), Tiles(32, 128, 4, 1)):
        monkeypatch.setattr(attention_kernels, "FORWARD", tiles)
        results.append(packed_attention(qkv, _bias(), starts, 70, _seed(), 0.3).cpu().double())
    assert _distance(results[1], results[0]) < NEAR
    assert _distance(results[2], results[0]) < NEAR


def test_the_share_that_is_dropped_is_right_and_falls_everywhere_alike() -> None:
    lengths = (96, 96, 96)
    starts = torch.tensor([0, *lengths]).cumsum(0).int().to(DEVICE)
    dropped = torch.stack(_kept(starts, 96, _seed(), 0.1)).eq(0).double()  # [pieces, heads, T, T]
    share, factor = 26 / 256, 256 / 230
    spread = (share * (1 - share) / dropped.numel()) ** 0.5
    assert abs(dropped.mean() - share) < 4 * spread
    for axis in (2, 3):  # per key and per query
        lines = dropped.mean(axis)
        assert (lines - share).abs().max() < 5 * spread * lines.numel() ** 0.5
    # Neighbours, and those that share a random word, know nothing of each other.
    flat = dropped - dropped.mean()
    for rows, columns in ((0, 1), (1, 0), (1, 1), (0, 2), (0, 8), (8, 0), (8, 8)):
        moved = flat[:, :, rows:, columns:] * flat[:, :, : 96 - rows, : 96 - columns]
        assert abs(moved.mean() / flat.var()) < 5 / moved.numel() ** 0.5
    kept = torch.stack(_kept(starts, 96, _seed(), 0.1))
    torch.testing.assert_close(kept[kept > 0], torch.full_like(kept[kept > 0], factor), rtol=2e-3, atol=0)


def test_pieces_heads_and_seeds_drop_different_values() -> None:
    starts = torch.tensor([0, 64, 128], dtype=torch.int32, device=DEVICE)
    one, other = (torch.stack(_kept(starts, 64, _seed(seed), 0.5)).flatten(0, 1) > 0 for seed in (1, 2))
    masks = torch.cat([one, other]).flatten(1).double() - 0.5  # [8, T²]
    overlap = masks @ masks.T / masks.shape[1] * 4
    assert (overlap - torch.eye(8)).abs().max() < 5 / masks.shape[1] ** 0.5
    assert torch.equal(one, torch.stack(_kept(starts, 64, _seed(1), 0.5)).flatten(0, 1) > 0)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (MPNetConfig, "encoder.relative_attention_bias.weight"),
        (DistilBertConfig, "transformer.layer.0.sa_layer_norm.weight"),
    ],
)
def test_a_whole_model_is_the_same_through_these_kernels(config, name, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    small = {"vocab_size": 40, "hidden_size": HEADS * D, "intermediate_size": 64, "hidden_dim": 64}
    settings = {"num_hidden_layers": 2, "num_attention_heads": HEADS, "relative_attention_num_buckets": 32}
    model = AutoModel.from_config(config(**small, **settings)).eval()
    parameter = model.to(DEVICE).get_parameter(name)
    if config is MPNetConfig:
        parameter.data *= 30  # or it would hardly count
    lengths = (37, 1, 70)
    starts = torch.tensor([0, *lengths]).cumsum(0).int().to(DEVICE)
    tokens = torch.randint(3, 40, (sum(lengths),), device=DEVICE)
    grad = torch.randn(sum(lengths), HEADS * D, device=DEVICE)
    adapter, found = adapter_of(model), []
    for ours in (True, False):
        for module in (attention, packed_adapter):
            monkeypatch.setattr(module, "has_packed_kernels", lambda *_, ours=ours: ours)
        copies = LowPrecisionWeights(adapter, torch.float16)  # the interpreter's bf16 rounds in its own way
        parameter.grad = None
        with torch.autocast(DEVICE, torch.float16):
            states = packed_adapter.packed_states(adapter, Packed(tokens, starts, 70, len(lengths)), copies=copies)
        states.backward(grad)
        assert parameter.grad is not None
        found.append((states.detach(), parameter.grad, copies.gradients))
    for one, other in zip(*found, strict=True):
        assert _distance(one, other.cpu().double()) < 1e-2


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_a_captured_graph_drops_other_values_when_the_seed_changes() -> None:
    qkv, starts = _batch()
    seed = _seed(1)
    packed_attention(qkv, _bias(), starts, 70, seed, 0.3)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = packed_attention(qkv, _bias(), starts, 70, seed, 0.3)
    results = []
    for value in (1, 2, 1):
        seed.fill_(value)
        graph.replay()
        results.append(out.clone())
    assert torch.equal(results[0], results[2])
    assert not torch.equal(results[0], results[1])
