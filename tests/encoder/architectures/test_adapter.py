"""Packed layers against the padded ones of `transformers`, on the same parameters."""

import copy

import pytest
import torch
from transformers import (
    AutoModel,
    BertConfig,
    CamembertConfig,
    DistilBertConfig,
    ElectraConfig,
    MPNetConfig,
    RobertaConfig,
    XLMRobertaConfig,
)

import abalone.encoder.architectures.adapter
from abalone.encoder.architectures import adapter_of
from abalone.encoder.architectures.adapter import packed_states as states_of
from abalone.encoder.packed import Packed
from abalone.encoder.text_encoder import TextEncoder

SMALL = {"vocab_size": 90, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
FAMILY = [BertConfig, RobertaConfig, XLMRobertaConfig, CamembertConfig, MPNetConfig, DistilBertConfig]
LENGTHS = (7, 1, 12, 4)


def make_model(config_class, dtype=torch.float32, **settings):
    torch.manual_seed(0)
    model = AutoModel.from_config(
        config_class(**SMALL, max_position_embeddings=40, **settings), attn_implementation="eager"
    )
    for parameter in model.parameters():  # biases and norms start as nothing, and would hide a mistake
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model.to(dtype).eval()


def make_batch(lengths=LENGTHS, longest=None, filler=None):
    torch.manual_seed(1)
    ends = torch.tensor([0, *lengths, *([] if filler is None else [filler])]).cumsum(0).int()
    tokens = torch.randint(5, 90, (int(ends[-1]),))
    return Packed(tokens, ends, longest or max(lengths), len(lengths), filled=filler is not None)


def packed_states(model, batch, **options):
    return states_of(adapter_of(model), batch, **options)


def padded_states(model, batch):
    """The states as `transformers` computes them on a rectangle with a mask, [N, h]."""
    pad = torch.full((batch.pieces, batch.longest), model.config.pad_token_id)
    ids = torch.where(batch.mask, batch.pad(batch.tokens), pad)
    return batch.unpad(model(input_ids=ids, attention_mask=batch.mask.long()).last_hidden_state)


@pytest.mark.parametrize("config", FAMILY)
@pytest.mark.parametrize("lengths", [LENGTHS, (6, 6, 6), (9,)], ids=["ragged", "equal", "one"])
def test_the_same_states(config, lengths):
    model, batch = make_model(config), make_batch(lengths)
    expected = padded_states(model, batch)
    torch.testing.assert_close(packed_states(model, batch), expected, atol=2e-6, rtol=1e-5)
    firsts = packed_states(model, batch, firsts_only=True)
    torch.testing.assert_close(firsts, expected[batch.firsts], atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("config", [BertConfig, MPNetConfig, DistilBertConfig])
@pytest.mark.parametrize("firsts_only", [False, True])
def test_the_same_gradients(config, firsts_only):
    model, batch = make_model(config, torch.float64), make_batch()
    other = copy.deepcopy(model)
    weight = torch.randn(batch.pieces, 32, dtype=torch.float64)
    (padded_states(model, batch)[batch.firsts] * weight).sum().backward()
    states = packed_states(other, batch, firsts_only=firsts_only)
    ((states if firsts_only else states[batch.firsts]) * weight).sum().backward()
    for (name, parameter), also in zip(model.named_parameters(), other.parameters(), strict=True):
        if parameter.grad is not None:
            torch.testing.assert_close(also.grad, parameter.grad, atol=1e-10, rtol=1e-8, msg=name)


@pytest.mark.parametrize("config", [RobertaConfig, MPNetConfig, DistilBertConfig])
@pytest.mark.parametrize("firsts_only", [False, True])
def test_a_filler_and_a_loose_bound_change_nothing(config, firsts_only):
    model = make_model(config, torch.float64)
    plain, filled = make_batch(), make_batch(filler=9, longest=20)
    assert torch.equal(filled.tokens[: len(plain.tokens)], plain.tokens)
    results = []
    for batch in (plain, filled):
        model.zero_grad()
        states = packed_states(model, batch, firsts_only=firsts_only)[: 4 if firsts_only else sum(LENGTHS)]
        states.square().sum().backward()
        results.append([states, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(other, one, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("config", [BertConfig, MPNetConfig, DistilBertConfig])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_bf16_is_as_near_as_the_padded_path_in_bf16(config, pooling):
    """The error against full precision is that of autocast over the padded model."""
    model, batch = make_model(config), make_batch((30, 12, 25, 7, 18, 3))
    encoder = TextEncoder(model, pooling)
    with torch.no_grad():
        exact = encoder(batch)
        with torch.autocast("cpu", torch.bfloat16):
            packed = encoder(batch)
            padded = encoder.pool(padded_states(model, batch), batch)
    ours, theirs = ((x.float() - exact).norm() for x in (packed, padded))
    assert theirs > 1e-3  # else nothing was rounded
    assert ours < 1.5 * theirs


@pytest.mark.parametrize(
    ("config", "settings", "a_layer"),
    [
        (BertConfig, {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2}, 2),
        (DistilBertConfig, {"dropout": 0.3, "attention_dropout": 0.2}, 1),
    ],
)
def test_dropout_is_where_the_padded_path_has_it(config, settings, a_layer, monkeypatch):
    dropped, attention = [], []
    dropout, attend = torch.nn.functional.dropout, torch.nn.functional.scaled_dot_product_attention

    def note(x, p):
        dropped.append((tuple(x.shape), p))
        return dropout(x, p)

    def note_attention(*args, dropout_p, **kwargs):
        attention.append(dropout_p)
        return attend(*args, dropout_p=dropout_p, **kwargs)

    monkeypatch.setattr(abalone.encoder.architectures.adapter.F, "dropout", note)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", note_attention)
    model, batch = make_model(config, **settings), make_batch()
    packed_states(model, batch)
    assert (dropped, attention) == ([], [0.0] * 3)
    packed_states(model.train(), batch)
    assert dropped == [((sum(LENGTHS), 32), 0.3)] * (1 + 3 * a_layer)  # after the embeddings, and in each layer
    assert attention[3:] == [0.2] * 3


def test_dropout_keeps_the_mean():
    model, batch = make_model(BertConfig, torch.float64, hidden_dropout_prob=0.05), make_batch()
    with torch.no_grad():
        exact = packed_states(model, batch)
        noisy = torch.stack([packed_states(model.train(), batch) for _ in range(300)])
    assert noisy.std(0).mean() > 0.05
    assert (noisy.mean(0) - exact).abs().mean() < 0.1 * noisy.std(0).mean() + 0.05


def test_decoder_has_no_adapter():
    assert adapter_of(AutoModel.from_config(BertConfig(**SMALL, is_decoder=True))) is None


def test_other_architectures_take_the_padded_way():
    torch.manual_seed(0)
    model = AutoModel.from_config(ElectraConfig(**SMALL)).eval()
    assert adapter_of(model) is None
    batch = make_batch()
    states = model(input_ids=batch.pad(batch.tokens), attention_mask=batch.mask.long()).last_hidden_state
    torch.testing.assert_close(TextEncoder(model, "cls")(batch), states[:, 0])
    expected = (states * batch.mask.unsqueeze(2)).sum(1) / batch.lengths.unsqueeze(1)
    torch.testing.assert_close(TextEncoder(model, "mean")(batch), expected)
