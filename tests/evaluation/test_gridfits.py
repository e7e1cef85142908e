"""Fits side by side equal one AdamW loop a fit."""

import math
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from made_up import documents
from torch import nn

from abalone.evaluation import gridfits
from abalone.evaluation.gridfits import GridFits, Setting, shuffled_batches, starting_weights
from abalone.evaluation.probe import LinearProbe

CPU = torch.device("cpu")
PAPER = [Setting(rate, decay) for rate in (0.01, 0.1, 1) for decay in (1, 0.1, 0.01, 0.0001, 0.000001)]  # appendix A


def one_by_one(X, y, start, setting, batches):
    """What the paper does: one label, one setting, one start, torch's own optimiser and schedule."""
    model = nn.Linear(X.shape[1], 1, dtype=X.dtype)
    with torch.no_grad():
        model.weight.copy_(start)
        model.bias.zero_()
    optimiser = torch.optim.AdamW(model.parameters(), lr=setting.learning_rate, weight_decay=setting.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / len(batches))
    for rows in batches:
        optimiser.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(X[rows]).squeeze(1), y[rows]).backward()
        optimiser.step()
        schedule.step()
    return model


def test_equals_one_adamw_loop_a_fit():
    X, Y = documents(130, labels=2, noise=0.5, dtype=torch.float64)
    X = 3 * X + 1  # raw features: neither centred nor scaled
    X[:, 0] *= 1e-7  # gradients of the size of AdamW's eps
    grid, steps, size = LinearProbe().grid, 200, 32
    generator = torch.Generator().manual_seed(5)
    start = starting_weights(3, 2, X.shape[1], generator)
    batches = list(shuffled_batches(len(X), size, steps, generator, CPU))
    fits = GridFits(X, Y.bool(), grid, start, size, steps)
    fits.train(iter(batches))
    assert fits.weight.value.shape == (3, 15, 2, X.shape[1])
    for s, setting in enumerate(PAPER):
        for i in range(3):
            for label in range(2):
                alone = one_by_one(X, Y[:, label].double(), start[i, label], setting, batches)
                torch.testing.assert_close(fits.weight.value[i, s, label], alone.weight[0], rtol=1e-6, atol=1e-6)
                torch.testing.assert_close(fits.bias.value[i, s, label], alone.bias, rtol=1e-6, atol=1e-6)


def test_on_a_gpu_a_step_is_captured_once_and_after_plain_ones(monkeypatch):
    X, Y = documents(50)
    fits, done = GridFits(X, Y.bool(), PAPER, torch.zeros(1, 3, 6), 10, 8), []

    def captured(step):
        done.append("captured")
        return lambda: done.append("replayed")

    monkeypatch.setattr(gridfits, "_captured", captured)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(fits, "_step", lambda: done.append("plain"))
    monkeypatch.setattr(fits, "features", SimpleNamespace(is_cuda=True, device="cuda"))
    fits.train(shuffled_batches(50, 10, 8, torch.Generator(), CPU))
    assert done == ["plain"] * gridfits.EAGER_STEPS + ["captured"] + ["replayed"] * (8 - gridfits.EAGER_STEPS)


def test_start_is_xavier_uniform_of_one_linear_layer_a_label():
    start = starting_weights(3, 50, 30, torch.Generator().manual_seed(0))
    bound = math.sqrt(6 / (30 + 1))
    assert start.abs().max() <= bound
    assert start.abs().max() > 0.99 * bound
    assert start.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)


def test_batches_show_every_document_once_an_epoch():
    batches = list(shuffled_batches(10, 4, 5, torch.Generator().manual_seed(0), CPU))
    assert [len(rows) for rows in batches] == [4] * 5
    stream = torch.cat(batches)
    assert sorted(stream[:10].tolist()) == sorted(stream[10:].tolist()) == list(range(10))
    assert stream[:10].tolist() != stream[10:].tolist()


def test_infinite_weights_have_no_score():
    X, Y = documents(50)
    grid = [Setting(0.01, 0.01), Setting(0.01, 1e-4), Setting(0.1, 0.01), Setting(0.1, 1e-4)]
    fits = GridFits(X.abs(), Y.bool(), grid, torch.zeros(2, 3, 6), 10, 1)
    fits.weight.value[1, 2, 0] = math.inf  # its probabilities are finite all the same
    fits.bias.value[0, 3, 1] = math.nan
    for scores in fits.scores(X.abs(), Y.bool()):
        assert np.argwhere(np.isnan(scores)).tolist() == [[2, 0], [3, 1]]


def test_picks_one_setting_a_label():
    X, Y = documents(20)
    fits = GridFits(X, Y.bool(), LinearProbe().grid, torch.zeros(2, 3, 6), 10, 1)
    fits.weight.value.copy_(torch.randn(2, 15, 3, 6))
    fits.bias.value.copy_(torch.randn(2, 15, 3, 1))
    weight, bias = fits.pick(np.array([4, 0, 14]))
    assert (weight.shape, bias.shape) == ((2, 3, 6), (2, 3))
    for label, setting in enumerate([4, 0, 14]):
        assert torch.equal(weight[:, label], fits.weight.value[:, setting, label])
        assert torch.equal(bias[:, label], fits.bias.value[:, setting, label, 0])
