"""Callbacks: which numbers they are told, and that a failing one costs no more than the work since a checkpoint."""

import numpy as np
import pytest
import torch

import tiny
from abalone import AbaloneClassifier
from abalone.distributed import Ranks
from abalone.training.callbacks import Callback, Callbacks
from abalone.training.runtime import Runtime

pytestmark = [
    pytest.mark.usefixtures("one_split"),
    pytest.mark.filterwarnings("ignore:.*(does not beat tf-idf|adds nothing to words) alone"),
]
TRAIN, BATCH, EPOCHS = 64, 16, 3
STEPS = TRAIN // BATCH  # an epoch


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return tiny.save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def data():
    return tiny.corpus(TRAIN), tiny.corpus(30, seed=1)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))


def classifier(encoder, **settings):
    small = {
        "recipe": "paper", "objective": "bce", "pooling": "mean", "max_length": 16, "epochs": EPOCHS, "folds": 0,
        "queue_size": 24, "projection_dim": 8, "batch_size": BATCH, "learning_rate": 2e-3, "warmup": 0.0,
        "schedule": "linear", "device": "cpu", "precision": "fp32",
    }  # fmt: skip
    return AbaloneClassifier(encoder=encoder, **{**small, **settings})


class Recorded(Callback):
    """Everything that was told, in order."""

    def __init__(self):
        self.told = []

    def begin(self, run):
        self.told.append(("begin", run))

    def step(self, now):
        self.told.append(("step", now))

    def epoch(self, now):
        self.told.append(("epoch", now))

    def end(self, run):
        self.told.append(("end", run))

    def of(self, kind):
        return [told for name, told in self.told if name == kind]


class FailingError(Exception):
    pass


class Failing(Callback):
    """Fails at one of its calls."""

    def __init__(self, kind, at=1):
        self.left = at
        setattr(self, kind, self.fail)

    def fail(self, _):
        self.left -= 1
        if self.left == 0:
            raise FailingError


def test_callbacks_are_told_the_numbers_in_order(encoder, data, tmp_path):
    recorded = Recorded()
    model = classifier(encoder).fit(*data[0], data[1], callbacks=[recorded], run_folder=tmp_path / "run")
    kinds = [kind for kind, _ in recorded.told]
    assert kinds == ["begin", *(["step"] * STEPS + ["epoch"]) * EPOCHS, "end"]
    (begun,), (ended,) = recorded.of("begin"), recorded.of("end")
    assert (begun.settings["epochs"], begun.folder, begun.resumed) == (EPOCHS, tmp_path / "run", False)
    assert ended.error is None
    assert ended.scores["validation/macro_f1"] == model.predictor_.story["scores"]["validation"]["macro_f1"]
    steps, epochs = recorded.of("step"), recorded.of("epoch")
    assert [now.step for now in steps] == list(range(1, EPOCHS * STEPS + 1))
    assert [now.epoch for now in steps] == [1 + step // STEPS for step in range(EPOCHS * STEPS)]
    np.testing.assert_allclose([now.learning_rate for now in steps], 2e-3 * (1 - np.arange(12) / 12))
    assert {(now.stage, now.fold) for now in steps + epochs} == {("training", None)}
    assert [now.epoch for now in epochs] == [1, 2, 3]
    assert [now.step for now in epochs] == [4, 8, 12]
    history = model.predictor_.story["history"]["training"]
    assert [{"epoch": now.epoch, **now.measures} for now in epochs] == history
    losses = np.reshape([now.loss for now in steps], (EPOCHS, STEPS)).mean(axis=1)
    np.testing.assert_allclose(losses, [now.loss for now in epochs], rtol=1e-6)
    np.testing.assert_allclose(losses, [entry["train_loss"] for entry in history], rtol=1e-6)


def test_accumulated_batches_are_one_step(encoder, data):
    recorded = Recorded()
    classifier(encoder, accumulation=3, epochs=2).fit(*data[0], data[1], callbacks=[recorded])
    assert [now.step for now in recorded.of("step")] == [1, 2, 3, 4]  # of three batches, of one, …
    epochs = recorded.of("epoch")
    weighted = np.average(np.reshape([now.loss for now in recorded.of("step")], (2, 2)), axis=1, weights=[3, 1])
    np.testing.assert_allclose(weighted, [now.loss for now in epochs], rtol=1e-6)


def test_stages_and_folds_are_told_apart(encoder, data):
    recorded = Recorded()
    settings = {"objective": "msc", "classifier": "finetune", "finetune_epochs": 2, "folds": 2, "epochs": 1}
    classifier(encoder, **settings).fit(*data[0], data[1], callbacks=[recorded])
    told = [(now.fold, now.stage, now.epoch) for now in recorded.of("epoch")]
    of_one = [("pretraining", 1), ("finetuning", 1), ("finetuning", 2)]
    assert told == [(fold, *rest) for fold in (1, 2, None) for rest in of_one]
    assert [kind for kind, _ in recorded.told].count("begin") == 1
    assert "out of fold/macro_f1" in recorded.of("end")[0].scores


def test_model_is_the_same_with_and_without_callbacks(encoder, data):
    watched = classifier(encoder).fit(*data[0], data[1], callbacks=[Recorded()])
    alone = classifier(encoder).fit(*data[0], data[1])
    np.testing.assert_array_equal(watched.predict_proba(data[1][0]), alone.predict_proba(data[1][0]))


@pytest.mark.filterwarnings("ignore:there is no run to resume")
@pytest.mark.parametrize(("kind", "at"), [("begin", 1), ("step", 6), ("epoch", 2), ("end", 1)])
@pytest.mark.parametrize("seconds", [0.0, 300.0])
def test_training_goes_on_after_a_callback_that_failed(kind, at, seconds, encoder, data, tmp_path):
    model, recorded = classifier(encoder, checkpoint_seconds=seconds), Recorded()
    with pytest.raises(FailingError):
        model.fit(*data[0], data[1], callbacks=[recorded, Failing(kind, at)], run_folder=tmp_path / "run")
    (ended,) = recorded.of("end")
    assert isinstance(ended.error, FailingError) or kind == "end"  # then the first one has heard of no error
    last = recorded.of("step")[-1].step if recorded.of("step") else 0
    resumed = Recorded()
    model.fit(*data[0], data[1], callbacks=[resumed], run_folder=tmp_path / "run", resume=True)
    steps = [now.step for now in resumed.of("step")]
    assert resumed.of("begin")[0].resumed
    if seconds == 0 and kind == "step":  # the step that was told last had not been saved
        assert steps[0] == last
    if kind != "end":
        assert steps == list(range(steps[0], EPOCHS * STEPS + 1))  # the axis goes on
    whole = classifier(encoder).fit(*data[0], data[1])
    np.testing.assert_array_equal(model.predict_proba(data[1][0]), whole.predict_proba(data[1][0]))


def test_callbacks_of_a_model_of_words_are_told_its_scores(data):
    recorded = Recorded()
    AbaloneClassifier("words").fit(*data[0], data[1], callbacks=[recorded])
    assert [kind for kind, _ in recorded.told] == ["begin", "end"]
    assert recorded.of("end")[0].scores


def test_something_else_is_refused_before_training(encoder, data):
    with pytest.raises(TypeError, match=r"callbacks must be instances of abalone.training.callbacks.Callback, got"):
        classifier(encoder).fit(*data[0], data[1], callbacks=[print])


def test_a_callback_that_fails_at_the_end_hides_no_other_error(tmp_path):
    with pytest.raises(ZeroDivisionError), Callbacks([Failing("end"), Recorded()]).around(None):
        raise ZeroDivisionError


def test_other_processes_call_nothing(data, monkeypatch):
    class OtherRank(Ranks):
        main = False

    recorded, other = Recorded(), Runtime(torch.device("cpu"), ranks=OtherRank())
    monkeypatch.setattr(Runtime, "start", lambda *_: other)
    AbaloneClassifier("words").fit(*data[0], data[1], callbacks=[recorded])
    assert recorded.told == []
