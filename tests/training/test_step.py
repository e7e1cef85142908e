"""One update: in what order weights move, and what is counted on the way."""

import numpy as np
import pytest
import torch

import tiny
from abalone.config import Config
from abalone.data.tokens import tokenize
from abalone.encoder.feed import TokenFeed, make_batch
from abalone.encoder.load import load_encoder
from abalone.training import objectives
from abalone.training.objectives import Objective
from abalone.training.runtime import Runtime
from abalone.training.step import Step

LABELS = 5


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    return tiny.save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def feed(encoder_folder):
    _, tokenizer = load_encoder(encoder_folder)
    texts, labels = tiny.corpus(16, labels=LABELS)
    return TokenFeed(tokenize(texts, tokenizer, cache=None), labels, max_length=20)


def make_step(encoder_folder, feed, name, runtime=None, **settings):
    torch.manual_seed(0)
    encoder, _ = load_encoder(encoder_folder, "mean", 0.0)
    objective = Objective(encoder, LABELS, name, Config(queue_size=16, projection_dim=8, **settings))
    trained = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    groups = [{"params": trained, "lr": 0.1, "weight_decay": 0.0}]
    runtime = runtime or Runtime.start("cpu", "fp32")
    return objective, Step(objective, groups, runtime, clip=1.0, batch_size=8, lengths=feed.lengths)


def test_slow_encoder_follows_the_updated_weights(encoder_folder, feed):
    objective, step = make_step(encoder_folder, feed, "msc", momentum=0.75)
    fast, slow = objective.projection.outer.weight, objective.slow.encoder.projection.outer.weight
    before = fast.detach().clone()
    step.begin(0, 0.0)
    step(make_batch(feed, np.arange(8)), 1.0)
    assert not torch.allclose(fast, before)
    torch.testing.assert_close(slow, 0.75 * before + 0.25 * fast)


def test_scaled_gradients_make_the_step_that_plain_ones_make(encoder_folder, feed):
    """As in fp16, but computed in full precision: the scale itself changes nothing."""
    weights = []
    for scaled in (False, True):
        runtime = Runtime(torch.device("cpu"))
        if scaled:
            object.__setattr__(runtime, "scaler", torch.amp.GradScaler("cpu"))
        objective, step = make_step(encoder_folder, feed, "bce", runtime)
        step.begin(0, 0.0)
        step(make_batch(feed, np.arange(8)), 1.0)
        weights.append(objective.head.weight.detach().clone())
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-5)


def test_scaled_gradient_that_overflows_moves_nothing_and_lowers_the_scale(encoder_folder, feed):
    runtime = Runtime(torch.device("cpu"), torch.float16)
    objective, step = make_step(encoder_folder, feed, "bce", runtime)
    weight, scale = objective.head.weight, runtime.scaler.get_scale()
    before = weight.detach().clone()
    overflow = weight.register_hook(lambda gradient: gradient * float("inf"))
    step.begin(0, 0.0)
    step(make_batch(feed, np.arange(8)), 1.0)
    assert torch.equal(weight, before)
    assert runtime.scaler.get_scale() == scale / 2
    assert step.read().wrong_gradient is None  # no reason to stop
    overflow.remove()
    step(make_batch(feed, np.arange(8, 16)), 1.0)
    assert not torch.allclose(weight, before)


def test_what_was_wrong_is_counted_from_the_first_batch_of_the_epoch(encoder_folder, feed):
    """Also where a run goes on in the middle of an epoch: the loop tells a person which step it was."""
    objective, step = make_step(encoder_folder, feed, "bce")
    step.begin(5, 0.0)
    step(make_batch(feed, np.arange(8)), 1.0)
    assert step.read().wrong_gradient is None
    objective.head.bias.register_hook(lambda gradient: gradient * float("nan"))
    step(make_batch(feed, np.arange(8, 16)), 1.0)
    assert step.read().wrong_gradient == 7


class Recorder:
    """Stands for `Captured` where there is no GPU: says what would be recorded."""

    def __init__(self, function, batch_size, lengths):
        self.documents, self.most_documents, self.given = {batch_size, len(lengths) % batch_size}, batch_size, []

    def fits(self, batch):
        return len(batch) in self.documents

    def __call__(self, batch):
        self.given.append(len(batch))


@pytest.mark.parametrize(("entries", "recorded"), [(10**6, [8, 4]), (8 * LABELS - 1, [])])
def test_no_batch_is_recorded_where_a_full_one_cannot_be(entries, recorded, encoder_folder, feed, monkeypatch):
    """A full batch is recorded first, whichever comes first; here it has more label entries than a dense product."""
    monkeypatch.setattr(objectives, "DENSE_ENTRIES", entries)
    _, step = make_step(encoder_folder, feed, "bce")
    step._captured = recorder = Recorder(None, 8, np.arange(12))
    step.begin(0, 0.0)
    for rows in (np.arange(8), np.arange(8, 12)):
        step(make_batch(feed, rows), 1.0)
    assert recorder.given == recorded
