"""Weights kept in low precision against weights that autocast makes."""

import copy

import pytest
import torch
from transformers import AutoModel, BertConfig, DistilBertConfig, MPNetConfig

from abalone.encoder.architectures import adapter_of
from abalone.encoder.architectures.adapter import packed_states
from abalone.encoder.fast.weights import LowPrecisionWeights
from abalone.encoder.packed import Packed

SMALL = {"vocab_size": 90, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


@pytest.fixture(params=[BertConfig, MPNetConfig, DistilBertConfig])
def models(request):
    torch.manual_seed(0)
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout")
    model = AutoModel.from_config(request.param(**SMALL, **dict.fromkeys(names, 0.0)))
    return model, copy.deepcopy(model)


def batch():
    torch.manual_seed(1)
    return Packed(torch.randint(5, 90, (20,)), torch.tensor([0, 9, 12, 20], dtype=torch.int32), 9, 3)


def states_of(model, copies=None):
    with torch.autocast("cpu", torch.bfloat16):
        return packed_states(adapter_of(model), batch(), copies=copies)


def test_the_same_states_and_gradients(models):
    plain, kept = models
    copies = LowPrecisionWeights(adapter_of(kept), torch.bfloat16)
    states = [states_of(plain), states_of(kept, copies)]
    assert torch.equal(*states)
    for one in states:
        one.square().sum().backward()
    copies.hand_over_gradients()
    for (name, parameter), also in zip(plain.named_parameters(), kept.parameters(), strict=True):
        if parameter.grad is not None:
            torch.testing.assert_close(also.grad, parameter.grad, rtol=0.02, atol=0.02, msg=name)
    assert all(layer.projection_biases[0].grad is None for layer in copies.layers)


def test_they_follow_the_parameters_when_told(models):
    model, moved = models
    copies = LowPrecisionWeights(adapter_of(model), torch.bfloat16)
    with torch.no_grad():
        for parameter, also in zip(model.parameters(), moved.parameters(), strict=True):
            parameter.add_(0.1)
            also.add_(0.1)
    assert not torch.equal(states_of(model, copies), states_of(moved))
    copies.refresh()
    assert torch.equal(states_of(model, copies), states_of(moved))


def test_they_stand_aside_in_another_precision(models):
    model, same = models
    copies = LowPrecisionWeights(adapter_of(model), torch.float16)
    with torch.no_grad():
        assert torch.equal(states_of(model, copies), states_of(same))
        assert torch.equal(
            packed_states(adapter_of(model), batch(), copies=copies), packed_states(adapter_of(same), batch())
        )
