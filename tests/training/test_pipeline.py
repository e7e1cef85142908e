"""The main job as a whole: which stages run, and that a break in any of them costs nothing but time."""

import functools
import random
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from scipy.sparse import csr_array

import tiny
from abalone.config import Config
from abalone.data.corpus import Corpus, Split
from abalone.encoder.fast.optimizer import FusedAdamW
from abalone.encoder.load import load_encoder
from abalone.evaluation import mixing
from abalone.evaluation.decision import Mixture
from abalone.evaluation.metrics import per_label
from abalone.inference.predictor import Predictor
from abalone.training import pipeline, stages
from abalone.training.open_settings import rate_for_width
from abalone.training.pipeline import fit

pytestmark = pytest.mark.usefixtures("one_split")

NAMES = tuple(f"topic {j}" for j in range(5))
EPOCHS, TUNING = 3, 2  # of five steps each


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return tiny.save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def corpus():
    return make_corpus()


def make_corpus(seed: int = 0, test_seed: int = 0) -> Corpus:
    texts, labels = tiny.corpus(120, seed=seed)
    train, validation = Split(texts[:80], labels[:80]), Split(texts[80:], labels[80:])
    return Corpus(train, validation, Split(*tiny.corpus(20, seed=test_seed)), NAMES)


def make_config(encoder: str, **changes: object) -> Config:
    small = {
        "encoder": encoder,
        "pooling": "mean",
        "max_length": 16,
        "queue_size": 24,
        "projection_dim": 8,
        "epochs": EPOCHS,
        "batch_size": 16,
        "learning_rate": 2e-3,
        "head_learning_rate": 2e-3,
        "finetune_epochs": TUNING,
        "finetune_learning_rate": 2e-3,
        "device": "cpu",
        "precision": "fp32",
    }
    return Config(**{**small, **changes})


def assert_same(one, other) -> None:
    a, b = one.network, other.network
    for (name, left), right in zip(a.encoder.state_dict().items(), b.encoder.state_dict().values(), strict=True):
        assert torch.equal(left, right), name
    assert torch.equal(a.head.weight, b.head.weight)
    assert torch.equal(a.head.bias, b.head.bias)
    assert one.decision.to_dict() == other.decision.to_dict()
    assert one.story["scores"] == other.story["scores"]


def test_it_is_told_where_tfidf_alone_is_ahead(encoder, corpus, tmp_path, monkeypatch):
    settings = make_config(encoder, epochs=0, lexical=True)
    fit(settings, corpus, tmp_path / "mixed")  # words decide the labels, and with them it is no worse
    monkeypatch.setattr(mixing, "choose_weights", lambda *_: Mixture({"lexical": 0.0}))
    with pytest.warns(UserWarning, match=r"on validation the model .* does not beat tf-idf alone .* the recipe words"):
        fit(settings, corpus, tmp_path / "unmixed")


def test_the_story_has_the_f1_of_each_label_and_how_tfidf_decides_alone(encoder, corpus, tmp_path):
    model = fit(make_config(encoder, epochs=0, lexical=True), corpus, tmp_path / "mixed")
    truth, texts = corpus.validation.labels, corpus.validation.texts
    found = per_label(truth, model.decision.labels(model.probabilities(texts)), corpus.label_names)
    assert model.story["label_f1"] == [round(row.f1, 4) if row.support else None for row in found]
    alone = model.tfidf_alone(truth, texts)
    assert alone == pytest.approx(model.story["scores"]["validation, tf-idf alone"])
    model.decision = replace(model.decision, mixture=Mixture({"lexical": 1.0}))
    assert model.tfidf_alone(truth, texts) is None  # it would be the same twice


def test_a_learning_rate_that_is_left_open_goes_by_the_encoders_width(encoder, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "rate_for_width", {32: 3e-3}.__getitem__)
    open_, given = (
        fit(make_config(encoder, objective="bce", epochs=1, learning_rate=rate), corpus, tmp_path / str(rate))
        for rate in (None, 3e-3)
    )
    assert open_.config.learning_rate == 3e-3
    assert_same(open_, given)


def test_wide_encoders_get_a_smaller_rate():
    # MiniLM and narrower; base size, as in the paper; large
    assert [rate_for_width(width) for width in (32, 384, 768, 1024)] == [1e-4, 1e-4, 5e-5, pytest.approx(3.75e-5)]


@pytest.mark.parametrize(
    ("changes", "stages"),
    [
        ({}, {"pretraining": EPOCHS}),
        ({"classifier": "finetune"}, {"pretraining": EPOCHS, "finetuning": TUNING}),
        ({"objective": "bce"}, {"training": EPOCHS}),
        ({"objective": "msc+bce", "classifier": "finetune"}, {"training": EPOCHS}),  # it has its layer already
        ({"epochs": 0}, {}),
        ({"epochs": 0, "freeze_layers": 1}, {}),
    ],
    ids=str,
)
def test_the_stages_that_are_asked_for(changes, stages, encoder, corpus, tmp_path):
    predictor = fit(make_config(encoder, **changes), corpus, tmp_path)
    history = predictor.story["history"]
    assert {stage: len(epochs) for stage, epochs in history.items()} == stages
    measures = {"pretraining": {"validation_loss"}, "training": {"micro_f1", "macro_f1"}}
    measures["finetuning"] = measures["training"]
    for stage, epochs in history.items():
        assert [entry["epoch"] for entry in epochs] == list(range(1, stages[stage] + 1))
        assert all(entry.keys() == {"epoch", "train_loss", "seconds"} | measures[stage] for entry in epochs)
    assert predictor.label_names == NAMES
    assert np.isfinite(predictor.probabilities(corpus.test.texts)).all()


class BrokenError(Exception):
    """What a power cut looks like from inside."""


def breaking(monkeypatch, place, name: str, *, after: int = 0) -> None:
    """Let `place.name` break after so many calls."""
    original, calls = getattr(place, name), iter(range(1000))

    def broken(*arguments, **settings):
        if next(calls) >= after:
            raise BrokenError
        return original(*arguments, **settings)

    monkeypatch.setattr(place, name, broken)


@pytest.fixture(scope="module")
def uninterrupted(encoder, corpus, tmp_path_factory):
    """Whole runs by the number of frozen layers, made when they are asked for."""

    @functools.cache
    def made(frozen: int) -> Predictor:
        return fit(tuned(encoder, frozen), corpus, tmp_path_factory.mktemp("whole"))

    return made


def tuned(encoder: str, frozen: int) -> Config:
    return make_config(encoder, classifier="finetune", freeze_layers=frozen, checkpoint_seconds=0)


@pytest.mark.parametrize(
    ("frozen", "place", "name", "after", "steps_left"),
    [
        (0, FusedAdamW, "step", 1, 24),  # in the first epoch
        (0, stages.ValidationLoss, "__call__", 1, 15),  # at the end of the second
        (0, stages, "linear_evaluation", 0, 10),  # pre-training is done, no probe is
        (0, stages, "supervise", 0, 10),  # between the stages
        (0, FusedAdamW, "step", 18, 7),  # in the first epoch of fine-tuning
        (0, stages.LinearHead, "of_layer", 1, 0),  # at the end of its second
        (0, pipeline, "decide", 0, 0),  # when everything is trained
        (1, FusedAdamW, "step", 12, 13),
        (1, stages, "supervise", 0, 10),
    ],
)
def test_a_break_anywhere_costs_nothing_but_time(
    frozen, place, name, after, steps_left, encoder, corpus, uninterrupted, tmp_path, monkeypatch
):
    expected = uninterrupted(frozen)
    with monkeypatch.context() as patch:
        breaking(patch, place, name, after=after)
        with pytest.raises(BrokenError):
            fit(tuned(encoder, frozen), corpus, tmp_path)
    torch.rand(3)  # another process has another random state
    steps, step = [], FusedAdamW.step

    def counted(self):
        steps.append(1)
        step(self)

    monkeypatch.setattr(FusedAdamW, "step", counted)
    assert_same(fit(tuned(encoder, frozen), corpus, tmp_path, resume=True), expected)
    assert len(steps) == steps_left


def test_early_stopping_is_resumed_as_it_was(encoder, corpus, tmp_path, monkeypatch):
    values = [3.0, 2.0, 2.5, 2.5, 1.0, 0.5]

    def run(folder, **options):
        losses = iter(values[options.pop("skip", 0) :])
        monkeypatch.setattr(stages.ValidationLoss, "__call__", lambda _: next(losses))
        return fit(make_config(encoder, epochs=6, patience=2), corpus, folder, **options)

    expected = run(tmp_path / "whole")
    assert len(expected.story["history"]["pretraining"]) == 4
    with monkeypatch.context() as patch:
        breaking(patch, stages, "linear_evaluation")
        with pytest.raises(BrokenError):
            run(tmp_path / "broken")
    assert_same(run(tmp_path / "broken", skip=4, resume=True), expected)


def weights(encoder: torch.nn.Module) -> torch.Tensor:
    return torch.cat([value.flatten() for value in encoder.state_dict().values()])


def test_the_checkpoint_with_the_best_probes_is_kept(encoder, corpus, tmp_path, monkeypatch):
    """Last, lowest training loss or lowest validation loss: whichever linear evaluation likes best."""
    losses, tried = iter([2.0, 1.0, 3.0]), []
    monkeypatch.setattr(stages.ValidationLoss, "__call__", lambda _: next(losses))
    original = stages.linear_evaluation

    def liking_the_second(encoder, run, validation):
        head, _ = original(encoder, run, validation)
        tried.append(weights(encoder))
        return head, 0.9 if len(tried) == 2 else 0.1

    monkeypatch.setattr(stages, "linear_evaluation", liking_the_second)
    predictor = fit(make_config(encoder), corpus, tmp_path)
    assert len(tried) >= 2
    assert torch.equal(weights(predictor.network.encoder), tried[1])
    assert not torch.equal(tried[0], tried[1])


def test_the_test_split_has_no_say(encoder, tmp_path):
    config = make_config(encoder, epochs=1)
    predictors = [fit(config, make_corpus(test_seed=seed), tmp_path / str(seed)) for seed in (1, 2)]
    assert_same(*predictors)


def test_going_on_takes_the_same_data_and_settings(encoder, corpus, tmp_path):
    config = make_config(encoder, epochs=1)
    fit(config, corpus, tmp_path)
    with pytest.raises(ValueError, match=r"cannot resume the run in .*: epochs was 1 and is 2"):
        fit(config.replace(epochs=2), corpus, tmp_path, resume=True)
    with pytest.raises(ValueError, match=r"cannot resume the run in .*: the documents or labels are others"):
        fit(config, make_corpus(seed=1), tmp_path, resume=True)
    fit(config.replace(checkpoint_seconds=10), corpus, tmp_path, resume=True)
    with pytest.warns(UserWarning, match="there is no run to resume in"):
        fit(config, corpus, tmp_path / "elsewhere", resume=True)


def test_without_resume_nothing_old_is_taken(encoder, corpus, tmp_path):
    config = make_config(encoder, epochs=1)
    expected = fit(config, corpus, tmp_path / "fresh")
    fit(config.replace(seed=5), corpus, tmp_path / "used")
    assert_same(fit(config, corpus, tmp_path / "used"), expected)


def split_of(labels: list[list[int]]) -> Split:
    return Split([f"w{number}" for number in range(len(labels))], csr_array(np.array(labels, np.int32).reshape(-1, 2)))


@pytest.mark.parametrize(
    ("changes", "train", "validation", "message"),
    [
        ({"objective": "mcs"}, [[1, 1]], [[1, 1]], "no loss is called 'mcs'; did you mean 'msc'"),
        ({"objective": "mulcon"}, [[1, 1]], [[1, 1]], r"'mulcon' alone collapses; add a pointwise loss: 'mulcon\+bce'"),
        ({"objective": "mulcon+bce", "max_chunks": 2}, [[1, 1]], [[1, 1]], "cannot read documents in chunks"),
        ({"classifier": "finetune", "finetune_objective": "msc"}, [[1, 1]], [[1, 1]], "must be a pointwise loss"),
        ({"freeze_layers": 1, "max_chunks": 2}, [[1, 1]], [[1, 1]], "freeze_layers and max_chunks cannot be combined"),
        ({"freeze_layers": 2}, [[1, 1]], [[1, 1]], "freeze_layers must leave at least one layer to train, got 2 of 2"),
        ({}, [], [[1, 1]], "there are no training documents"),
        ({}, [[1, 1]], [], "there are no validation documents"),
        ({}, [[0, 0]], [[1, 1]], "no training document carries a label"),
        ({}, [[1, 1]], [[0, 0]], "no validation document carries a label"),
        ({"device": "gpu"}, [[1, 1]], [[1, 1]], "no device is called 'gpu'"),
    ],
)
def test_what_cannot_end_well_is_refused_before_it_begins(
    changes, train, validation, message, encoder, tmp_path, monkeypatch
):
    breaking(monkeypatch, pipeline, "tokenize")
    corpus = Corpus(split_of(train), split_of(validation), split_of([]), ("a", "b"))
    with pytest.raises(ValueError, match=message):
        fit(make_config(encoder, **changes), corpus, tmp_path / "run")
    assert not (tmp_path / "run" / "pretraining").exists()


def test_the_encoder_that_was_loaded_is_where_training_starts(encoder, corpus, tmp_path):
    predictor = fit(make_config(encoder, epochs=0), corpus, tmp_path)
    for name, value in load_encoder(encoder)[0].state_dict().items():
        assert torch.equal(predictor.network.encoder.state_dict()[name], value), name


@pytest.mark.filterwarnings("ignore:.*(does not beat tf-idf|adds nothing to words) alone")
@pytest.mark.filterwarnings("ignore:this processor has no bf16")
@pytest.mark.parametrize("broken", [False, True])
def test_the_program_around_it_is_left_as_it_was(broken, encoder, corpus, tmp_path, monkeypatch):
    of_the_program = Accelerator(cpu=True, mixed_precision="no", gradient_accumulation_steps=4)

    def state():
        kinds = (PartialState, AcceleratorState, GradientState)
        return random.getstate(), repr(np.random.get_state()), [dict(kind._shared_state) for kind in kinds]

    before, numbers = state(), torch.get_rng_state()
    settings = make_config(encoder, precision="bf16", objective="msc+bce", lexical=True, neighbours=True)
    if broken:
        breaking(monkeypatch, pipeline, "decide")
    with pytest.raises(BrokenError) if broken else nullcontext():
        fit(settings, corpus, tmp_path)
    assert state() == before
    assert torch.equal(torch.get_rng_state(), numbers)
    assert (of_the_program.mixed_precision, of_the_program.gradient_accumulation_steps) == ("no", 4)


def test_a_longer_document_than_the_encoder_reads(encoder, corpus, tmp_path):
    with pytest.warns(UserWarning, match="reads at most 64 tokens, so max_length=65 becomes 64; raise max_chunks"):
        predictor = fit(make_config(encoder, max_length=65, epochs=0), corpus, tmp_path)
    assert predictor.config.max_length == 64


def test_processes_compare_what_they_were_given_before_anything_is_trained(encoder, corpus, tmp_path, monkeypatch):
    def refuse(*_):
        raise BrokenError

    monkeypatch.setattr(pipeline, "refuse_other_documents", refuse)
    monkeypatch.setattr(FusedAdamW, "step", lambda _: pytest.fail("trained"))
    with pytest.raises(BrokenError):
        fit(make_config(encoder), corpus, tmp_path)
