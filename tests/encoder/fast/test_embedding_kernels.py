"""The gradients of word and position vectors against torch's; on a GPU, or in Triton's interpreter."""

import copy
import os

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModel, BertConfig, MPNetConfig, RobertaConfig

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu":
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs a GPU, or Triton's interpreter", allow_module_level=True)
    pytest.importorskip("triton")
from abalone.encoder.fast.embedding_kernels import embedding_sum  # noqa: E402 - not without Triton
from abalone.encoder.layers import packed_states  # noqa: E402
from abalone.encoder.packed import Packed  # noqa: E402
from abalone.encoder.weights import HalfWeights, RowGradients  # noqa: E402

WORDS, POSITIONS, WIDTH = 11, 7, 48
SMALL = {"vocab_size": 90, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def draw(*shape):
    return torch.randn(*shape, device=DEVICE).requires_grad_()


@pytest.mark.parametrize("padding", [None, 0, 1])
@pytest.mark.parametrize("with_kind", [True, False])
@pytest.mark.parametrize("number", [torch.int64, torch.int32])
def test_the_sum_and_its_gradients(padding, with_kind, number):
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
    halves = HalfWeights(model, torch.bfloat16)
    halves.row_gradients = rows
    with torch.autocast(DEVICE.type, torch.bfloat16):
        states = packed_states(model, batch, halves=halves)
    real = int(batch.starts[batch.pieces])
    torch.manual_seed(2)
    (states[:real].float() * torch.randn(real, states.shape[1], device=DEVICE)).sum().backward()
    parts = model.embeddings
    kinds = parts.token_type_embeddings.weight.grad if hasattr(parts, "token_type_embeddings") else None
    if rows is None:
        return parts.word_embeddings.weight.grad, parts.position_embeddings.weight.grad, kinds
    assert parts.word_embeddings.weight.grad is None
    assert parts.position_embeddings.weight.grad is None
    return (*rows.sums.split([len(table) for table in halves.tables]), kinds)


@pytest.mark.parametrize("config", [BertConfig, RobertaConfig, MPNetConfig])
@pytest.mark.parametrize("filler", [None, 5])
def test_in_a_model_it_is_the_same_gradient(config, filler):
    torch.manual_seed(0)
    settings = {**SMALL, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = AutoModel.from_config(config(**settings, max_position_embeddings=40), add_pooling_layer=False).to(DEVICE)
    other = copy.deepcopy(model)
    lengths = (7, 1, 6, *(() if filler is None else (filler,)))
    starts = torch.tensor([0, *lengths]).cumsum(0).int().to(DEVICE)
    tokens = torch.randint(5, 60, (int(starts[-1]),), device=DEVICE)
    tokens[2] = model.config.pad_token_id
    tokens[14:] = 77  # a word that only the filler has
    batch = Packed(tokens, starts, 7, 3, filled=filler is not None)
    ours = gradients_of(model, batch, RowGradients.of(HalfWeights(model, torch.bfloat16).tables))
    for mine, theirs in zip(ours, gradients_of(other, batch), strict=True):
        if theirs is not None:
            assert theirs.norm() > 1
            assert (mine - theirs).norm() < 2e-3 * theirs.norm()
    assert not ours[0][77].any()
    assert not ours[0][model.config.pad_token_id].any()
