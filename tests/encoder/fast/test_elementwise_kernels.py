"""The element-wise Triton kernels, on a GPU or, where there is none, in Triton's interpreter (`make test-kernels`)."""

import copy
import os

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModel, BertConfig, DistilBertConfig, MPNetConfig, RobertaConfig

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs a GPU, or Triton's interpreter", allow_module_level=True)
    pytest.importorskip("triton")
from abalone.encoder.architectures import adapter_of  # noqa: E402
from abalone.encoder.architectures.adapter import packed_states  # noqa: E402
from abalone.encoder.fast.elementwise_kernels import (  # noqa: E402 - not without Triton
    add_and_normalise,
    embedding_sum,
    gelu,
)
from abalone.encoder.fast.weights import LowPrecisionWeights, RowGradients  # noqa: E402
from abalone.encoder.packed import Packed  # noqa: E402

WORDS, POSITIONS, WIDTH = 11, 7, 48
SMALL = {"vocab_size": 90, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
ROUNDING = {"rtol": 8e-3, "atol": 8e-3}  # of bfloat16


def draw(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=DEVICE).to(dtype).requires_grad_()


def norm_inputs(rows, width):
    torch.manual_seed(rows)
    return draw(rows, width, dtype=torch.bfloat16), draw(width), draw(rows, width), draw(width), draw(width)


@pytest.mark.parametrize("shape", [(5, 32), (9, 48), (1, 384)])
@pytest.mark.parametrize("wanted", ["both", "whole", "half"])
def test_norm_of_the_sum(shape, wanted):
    given = norm_inputs(*shape)
    mixed, bias, states, weight, norm_bias = given
    whole, half = add_and_normalise(*given, torch.tensor([5], device=DEVICE), eps=1e-5, dropout=0.0)
    expected = F.layer_norm(mixed.float() + bias + states, shape[1:], weight, norm_bias, 1e-5)
    torch.testing.assert_close(whole, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(half.float(), whole, **ROUNDING)
    gradients = torch.randn(*shape, device=DEVICE), torch.randn(*shape, device=DEVICE).bfloat16()
    used = {"both": (0, 1), "whole": (0,), "half": (1,)}[wanted]
    ours = torch.autograd.grad([(whole, half)[i] for i in used], given, [gradients[i] for i in used])
    theirs = torch.autograd.grad(expected, given, sum(gradients[i].float() for i in used))
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.float(), reference.float(), **ROUNDING)


def test_dropout_is_the_same_in_both_directions_and_follows_the_seed():
    rows, width, share = 300, 64, 0.25
    ones = torch.ones(rows, width, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    nothing, unit = torch.zeros(width, device=DEVICE), torch.ones(width, device=DEVICE)
    states = torch.zeros(rows, width, device=DEVICE, requires_grad=True)

    def run(seed):
        seed = torch.tensor([seed], device=DEVICE)
        return add_and_normalise(ones, nothing, states, unit, nothing, seed, eps=1e-5, dropout=share)[0]

    out = run(3)
    kept = out > 0  # what is kept is above the mean of its row
    assert abs(kept.float().mean().item() - (1 - share)) < 0.01
    assert (kept.float().mean(0) - (1 - share)).abs().max() < 0.15  # in every column
    of_ones, of_states = torch.autograd.grad(out, (ones, states), torch.randn(rows, width, device=DEVICE))
    torch.testing.assert_close(of_ones.float(), of_states * kept / (1 - share), **ROUNDING)
    assert torch.equal(run(3), out)
    assert not torch.equal(run(4), out)


@pytest.mark.parametrize("shape", [(6, 40), (3, 1100)])
def test_gelu(shape):
    torch.manual_seed(0)
    x = (4 * torch.randn(*shape, device=DEVICE)).bfloat16().requires_grad_()
    bias = draw(shape[1])
    out, expected = gelu(x, bias), F.gelu(x.float() + bias)
    torch.testing.assert_close(out.float(), expected, **ROUNDING)
    gradient = torch.randn(*shape, device=DEVICE).bfloat16()
    ours = torch.autograd.grad(out, (x, bias), gradient)
    theirs = torch.autograd.grad(expected, (x, bias), gradient.float())
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.float(), reference.float(), **ROUNDING)


def test_gelu_is_exact_far_from_nothing_too():
    x = torch.linspace(-6, 6, 1024, device=DEVICE).half().unsqueeze(0)
    out = gelu(x, torch.zeros(1024, device=DEVICE))
    torch.testing.assert_close(out.double(), F.gelu(x.double()), rtol=2e-3, atol=1e-7)


@pytest.mark.parametrize("padding", [None, 0, 1])
@pytest.mark.parametrize("with_kind", [True, False])
@pytest.mark.parametrize("number", [torch.int64, torch.int32])
def test_embedding_sum_and_its_gradients(padding, with_kind, number):
    torch.manual_seed(0)
    words, positions, kind = draw(WORDS, WIDTH), draw(POSITIONS, WIDTH), draw(WIDTH) if with_kind else None
    tokens = torch.tensor([4, 0, 4, 1, 10, 4, 1, 0, 9], dtype=number, device=DEVICE)
    places = torch.tensor([0, 1, 2, 3, 0, 1, 2, 0, 6], dtype=number, device=DEVICE)
    into = RowGradients.of([words, positions])
    ours = embedding_sum(words, positions, kind, tokens, places, into=into, padding=padding)
    theirs = F.embedding(tokens, words, padding) + (0 if kind is None else kind) + F.embedding(places, positions)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    gradient = torch.randn(len(tokens), WIDTH, device=DEVICE)
    ours.backward(gradient)
    assert words.grad is None
    assert positions.grad is None
    of_kind = None if kind is None else kind.grad
    if kind is not None:
        kind.grad = None
    theirs.backward(gradient)
    torch.testing.assert_close(into.sums[:WORDS], words.grad, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(into.sums[WORDS:], positions.grad, rtol=1e-5, atol=1e-6)
    if kind is not None:
        torch.testing.assert_close(of_kind, kind.grad, rtol=1e-5, atol=1e-6)
    expected = torch.zeros(WORDS + POSITIONS, dtype=torch.uint8)
    expected[[row for row in tokens.tolist() if row != padding]] = 1
    expected[[WORDS + row for row in places.tolist()]] = 1
    assert torch.equal(into.touched.cpu(), expected)


def gradients_of(model, batch, rows=None):
    """Of words, positions and kinds, when all but the filler's states are weighed; torch's without `rows`."""
    copies = LowPrecisionWeights(adapter_of(model), torch.bfloat16)
    copies.row_gradients = rows
    with torch.autocast(DEVICE, torch.bfloat16):
        states = packed_states(adapter_of(model), batch, copies=copies)
    real = int(batch.cu_seqlens[batch.pieces])
    torch.manual_seed(2)
    (states[:real].float() * torch.randn(real, states.shape[1], device=DEVICE)).sum().backward()
    parts = model.embeddings
    kinds = parts.token_type_embeddings.weight.grad if hasattr(parts, "token_type_embeddings") else None
    if rows is None:
        return parts.word_embeddings.weight.grad, parts.position_embeddings.weight.grad, kinds
    assert parts.word_embeddings.weight.grad is None
    assert parts.position_embeddings.weight.grad is None
    return (*rows.sums.split([len(table) for table in copies.tables]), kinds)


@pytest.mark.parametrize("config", [BertConfig, RobertaConfig, MPNetConfig, DistilBertConfig])
@pytest.mark.parametrize("filler", [None, 5])
def test_embedding_sum_in_a_model_gives_the_same_gradient(config, filler):
    torch.manual_seed(0)
    dropouts = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout")
    settings = {**SMALL, **dict.fromkeys(dropouts, 0.0)}
    model = AutoModel.from_config(config(**settings, max_position_embeddings=40)).to(DEVICE)
    other = copy.deepcopy(model)
    lengths = (7, 1, 6, *(() if filler is None else (filler,)))
    starts = torch.tensor([0, *lengths]).cumsum(0).int().to(DEVICE)
    tokens = torch.randint(5, 60, (int(starts[-1]),), device=DEVICE)
    tokens[2] = model.config.pad_token_id
    tokens[14:] = 77  # a word that only the filler has
    batch = Packed(tokens, starts, 7, 3, filled=filler is not None)
    ours = gradients_of(model, batch, RowGradients.of(LowPrecisionWeights(adapter_of(model), torch.bfloat16).tables))
    for mine, theirs in zip(ours, gradients_of(other, batch), strict=True):
        if theirs is not None:
            assert theirs.norm() > 1
            assert (mine - theirs).norm() < 2e-3 * theirs.norm()
    assert not ours[0][77].any()
    assert not ours[0][model.config.pad_token_id].any()
