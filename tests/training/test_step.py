"""One update: in what order weights move, and what is counted on the way."""

import numpy as np
import pytest
import torch

import tiny
from abalone.config import Config
from abalone.data.tokens import tokenize
from abalone.encoder.feed import TokenFeed, make_batch
from abalone.encoder.load import load_encoder
from abalone.training.objectives import Objective
from abalone.training.processes import make_accelerator
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


def make_step(encoder_folder, feed, name, **settings):
    torch.manual_seed(0)
    encoder, _ = load_encoder(encoder_folder, "mean", 0.0)
    objective = Objective(encoder, LABELS, name, Config(queue_size=16, projection_dim=8, **settings))
    trained = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    groups = [{"params": trained, "lr": 0.1, "weight_decay": 0.0}]
    accelerator = make_accelerator("cpu", "fp32")
    return objective, Step(objective, groups, accelerator, clip=1.0, batch_size=8, lengths=feed.lengths)


def test_slow_encoder_follows_the_updated_weights(encoder_folder, feed):
    objective, step = make_step(encoder_folder, feed, "msc", momentum=0.75)
    fast, slow = objective.projection.outer.weight, objective.slow.encoder.projection.outer.weight
    before = fast.detach().clone()
    step.begin(0, 0.0)
    step(make_batch(feed, np.arange(8)), 1.0)
    assert not torch.allclose(fast, before)
    torch.testing.assert_close(slow, 0.75 * before + 0.25 * fast)
