"""How long a run will take: measured without a trace, planned as it is then done."""

import functools
import logging
import warnings

import pytest
import torch

import tiny
from abalone.config import Config
from abalone.data.corpus import Corpus, Split
from abalone.encoder.fast.optimizer import FusedAdamW
from abalone.progress import Timetable
from abalone.training import estimate, pipeline
from abalone.training.estimate import Estimate, warn_if_long
from abalone.training.pipeline import fit
from abalone.training.progress import RunProgress

NAMES = tuple(f"topic {j}" for j in range(5))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return tiny.save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def corpus():
    texts, labels = tiny.corpus(120)
    return Corpus(Split(texts[:80], labels[:80]), Split(texts[80:], labels[80:]), Split(*tiny.corpus(4)), NAMES)


def settings_of(encoder: str, **changes: object) -> Config:
    small = {"epochs": 5, "batch_size": 8, "max_length": 16, "queue_size": 24, "projection_dim": 8, "pooling": "mean"}
    return Config(encoder=encoder, device="cpu", **{**small, "precision": "fp32", **changes})


class Ticking:
    """A clock that goes on by a second whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def ticking(monkeypatch):
    monkeypatch.setattr(pipeline, "timed", functools.partial(estimate.timed, clock=Ticking()))
    monkeypatch.setattr(estimate, "CPU_TOKEN_BUDGET", 64)


NAMED = {"learn_names": True}
WAYS = [
    {"objective": "msc+10*bce", "lexical": True, "neighbours": True},
    {"objective": "bce", "freeze_layers": 1},
    {"objective": "msc", "classifier": "finetune", "finetune_epochs": 2},
    {"epochs": 0, "lexical": True},
    {"objective": "msc+10*bce", "lexical": True, "neighbours": True, "folds": 2},
    {"objective": "msc", "folds": 1},
    {"epochs": 0, "lexical": True, "folds": 2},
    {"objective": "msc+10*bce", "lexical": True, "neighbours": True, **NAMED},
    {"objective": "msc", "freeze_layers": 1, **NAMED},
    {"objective": "msc+10*bce", "lexical": True, "neighbours": True, "folds": 2, **NAMED},
    {"objective": "msc", "folds": 2, **NAMED},
    {"epochs": 0, "lexical": True, "folds": 2, **NAMED},
    {"epochs": 0, "lexical": True, **NAMED},
]


@pytest.fixture
def tables(monkeypatch):
    """The timetables of runs that have ended."""
    left, leave = [], RunProgress.__exit__
    monkeypatch.setattr(
        RunProgress, "__exit__", lambda self, *error: (left.append(self._timetable), leave(self, *error))
    )
    return left


def assert_all_done(table: Timetable, rel: float = 1e-6) -> None:
    done = {name: kind.done for name, kind in table._kinds.items()}
    assert done == pytest.approx({name: kind.planned for name, kind in table._kinds.items()}, rel=rel)


@pytest.mark.filterwarnings("ignore:on validation the model", "ignore:out of fold the model")
@pytest.mark.parametrize("changes", WAYS, ids=lambda changes: ",".join(map(str, changes.values())))
def test_all_work_is_planned_and_all_that_is_planned_is_done(changes, encoder, corpus, tmp_path, tables):
    fit(settings_of(encoder, **changes), corpus, tmp_path)
    # With one fold, a fifth of the documents is planned as a fifth of the tokens.
    assert_all_done(tables[0], rel=0.01 if changes.get("folds") == 1 else 1e-6)


@pytest.mark.filterwarnings("ignore:out of fold the model")
def test_folds_that_an_earlier_attempt_has_done_are_taken_off_the_plan(encoder, corpus, tmp_path, tables):
    settings = settings_of(encoder, objective="bce", lexical=True, folds=2, epochs=1)
    fit(settings, corpus, tmp_path)
    fit(settings, corpus, tmp_path, resume=True)
    assert_all_done(tables[1])


@pytest.mark.filterwarnings("ignore:on validation the model", "ignore:out of fold the model")
@pytest.mark.parametrize(("folds", "documents"), [(0, 40), (1, 24), (2, 120)])
def test_decision_is_planned_for_as_many_documents_as_it_is_fitted_to(
    folds, documents, encoder, corpus, tmp_path, monkeypatch
):
    planned, decision = [], estimate.Costs.decision

    def noted(costs: estimate.Costs, of: Corpus, about: float, experts: int) -> float:
        planned.append(about)
        return decision(costs, of, about, experts)

    monkeypatch.setattr(estimate.Costs, "decision", noted)
    fit(settings_of(encoder, objective="bce", folds=folds, epochs=1), corpus, tmp_path)
    assert planned == pytest.approx([documents], rel=0.1)  # by their tokens


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize("frozen", [0, 1])
def test_measuring_leaves_the_run_the_same_to_the_bit(frozen, encoder, corpus, tmp_path, monkeypatch):
    settings = settings_of(encoder, objective="msc+bce", freeze_layers=frozen, epochs=10)
    told: list[Estimate] = []
    measured = fit(settings, corpus, tmp_path / "measured", on_estimate=told.append)
    assert told
    monkeypatch.setattr(estimate, "_measure", lambda *_: None)
    plain = fit(settings, corpus, tmp_path / "plain")
    for name, value in plain.network.encoder.state_dict().items():
        assert torch.equal(measured.network.encoder.state_dict()[name], value), name
    assert torch.equal(measured.network.head.weight, plain.network.head.weight)


def test_loss_that_weighs_labels_by_their_frequency_is_measured_too(encoder, corpus, tmp_path):
    told: list[Estimate] = []
    fit(settings_of(encoder, objective="db", epochs=10), corpus, tmp_path, on_estimate=told.append)
    assert told


@pytest.mark.usefixtures("ticking")
def test_the_estimate_is_documents_times_epochs_times_what_batches_take(encoder, corpus, tmp_path):
    """Every batch takes a second by the test's clock, whatever is in it."""
    told: dict[int, Estimate] = {}
    for epochs in (10, 20):
        settings = settings_of(encoder, objective="bce", epochs=epochs)
        fit(
            settings,
            corpus,
            tmp_path / str(epochs),
            on_estimate=lambda found, epochs=epochs: told.update({epochs: found}),
        )
    # Ten batches an epoch, and validation of a few.
    assert 0.66 < (told[20].seconds - told[10].seconds) / (10 * (10 + len(corpus.validation) * 11 / 64)) < 1.33
    assert (told[10].gpu, told[10].trains) == (False, True)
    assert told[10].device == "1 CPU core"


def test_little_work_is_not_measured_beforehand(encoder, corpus, tmp_path, monkeypatch):
    told: list[Estimate] = []
    monkeypatch.setattr(estimate, "embed", lambda *_, **__: pytest.fail("it was read beforehand"))
    fit(settings_of(encoder, objective="bce", epochs=1, batch_size=32), corpus, tmp_path, on_estimate=told.append)
    assert told == []


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize(("epochs", "measured"), [(1, 0), (2, 2), (3, 3), (8, 4)])
def test_at_most_a_tenth_of_the_steps_is_measured_beforehand(epochs, measured, encoder, corpus, tmp_path, monkeypatch):
    steps, step = [], FusedAdamW.step
    monkeypatch.setattr(FusedAdamW, "step", lambda self: (steps.append(1), step(self))[1])
    fit(settings_of(encoder, objective="bce", epochs=epochs), corpus, tmp_path)
    assert len(steps) - 10 * epochs == measured


@pytest.mark.usefixtures("ticking")
def test_whoever_is_told_may_stop_it_before_the_first_step(encoder, corpus, tmp_path, caplog):
    caplog.set_level(logging.INFO, "abalone.training")

    def stop(found: Estimate) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        fit(settings_of(encoder, objective="bce", epochs=20), corpus, tmp_path, on_estimate=stop)
    assert caplog.records == []


@pytest.mark.usefixtures("ticking")
def test_a_resumed_run_has_only_the_rest_before_it(encoder, corpus, tmp_path, monkeypatch):
    settings = settings_of(encoder, objective="bce", epochs=10)
    fit(settings, corpus, tmp_path)
    left = []
    begin = RunProgress.begin

    def beginning(self: RunProgress, part: str) -> None:
        left.append(sum(self._timetable._kinds[kind].left for kind in ("training", "training, validation")))
        begin(self, part)

    monkeypatch.setattr(RunProgress, "begin", beginning)
    told: list[Estimate] = []
    fit(settings, corpus, tmp_path, resume=True, on_estimate=told.append)
    assert told == []  # only the checkpoint knows what is left
    assert left[0] == pytest.approx(0)  # all steps were done before


def make_estimate(**changes: object) -> Estimate:
    values = {"seconds": 7 * 3600.0, "device": "2 CPU cores", "gpu": False, "trains": True, "fast_seconds": 360.0}
    return Estimate(**{**values, **changes})


@pytest.mark.parametrize(
    "changes", [{"seconds": 29 * 60.0}, {"gpu": True}, {"trains": False}, {"fast_seconds": 6 * 3600.0}]
)
def test_nothing_is_said_where_there_is_nothing_to_choose(changes):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_long(make_estimate(**changes))


def test_hours_on_a_cpu_are_told_beforehand_with_what_is_faster(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    expected = "No GPU found: training takes about 7 h on 2 CPU cores; recipe='fast' takes about 6 min"
    with pytest.warns(UserWarning, match=expected):
        warn_if_long(make_estimate())


def test_half_an_hour_on_a_cpu_is_told_beforehand():
    with pytest.warns(UserWarning, match="training takes about 31 min"):
        warn_if_long(make_estimate(seconds=31 * 60.0))


@pytest.mark.parametrize("native", [True, False])
def test_emulated_bf16_is_warned_of(native, encoder, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "cpu_has_bf16", lambda: native)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        fit(settings_of(encoder, objective="bce", epochs=1, precision="bf16"), corpus, tmp_path)
    assert [str(each.message).startswith("this processor has no bf16") for each in given] == ([] if native else [True])
