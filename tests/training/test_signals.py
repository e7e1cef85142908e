"""Told to stop at every kind of moment of a fit: it says how to go on, and goes on to the same model."""

import functools
import os
import signal
from types import SimpleNamespace

import pytest
import torch

import tiny
from abalone import AbaloneClassifier
from abalone.encoder.fast.optimizer import FusedAdamW
from abalone.training import checkpoint, loop, pipeline, stages
from abalone.training.checkpoint import check_tensors
from abalone.training.interruption import TrainingInterrupted, TrainingTerminated
from abalone.training.stages import ValidationLoss
from striking import unfinished

pytestmark = [pytest.mark.skipif(os.name != "posix", reason="signals"), pytest.mark.usefixtures("one_split")]

TEXTS, LABELS = tiny.corpus(60)
SETTINGS = {
    "objective": "msc",
    "lexical": False,
    "max_length": 16,
    "queue_size": 16,
    "projection_dim": 8,
    "epochs": 2,
    "learning_rate": 1e-4,  # with it the best epochs are different ones, and there are probes of both
    "finetune_epochs": 1,
    "classifier": "finetune",
    "folds": 0,
    "batch_size": 16,
    "precision": "fp32",
    "device": "cpu",
}
KINDS = {signal.SIGINT: TrainingInterrupted, signal.SIGTERM: TrainingTerminated}


@pytest.fixture(autouse=True)
def ordinary_handlers(monkeypatch, tmp_path):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    ordinary = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in ordinary.items()}
    yield
    assert {number: signal.getsignal(number) for number in ordinary} == ordinary
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return tiny.save_encoder(tmp_path_factory.mktemp("encoder"), layers=1)


def fit(encoder, folder, **options):
    model = AbaloneClassifier(encoder=encoder, **SETTINGS)
    return model.fit(TEXTS[:40], LABELS[:40], (TEXTS[40:], LABELS[40:]), run_folder=folder, **options)


@pytest.fixture(scope="module")
def uninterrupted(encoder, tmp_path_factory):
    return functools.cache(lambda: fit(encoder, tmp_path_factory.mktemp("whole") / "run"))


def telling(monkeypatch, place, name, number, *, after=0):
    """Let `place.name` be struck by a signal when it was called so many times: twice in a moment, as `timeout` does."""
    original, calls = getattr(place, name), iter(range(100_000))

    def struck(*arguments, **options):
        if next(calls) == after:
            os.kill(os.getpid(), number)
        return original(*arguments, **options)

    again = SimpleNamespace(sleep=lambda seconds: os.kill(os.getpid(), number))
    monkeypatch.setattr("abalone.training.interruption.time", again)  # while it waits for a second half of the request
    monkeypatch.setattr(place, name, struck)


def assert_goes_on(encoder, folder, uninterrupted):
    assert unfinished(folder) == []
    torch.rand(3)  # another process has another random state
    resumed = fit(encoder, folder, resume=True)
    assert (resumed.predict_proba(TEXTS) == uninterrupted().predict_proba(TEXTS)).all()


@pytest.mark.parametrize(
    ("place", "name", "after", "told"),
    [
        (FusedAdamW, "step", 4, "Pre-training stopped after step 5; it can go on from {}/pretraining"),
        (ValidationLoss, "__call__", 0, "Pre-training stopped after epoch 1; it can go on from {}/pretraining"),
        (loop._Training, "save_if_due", 5, "Pre-training stopped after step 5; it can go on from {}/pretraining"),
        (checkpoint, "save_tensors", 0, "Pre-training stopped after epoch 2; it can go on from {}/pretraining"),
        (stages, "linear_evaluation", 1, "training stopped; it can go on from {}"),
        (pipeline, "decide", 0, "training stopped; it can go on from {}"),
        (pipeline, "tokenize", 0, "training stopped; nothing was saved yet"),
        (loop.Checkpoints, "__init__", 0, "training stopped; nothing was saved yet"),
    ],
    ids=["step", "measuring", "between steps", "saving", "probes", "decision", "tokenizing", "starting a stage"],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_at_any_moment(place, name, after, told, number, encoder, uninterrupted, tmp_path, monkeypatch, capfd):
    folder = tmp_path / "run"
    uninterrupted()
    capfd.readouterr()
    with monkeypatch.context() as patch:
        telling(patch, place, name, number, after=after)
        with pytest.raises(KINDS[number]) as stop:
            fit(encoder, folder)
    assert str(stop.value) == told.format(folder)
    how = "Call fit again with the same data and settings, and resume=True."
    assert stop.value.__notes__ == [how]
    printed = capfd.readouterr().err
    if number == signal.SIGTERM:  # of which Python prints nothing
        assert printed.endswith(f"{stop.value}\n  {how}\n")
    elif "nothing" not in told:
        assert_goes_on(encoder, folder, uninterrupted)


def test_told_twice_it_stops_in_the_middle_of_writing_and_harms_nothing(encoder, uninterrupted, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setitem(SETTINGS, "checkpoint_seconds", 0)
        fsync, calls = os.fsync, iter(range(1000))

        def insist(descriptor: int) -> None:
            if next(calls) == 13:  # of the seventh file or so
                for _ in range(2):  # each is seen before the next is sent
                    os.kill(os.getpid(), signal.SIGINT)
            fsync(descriptor)

        patch.setattr(os, "fsync", insist)
        with pytest.raises(TrainingInterrupted, match=f"training stopped; it can go on from {folder}\n"):
            fit(encoder, folder)
    for path in folder.rglob("*.safetensors"):
        check_tensors(path)
    assert_goes_on(encoder, folder, uninterrupted)


def test_a_stage_that_is_finished_is_not_done_again_after_a_request(encoder, uninterrupted, tmp_path, monkeypatch):
    """Asked after the last step of pre-training, it saves the end of the stage, and goes on with the next one."""
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        telling(patch, FusedAdamW, "step", signal.SIGINT, after=5)  # the last of six
        with pytest.raises(TrainingInterrupted, match="stopped after step 6"):
            fit(encoder, folder)
    uninterrupted()  # before steps are counted: no other test may have asked for it yet
    steps = []
    with monkeypatch.context() as patch:
        step = FusedAdamW.step
        patch.setattr(FusedAdamW, "step", lambda self: (steps.append(1), step(self)))
        assert_goes_on(encoder, folder, uninterrupted)
    assert len(steps) == 3
