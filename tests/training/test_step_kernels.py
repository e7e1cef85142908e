"""Whole steps in which our kernels move matrices and tables, against those in which torch moves the tables."""

import os

import numpy as np
import pytest
import torch

import tiny
from abalone.config import Config
from abalone.data.tokens import tokenize
from abalone.encoder.architectures.adapter import Adapter
from abalone.encoder.feed import Batch, TokenFeed, make_batch
from abalone.encoder.load import load_encoder

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu":
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs a GPU, or Triton's interpreter", allow_module_level=True)
    pytest.importorskip("triton")
from abalone.encoder.fast.graph import own_stream  # noqa: E402
from abalone.encoder.fast.optimizer import FusedAdamW  # noqa: E402
from abalone.training.loop import Plan, parameter_groups  # noqa: E402
from abalone.training.objectives import Objective  # noqa: E402
from abalone.training.runtime import Runtime  # noqa: E402
from abalone.training.step import Step  # noqa: E402

LABELS, BATCH = 5, 8
PLAN = Plan(epochs=1, batch_size=BATCH, learning_rate=3e-3, head_learning_rate=3e-3, schedule="cosine", clip=0.5)


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    return tiny.save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def feed(encoder_folder):
    texts, labels = tiny.corpus(44, labels=LABELS)
    return TokenFeed(tokenize(texts, load_encoder(encoder_folder)[1], cache=None), labels, max_length=20)


def in_half_precision(objective):
    """Return the optimiser that a step has on a GPU."""
    return FusedAdamW(
        parameter_groups(objective, PLAN), clip=PLAN.clip, encoder=objective.encoder, average=objective.slow,
        followed=objective.followed, half=torch.bfloat16,
    )  # fmt: skip


class Training:
    """An objective and its step, with our kernels on a CPU too."""

    def __init__(self, encoder_folder, feed, name="msc"):
        torch.manual_seed(0)
        encoder, _ = load_encoder(encoder_folder, "mean", dropout=0.0)
        for parameter in encoder.parameters():
            parameter.data = parameter.data.clone()  # in a file they may lie anywhere
        self.objective = Objective(encoder, LABELS, name, Config(queue_size=16, projection_dim=8))
        self.objective.to(DEVICE).train()
        groups = parameter_groups(self.objective, PLAN)
        runtime = Runtime.start(DEVICE.type, "bf16")
        options = {"clip": PLAN.clip, "batch_size": BATCH, "lengths": feed.lengths}
        self.step = Step(self.objective, groups, runtime, **options)
        if DEVICE.type == "cpu":
            self.step.optimizer = in_half_precision(self.objective)
        self.feed, self.losses = feed, []

    @property
    def rows(self):
        return self.objective.encoder.copies.row_gradients

    def run(self, batches):
        self.step.begin(0, 0.0)
        with own_stream(DEVICE):
            for rows in batches:
                batch = make_batch(self.feed, rows)
                if DEVICE.type == "cuda":
                    batch = Batch(batch.documents.pinned(), batch.labels.pin_memory())
                self.step(batch, rate=1.0)
                if self.rows is not None:
                    assert not self.rows.sums.any()
                    assert not self.rows.touched.any()
                self.losses.append(self.step.read().loss_sum)
        return self


@pytest.mark.parametrize("name", ["msc", "bce"])
def test_the_same_steps_as_with_torch_for_the_tables(name, encoder_folder, feed, monkeypatch):
    batches = np.split(np.arange(len(feed)), range(BATCH, len(feed), BATCH))  # the last one is smaller
    ours = Training(encoder_folder, feed, name)
    assert ours.rows is not None
    ours.run(batches)
    with monkeypatch.context() as patch:
        patch.setattr(Adapter, "tables", [])
        theirs = Training(encoder_folder, feed, name)
        assert theirs.rows is None
        theirs.run(batches)
    before = load_encoder(encoder_folder)[0].model.embeddings.to(DEVICE)
    torch.testing.assert_close(torch.tensor(ours.losses), torch.tensor(theirs.losses), rtol=1e-3, atol=1e-3)
    expected = theirs.objective.state_dict()
    for key, value in ours.objective.state_dict().items():
        if "embeddings.w" in key or "embeddings.p" in key:
            start = before.get_parameter(key.split("embeddings.", 1)[1])
            moved = (expected[key] - start).norm()
            assert moved > 0
            assert (value - expected[key]).norm() < 0.03 * moved, key  # AdamW makes much of what rounding leaves
    parameters = [dict(training.objective.named_parameters()) for training in (ours, theirs)]
    states = [training.step.optimizer.state for training in (ours, theirs)]
    for key, parameter in parameters[0].items():
        if parameter.requires_grad:
            mine, other = states[0][parameter], states[1][parameters[1][key]]
            assert mine.keys() == other.keys()
            assert float(mine["step"]) == float(other["step"]) == len(batches)
            torch.testing.assert_close(mine["exp_avg"], other["exp_avg"], rtol=2e-2, atol=2e-4)


def test_a_step_with_a_nan_gradient_leaves_nothing_behind(encoder_folder, feed):
    ours = Training(encoder_folder, feed)
    ours.run([np.arange(BATCH)])
    before = {name: value.clone() for name, value in ours.objective.encoder.state_dict().items()}
    norm = ours.objective.encoder.model.embeddings.LayerNorm.weight
    hook = norm.register_hook(lambda gradient: gradient * float("nan"))
    ours.run([np.arange(BATCH, 2 * BATCH)])  # looks at the rows
    hook.remove()
    assert all(torch.equal(value, before[name]) for name, value in ours.objective.encoder.state_dict().items())
    assert ours.step.read().wrong_gradient == 1
    ours.run([np.arange(BATCH)])
    words = "model.embeddings.word_embeddings.weight"
    assert not torch.equal(ours.objective.encoder.state_dict()[words], before[words])
    assert ours.objective.encoder.state_dict()[words].isfinite().all()


def test_a_frozen_encoder_keeps_its_tables(encoder_folder, feed):
    torch.manual_seed(0)
    encoder, _ = load_encoder(encoder_folder)
    encoder.model.embeddings.requires_grad_(False)
    objective = Objective(encoder, LABELS, "bce", Config()).to(DEVICE)
    in_half_precision(objective)
    assert encoder.copies.row_gradients is None
