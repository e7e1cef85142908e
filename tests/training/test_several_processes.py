"""Two processes with half of each batch are one process with the whole: losses, weights, queue, and after a break."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny
from abalone.config import Config
from abalone.data.tokens import tokenize
from abalone.encoder.feed import TokenFeed, embed
from abalone.encoder.load import load_encoder
from abalone.training.checkpoint import load_tensors, save_tensors
from abalone.training.interruption import TrainingInterrupted
from abalone.training.loop import Plan, train
from abalone.training.objectives import Objective
from abalone.training.runtime import Runtime
from together import run_together

pytestmark = pytest.mark.slow

LABELS = 5
CPU = torch.device("cpu")

# Name: objective, documents, what differs from the plan, and from the feed.
CASES = {
    "msc": ("msc", 160, {"epochs": 10}, {}),
    "joint, with a short last batch": ("msc+bce", 150, {"epochs": 10}, {}),
    "a batch that does not divide, and a last one of one document": ("bce", 94, {"batch_size": 31}, {}),
    "documents in pieces": ("bqproto", 96, {}, {"max_length": 8, "max_chunks": 4}),
    "batches added up": ("mulcon+bce", 96, {"batch_size": 16, "accumulation": 2}, {}),
    "a batch of one document": ("msc", 10, {"batch_size": 1}, {}),
    "few steps": ("msc", 90, {}, {}),  # of three an epoch
}
BROKEN_AT = 5  # of 9 steps, in the middle of an epoch


def make_feed(encoder_folder, documents, max_length=62, max_chunks=1):
    """Documents of very different lengths, so that shares are padded differently from the whole."""
    texts, labels = tiny.corpus(documents, labels=LABELS)
    texts = [" ".join([text] * (1 + 3 * (number % 7 == 0))) for number, text in enumerate(texts)]
    tokens = tokenize(texts, load_encoder(encoder_folder)[1], cache=None)
    return TokenFeed(tokens, labels, max_length, max_chunks)


class BrokenOffError(Exception):
    """The test's own end of a run."""


def run(case, encoder_folder, folder, *, dropout=0.0, break_off=False, interrupt=False, resume=False):
    """Train in however many processes there are; leaves the state and the loss of every step in `folder`."""
    name, documents, plan, feed = CASES[case]
    runtime = Runtime.start("cpu", "fp32")
    ranks = runtime.ranks
    torch.manual_seed(0)
    encoder, _ = load_encoder(encoder_folder, "mean", dropout)
    config = Config(queue_size=48, projection_dim=8)
    objective = Objective(encoder, LABELS, name, config, ranks).double()
    losses: list[float] = []
    objective.register_forward_hook(lambda module, given, loss: losses.append(loss.item()))
    steps = iter(range(1, 1000))

    def watched():
        step = next(steps)
        if break_off and step > BROKEN_AT:
            raise BrokenOffError
        if interrupt and step == BROKEN_AT and ranks.index == 1:  # which the other does not hear of
            os.kill(os.getpid(), signal.SIGINT)

    values = {"epochs": 3, "batch_size": 32, "learning_rate": 1e-3, "head_learning_rate": 3e-3, "schedule": "cosine"}
    changes = {**values, "checkpoint_seconds": 0 if break_off else 1e9, **plan}
    documents = make_feed(encoder_folder, documents, **feed)
    with tiny.after_each_update(watched):
        train(objective, documents, Plan(**changes), runtime, folder, measure=dict, resume=resume)
    save_tensors(folder / f"end-{ranks.index}.safetensors", objective.state_dict(), {"losses": losses})
    return objective


def broken_off(*arguments, **options):
    with pytest.raises(BrokenOffError):
        run(*arguments, break_off=True, **options)


def two_processes(index: int, encoder_folder: str, folder: Path) -> None:
    """All that two processes do for the tests below, since starting them costs more than this."""
    for case in CASES:
        objective = run(case, encoder_folder, folder / case)
    feed = make_feed(encoder_folder, 41)
    np.save(folder / f"embeddings-{index}.npy", embed(objective.encoder.float(), feed, CPU, ranks=objective.ranks))
    few = "few steps", encoder_folder
    run(*few, folder / "one, then two", resume=True)
    broken_off(*few, folder / "two, then one")
    for name in ("dropout", "dropout, broken"):
        if "broken" in name:
            broken_off(*few, folder / name, dropout=0.2)
        run(*few, folder / name, dropout=0.2, resume=True)
    with pytest.raises(TrainingInterrupted, match=f"stopped after step {BROKEN_AT}; it can go on from"):
        run(*few, folder / "interrupted", interrupt=True)


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    return tiny.save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def together(encoder_folder, tmp_path_factory):
    """The folder in which two processes have left what they came to."""
    folder = tmp_path_factory.mktemp("together")
    broken_off("few steps", encoder_folder, folder / "one, then two")
    run_together(2, two_processes, encoder_folder, folder)
    return folder


@pytest.fixture(scope="module")
def alone(encoder_folder, tmp_path_factory):
    """The state at the end of a run in one process, and the loss of every step."""
    made = {}

    def result(case):
        if case not in made:
            folder = tmp_path_factory.mktemp("alone")
            run(case, encoder_folder, folder)
            made[case] = load_tensors(folder / "end-0.safetensors")
        return made[case]

    return result


def end(folder, index=0):
    return load_tensors(folder / f"end-{index}.safetensors")


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("case", CASES)
def test_two_processes_are_one(case, together, alone):
    expected, notes = alone(case)
    for index in (0, 1):
        found, found_notes = end(together / case, index)
        np.testing.assert_allclose(found_notes["losses"], notes["losses"], rtol=0, atol=1e-6)
        assert_close(found, expected)  # the queue among it: the same rows in the same order
    assert len(notes["losses"]) == 50 or case not in ("msc", "joint, with a short last batch")


@pytest.mark.parametrize("case", CASES)
def test_both_have_the_same_to_the_bit(case, together):
    (one, notes), (other, other_notes) = (end(together / case, index) for index in (0, 1))
    assert notes == other_notes
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def test_going_on_with_more_or_fewer_processes(together, alone, encoder_folder):
    expected, notes = alone("few steps")
    found, found_notes = end(together / "one, then two", 1)
    assert_close(found, expected)
    assert 0 < len(found_notes["losses"]) < len(notes["losses"])
    run("few steps", encoder_folder, together / "two, then one", resume=True)
    found, found_notes = end(together / "two, then one")
    assert_close(found, expected)
    assert 0 < len(found_notes["losses"]) < len(notes["losses"])


def test_dropout_is_drawn_again_after_a_break_as_it_would_have_been(together):
    whole, notes = end(together / "dropout")
    resumed, resumed_notes = end(together / "dropout, broken")
    assert resumed_notes["losses"] == notes["losses"][-len(resumed_notes["losses"]) :]
    assert len(resumed_notes["losses"]) < len(notes["losses"])
    for name, value in whole.items():
        assert torch.equal(resumed[name], value), name
    assert notes["losses"] != end(together / "few steps")[1]["losses"]


def test_one_is_told_to_stop_and_both_do(together, alone, encoder_folder):
    run("few steps", encoder_folder, together / "interrupted", resume=True)
    found, notes = end(together / "interrupted")
    assert_close(found, alone("few steps")[0])
    assert len(notes["losses"]) == 9 - BROKEN_AT


def test_each_encodes_its_share_and_has_all(together, encoder_folder):
    encoder, _ = load_encoder(encoder_folder, "mean")
    state = end(together / "few steps")[0]
    encoder.load_state_dict({k.removeprefix("encoder."): v for k, v in state.items() if k.startswith("encoder.")})
    expected = embed(encoder, make_feed(encoder_folder, 41), CPU)
    for index in (0, 1):
        np.testing.assert_allclose(np.load(together / f"embeddings-{index}.npy"), expected, atol=1e-6)
