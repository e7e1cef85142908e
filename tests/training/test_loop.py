"""The loop: it learns, it resumes to the bit, it stops where it should."""

import errno
import math
import os
import signal
import time
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

import tiny
from abalone import MemoryQueue
from abalone.config import Config
from abalone.data.tokens import tokenize
from abalone.encoder.fast.optimizer import FusedAdamW
from abalone.encoder.feed import TokenFeed, make_batch
from abalone.encoder.load import load_encoder
from abalone.losses import LOSSES
from abalone.training import checkpoint, loop
from abalone.training.checkpoint import BEFORE, RESUME, Checkpoints, load_tensors
from abalone.training.interruption import TrainingInterrupted
from abalone.training.loop import Plan, TrainingDivergedError, learning_rate_factor, train
from abalone.training.objectives import Objective
from abalone.training.runtime import Runtime
from moved_clock import Clock

LABELS = 5


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    return tiny.save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def feed(encoder_folder):
    _, tokenizer = load_encoder(encoder_folder)
    texts, labels = tiny.corpus(48, labels=LABELS)
    return TokenFeed(tokenize(texts, tokenizer, cache=None), labels, max_length=20)


def make_objective(encoder_folder, name="msc", dropout=0.1, **settings):
    torch.manual_seed(0)
    encoder, _ = load_encoder(encoder_folder, "mean", dropout)
    config = Config(queue_size=16, projection_dim=8, **settings)
    return Objective(encoder, LABELS, name, config, labels=tiny.corpus(48, labels=LABELS)[1])


def make_plan(**changes):
    values = {"epochs": 3, "batch_size": 8, "learning_rate": 3e-3, "head_learning_rate": 3e-3, "schedule": "cosine"}
    return Plan(**{**values, "keep_lowest": ("train_loss",), **changes})


def run(objective, feed, folder, plan=None, *, resume=False, measure=dict):
    runtime = Runtime.start("cpu", "fp32")
    return train(objective, feed, plan or make_plan(), runtime, folder, measure=measure, resume=resume)


@pytest.mark.parametrize("name", [*(name for name in LOSSES if name != "mulcon"), "mulcon+bce", "msc+10*bce"])
def test_every_objective_learns(name, encoder_folder, feed, tmp_path):
    objective = make_objective(encoder_folder, name)

    def loss_of_fixed_batches():  # what a batch is made of changes a contrastive loss more than learning does
        return {"loss": np.mean([objective(make_batch(feed, rows)).item() for rows in np.split(np.arange(48), 6)])}

    standing = run(objective, feed, tmp_path, make_plan(epochs=12), measure=loss_of_fixed_batches)
    losses = [entry["loss"] for entry in standing.history]
    assert len(losses) == 12
    assert losses[-1] < 0.985 * losses[0]  # JSCL is mostly a constant


def test_same_seed_same_weights(encoder_folder, feed, tmp_path):
    first, second = make_objective(encoder_folder), make_objective(encoder_folder)
    run(first, feed, tmp_path / "a")
    run(second, feed, tmp_path / "b")
    assert_same(first, second)
    other = make_objective(encoder_folder)
    run(other, feed, tmp_path / "c", make_plan(seed=1))
    assert not torch.equal(other.projection.outer.weight, first.projection.outer.weight)


class StopError(Exception):
    """What a power cut looks like from inside."""


def run_until(step, objective, feed, folder):
    """Train with a checkpoint at every step, and break off in the one after `step`."""
    steps = iter(range(1, 100))

    def fail_in_time():
        if next(steps) > step:
            raise StopError

    with tiny.after_each_update(fail_in_time), pytest.raises(StopError):
        run(objective, feed, folder, make_plan(checkpoint_seconds=0))


def assert_same(first, second):
    for (name, a), b in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("name", ["msc", "bce", "msc+bce"])
@pytest.mark.parametrize("stop_at", [1, 7, 12])
def test_resumes_to_the_bit(name, stop_at, encoder_folder, feed, tmp_path):
    whole = make_objective(encoder_folder, name)
    expected = run(whole, feed, tmp_path / "whole")

    run_until(stop_at, make_objective(encoder_folder, name), feed, tmp_path / "broken")
    fresh = make_objective(encoder_folder, name)
    torch.rand(stop_at)  # the random state of another process is another one
    standing = run(fresh, feed, tmp_path / "broken", resume=True)
    assert_same(fresh, whole)
    losses = [[entry["train_loss"] for entry in s.history] for s in (standing, expected)]
    assert losses[0] == losses[1]


def test_the_time_of_an_epoch_is_that_before_a_break_too(encoder_folder, feed, tmp_path):
    with tiny.after_each_update(lambda: time.sleep(0.3)):
        run_until(2, make_objective(encoder_folder), feed, tmp_path)
    standing = run(make_objective(encoder_folder), feed, tmp_path, resume=True)
    assert standing.history[0]["seconds"] > 0.6


@pytest.mark.parametrize("stop_at", [9, 13, 17])
def test_with_a_damaged_checkpoint_it_goes_on_from_the_one_before_to_the_bit(stop_at, encoder_folder, feed, tmp_path):
    whole = make_objective(encoder_folder)
    expected = run(whole, feed, tmp_path / "whole")
    folder = tmp_path / "broken"
    run_until(stop_at, make_objective(encoder_folder), feed, folder)
    notes = [load_tensors(folder / name)[1] for name in (RESUME, BEFORE)]
    assert [entry["standing"]["step"] for entry in notes] == [stop_at, stop_at - 1]
    (folder / RESUME).write_bytes((folder / RESUME).read_bytes()[:-100])
    fresh = make_objective(encoder_folder)
    with pytest.warns(UserWarning, match=f"{RESUME} is damaged .* going on from the one before it"):
        standing = run(fresh, feed, folder, resume=True)
    assert_same(fresh, whole)
    for name in ("train_loss", "last"):
        assert standing.epoch_of(name) == expected.epoch_of(name)
        one, other = (Checkpoints(place).epoch(standing.epoch_of(name)) for place in (folder, tmp_path / "whole"))
        assert all(torch.equal(one[key], other[key]) for key in other)


def test_a_finished_run_resumes_to_itself(encoder_folder, feed, tmp_path):
    first, second = make_objective(encoder_folder), make_objective(encoder_folder)
    run(first, feed, tmp_path)
    standing = run(second, feed, tmp_path, resume=True)
    assert_same(first, second)
    assert len(standing.history) == 3


def test_accumulation_of_small_batches_is_the_large_batch(encoder_folder, feed, tmp_path):
    settings = {"dropout": 0.0}
    encoder, _ = load_encoder(encoder_folder, dropout=0.0)
    objectives = []
    for batch_size, accumulation in ((16, 1), (4, 4)):
        torch.manual_seed(0)
        encoder, _ = load_encoder(encoder_folder, dropout=0.0)
        objective = Objective(encoder, LABELS, "bce", Config(**settings))
        plan = make_plan(batch_size=batch_size, accumulation=accumulation, epochs=2)
        run(objective, feed, tmp_path / str(batch_size), plan)
        objectives.append(objective)
    torch.testing.assert_close(objectives[0].head.weight, objectives[1].head.weight, rtol=1e-3, atol=1e-4)


def plain_loss(objective, feed):
    """Binary cross-entropy of all documents, the mean of them, one after the other."""
    losses = []
    for row in range(len(feed)):
        batch = make_batch(feed, np.array([row]))
        logits = objective.head(objective.encoder(batch.documents))
        losses.append(torch.nn.functional.binary_cross_entropy_with_logits(logits, batch.labels.float()))
    return torch.stack(losses).mean()


def test_checkpoints_are_written_as_often_as_asked_and_at_the_end(encoder_folder, feed, tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=clock))
    objective, steps = make_objective(encoder_folder), []
    write = Checkpoints.write

    def take_half_a_minute():
        clock.now += 30

    def note_step(self, state, notes, epochs):
        steps.append(notes["standing"]["step"])
        write(self, state, notes, epochs)

    monkeypatch.setattr(Checkpoints, "write", note_step)
    with tiny.after_each_update(take_half_a_minute):
        run(objective, feed, tmp_path, make_plan(checkpoint_seconds=100))  # 18 steps
    assert steps == [4, 8, 12, 16, 18]


def test_loss_of_an_epoch_is_the_mean_over_documents_though_the_last_batch_is_small(encoder_folder, feed, tmp_path):
    objective = make_objective(encoder_folder, "bce", dropout=0.0)
    plan = make_plan(epochs=1, batch_size=40, learning_rate=0.0, head_learning_rate=0.0)  # batches of 40 and 8
    standing = run(objective, feed, tmp_path, plan)
    assert standing.history[0]["train_loss"] == pytest.approx(plain_loss(objective.eval(), feed).item())


def test_a_last_update_of_fewer_batches_weighs_each_document_as_the_others_do(
    encoder_folder, feed, tmp_path, monkeypatch
):
    objective = make_objective(encoder_folder, "bce", dropout=0.0)
    collect, gradients = FusedAdamW.collect, []

    def note_gradient(optimizer):
        collect(optimizer)
        gradients.append(objective.head.weight.grad.clone())

    monkeypatch.setattr(FusedAdamW, "collect", note_gradient)
    plan = make_plan(epochs=1, accumulation=4, learning_rate=0.0, head_learning_rate=0.0)
    run(objective, feed, tmp_path, plan)  # six batches of 8: updates of 32 and of 16 documents
    assert len(gradients) == 6
    (expected,) = torch.autograd.grad(plain_loss(objective.eval(), feed), objective.head.weight)
    torch.testing.assert_close((32 * gradients[3] + 16 * gradients[5]) / 48, expected)


def test_ctrl_c_finishes_the_step_and_says_where_to_go_on(encoder_folder, feed, tmp_path):
    objective = make_objective(encoder_folder)
    enqueue = objective.enqueue

    def interrupt(keys, batch):
        enqueue(keys, batch)
        if len(objective.queue) >= 16:
            os.kill(os.getpid(), signal.SIGINT)

    objective.enqueue = interrupt
    with pytest.raises(TrainingInterrupted, match=rf"stopped after step 2; it can go on from {tmp_path}"):
        run(objective, feed, tmp_path)
    whole, resumed = make_objective(encoder_folder), make_objective(encoder_folder)
    run(whole, feed, tmp_path / "whole")
    run(resumed, feed, tmp_path, resume=True)
    assert_same(resumed, whole)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture
def written_slowly_beside(monkeypatch):
    """As on a GPU, on a disk so slow that a file takes as long as a few steps."""
    save = checkpoint.save_tensors

    def saving(*arguments, **options):
        time.sleep(0.05)
        save(*arguments, **options)

    monkeypatch.setattr(checkpoint, "save_tensors", saving)
    monkeypatch.setattr(loop, "Checkpoints", lambda folder, *, beside: Checkpoints(folder, beside=True))


@pytest.mark.usefixtures("written_slowly_beside")
@pytest.mark.parametrize("stop_at", [1, 8])
def test_written_beside_training_it_resumes_to_the_bit(stop_at, encoder_folder, feed, tmp_path):
    run_until(stop_at, make_objective(encoder_folder), feed, tmp_path / "broken")
    assert load_tensors(tmp_path / "broken" / RESUME)[1]["standing"]["step"] == stop_at  # complete when we are told
    whole, resumed = make_objective(encoder_folder), make_objective(encoder_folder)
    expected = run(whole, feed, tmp_path / "whole")
    torch.rand(stop_at)
    standing = run(resumed, feed, tmp_path / "broken", resume=True)
    assert_same(resumed, whole)
    one, other = (Checkpoints(tmp_path / name).epoch(standing.epoch) for name in ("broken", "whole"))
    assert all(torch.equal(one[key], other[key]) for key in other)
    assert standing.best == expected.best


@pytest.mark.usefixtures("written_slowly_beside")
@pytest.mark.parametrize("when", ["between", "while it is written"])
def test_written_beside_training_ctrl_c_waits_for_the_file(when, encoder_folder, feed, tmp_path, monkeypatch):
    objective = make_objective(encoder_folder)
    place, name = (FusedAdamW, "step") if when == "between" else (checkpoint, "save_tensors")
    original, calls = getattr(place, name), iter(range(1000))

    def interrupt(*arguments, **options):
        if next(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        original(*arguments, **options)

    monkeypatch.setattr(place, name, interrupt)
    with pytest.raises(TrainingInterrupted, match=rf"stopped after step \d+; it can go on from {tmp_path}") as stopped:
        run(objective, feed, tmp_path, make_plan(checkpoint_seconds=0))
    assert f"step {load_tensors(tmp_path / RESUME)[1]['standing']['step']};" in str(stopped.value)
    assert not list(tmp_path.glob(".*"))  # nothing unfinished


@pytest.mark.usefixtures("written_slowly_beside")
def test_written_beside_training_a_last_one_that_fails_is_no_success(encoder_folder, feed, tmp_path, monkeypatch):
    save = checkpoint.save_tensors

    def saving(path, tensors, notes, **options):
        if notes.get("standing", {}).get("epoch") == 3:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        save(path, tensors, notes, **options)

    monkeypatch.setattr(checkpoint, "save_tensors", saving)
    with pytest.raises(OSError, match=r"no checkpoint could be written \(No space left on device\); the last good one"):
        run(make_objective(encoder_folder), feed, tmp_path, make_plan(checkpoint_seconds=0))
    assert load_tensors(tmp_path / RESUME)[1]["standing"]["epoch"] == 2


def test_a_loss_that_is_no_number_stops_with_step_and_checkpoint(encoder_folder, feed, tmp_path):
    objective = make_objective(encoder_folder)
    batches = iter(range(1, 100))

    def poison(*_):
        if next(batches) == 8:  # the second of the second epoch
            with torch.no_grad():
                objective.projection.outer.weight.fill_(math.nan)

    objective.register_forward_pre_hook(poison)
    with pytest.raises(
        TrainingDivergedError, match=rf"step 8 \(epoch 2, batch 2\).*last good checkpoint is in {tmp_path}"
    ):
        run(objective, feed, tmp_path, make_plan(checkpoint_seconds=0))
    tensors, standing = load_tensors(tmp_path / RESUME)
    assert standing["standing"]["step"] == 7
    assert all(tensor.isfinite().all() for name, tensor in tensors.items() if name.startswith("model."))


@pytest.mark.parametrize("name", ["bce", "msc"])
def test_a_gradient_that_is_no_number_never_reaches_the_weights(name, encoder_folder, feed, tmp_path):
    objective = make_objective(encoder_folder, name)
    weight = (objective.head or objective.projection.outer).weight
    seen = iter(range(1, 100))
    weight.register_hook(lambda grad: grad * math.nan if next(seen) == 6 else grad)  # the last step of the first epoch
    with pytest.raises(TrainingDivergedError, match=r"step 6 \(epoch 1, batch 6\) the gradient became NaN or infinite"):
        run(objective, feed, tmp_path, make_plan(checkpoint_seconds=0))
    tensors, notes = load_tensors(tmp_path / RESUME)
    assert notes["standing"]["step"] == 5
    assert all(tensor.isfinite().all() for name, tensor in tensors.items() if name.startswith("model."))


def test_an_epoch_with_a_queue_that_fills_up_is_not_the_one_with_the_lowest_loss(encoder_folder, feed, tmp_path):
    objective = make_objective(encoder_folder, "bqueue")
    objective.queue = MemoryQueue(size=90, dim=8, num_labels=LABELS)  # full in the second epoch
    standing = run(objective, feed, tmp_path, make_plan(epochs=4, learning_rate=0.0, head_learning_rate=0.0))
    losses = [entry["train_loss"] for entry in standing.history]
    assert losses[0] < losses[2]
    assert standing.best_epoch["train_loss"] in (3, 4)


def test_patience_stops_early(encoder_folder, feed, tmp_path):
    values = iter([0.5, 0.7, 0.6, 0.6, 0.9, 0.9])
    plan = make_plan(epochs=6, patience=2, keep_highest=("score",), keep_lowest=())
    standing = run(make_objective(encoder_folder), feed, tmp_path, plan, measure=lambda: {"score": next(values)})
    assert [entry["score"] for entry in standing.history] == [0.5, 0.7, 0.6, 0.6]
    assert (standing.epoch_of("score"), standing.epoch_of("last")) == (2, 4)
    best, last = (Checkpoints(tmp_path).epoch(epoch) for epoch in (2, 4))
    assert not torch.equal(best["projection.outer.weight"], last["projection.outer.weight"])


def test_weight_decay_spares_biases_and_norms(encoder_folder):
    from abalone.training.loop import parameter_groups

    objective = make_objective(encoder_folder)
    names = {id(p): n for n, p in objective.named_parameters()}
    groups = parameter_groups(objective, make_plan(learning_rate=1e-3, head_learning_rate=1e-2))
    seen = set()
    for group in groups:
        for parameter in group["params"]:
            name = names[id(parameter)]
            seen.add(name)
            spared = "LayerNorm" in name or name.endswith("bias")
            assert group["weight_decay"] == (0 if spared else 0.01), name
            assert group["lr"] == (1e-3 if name.startswith("encoder.") else 1e-2), name
    assert seen == {name for name, p in objective.named_parameters() if not name.startswith("slow.")}


def test_learning_rate_rises_then_falls_to_nothing():
    plan = make_plan(warmup=0.1)
    rates = [learning_rate_factor(step, 100, plan) for step in range(100)]
    assert np.argmax(rates) in (9, 10)
    assert all(a < b for a, b in pairwise(rates[:10]))
    assert all(a > b for a, b in pairwise(rates[10:]))
    assert rates[-1] < 0.001
    line = [learning_rate_factor(step, 100, make_plan(warmup=0.0, schedule="linear")) for step in range(100)]
    np.testing.assert_allclose(line, 1 - np.arange(100) / 100)


@pytest.mark.parametrize(
    ("schedule", "reference"),
    [("cosine", get_cosine_schedule_with_warmup), ("linear", get_linear_schedule_with_warmup)],
)
def test_learning_rate_falls_from_the_end_of_the_warm_up_as_in_transformers(schedule, reference):
    plan = make_plan(warmup=0.1, schedule=schedule)
    rates = [learning_rate_factor(step, 100, plan) for step in range(100)]
    factor = reference(torch.optim.SGD([torch.zeros(1)]), 10, 100).lr_lambdas[0]
    np.testing.assert_allclose(rates[10:], [factor(step) for step in range(10, 100)])
    # Unlike there, the first step is not lost to a rate of 0: eleven equal rises lead from below it to the full rate.
    np.testing.assert_allclose(rates[:11], np.arange(1, 12) / 11)
