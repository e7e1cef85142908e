"""Cross-fitting: what folds hold out, what they leave, and that a break in any of them costs nothing but time."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import tiny
from abalone.config import Config
from abalone.data.corpus import Corpus, Split
from abalone.data.hashes import text_hashes
from abalone.data.split import fold_of_documents
from abalone.encoder.fast.optimizer import FusedAdamW
from abalone.training import crossfit, pipeline
from abalone.training.folds import SEED, divide, held_out_labels, learnable
from abalone.training.open_settings import settled
from abalone.training.pipeline import fit

pytestmark = pytest.mark.usefixtures("one_split")

NAMES = tuple(f"topic {j}" for j in range(5))
EPOCHS = 2


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return tiny.save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    texts, labels = tiny.corpus(120, seed=0)
    train, validation = Split(texts[:80], labels[:80]), Split(texts[80:], labels[80:])
    return Corpus(train, validation, Split([], labels[:0]), NAMES)


def make_config(encoder: str, **changes: object) -> Config:
    small = {
        "encoder": encoder,
        "pooling": "mean",
        "max_length": 16,
        "objective": "msc+zlpr",
        "queue_size": 24,
        "projection_dim": 8,
        "epochs": EPOCHS,
        "folds": 3,
        "batch_size": 16,
        "learning_rate": 2e-3,
        "head_learning_rate": 2e-3,
        "lexical": True,
        "neighbours": True,
        "device": "cpu",
        "precision": "fp32",
        "checkpoint_seconds": 0,
    }
    return Config(**{**small, **changes})


def assert_same(one, other) -> None:
    left, right = one.network, other.network
    for (name, a), b in zip(left.encoder.state_dict().items(), right.encoder.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert torch.equal(left.head.weight, right.head.weight)
    assert one.decision.to_dict() == other.decision.to_dict()
    assert one.story["scores"] == other.story["scores"]
    assert one.out_of_fold.to_bytes() == other.out_of_fold.to_bytes()


@pytest.fixture(scope="module")
def uninterrupted(encoder, corpus, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABALONE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        return fit(make_config(encoder), corpus, tmp_path_factory.mktemp("whole"))


def test_every_document_is_judged_once_and_trained_on_in_the_end(uninterrupted, corpus):
    texts = [*corpus.train.texts, *corpus.validation.texts]
    assert sorted(uninterrupted.out_of_fold.documents) == sorted(text_hashes(texts))
    assert np.unique(uninterrupted.out_of_fold.folds).tolist() == [0, 1, 2]
    assert uninterrupted.story["statistics"]["train"] == 120
    assert uninterrupted.seen.hold(texts).all()
    assert {"out of fold", "out of fold, tf-idf alone"} == set(uninterrupted.story["scores"])


@pytest.mark.parametrize(
    ("place", "name", "after", "steps_left"),
    [
        (FusedAdamW, "step", 2, 44),  # in the first fold
        (FusedAdamW, "step", 14, 32),  # in the second, when the answers of the first are kept
        (crossfit.Answers, "save", 2, 16),  # the third is trained, and its answers are not kept yet
        (pipeline, "decide", 0, 16),  # all folds are done, and the model of all documents is not begun
        (FusedAdamW, "step", 33, 13),  # in the training on all documents
    ],
)
def test_a_break_in_any_fold_costs_nothing_but_time(
    place, name, after, steps_left, encoder, corpus, uninterrupted, tmp_path, monkeypatch
):
    class BrokenError(Exception):
        pass

    original, calls = getattr(place, name), iter(range(1000))

    def breaking(*arguments, **options):
        if next(calls) == after:
            raise BrokenError
        return original(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(place, name, breaking)
        with pytest.raises(BrokenError):
            fit(make_config(encoder), corpus, tmp_path)
    torch.rand(3)  # another process has another random state
    steps, step = [], FusedAdamW.step
    monkeypatch.setattr(FusedAdamW, "step", lambda self: (steps.append(1), step(self))[1])
    assert_same(fit(make_config(encoder), corpus, tmp_path, resume=True), uninterrupted)
    assert len(steps) == steps_left


def test_damaged_answers_of_a_fold_are_made_again(encoder, corpus, uninterrupted, tmp_path, caplog):
    fit(make_config(encoder), corpus, tmp_path)
    content = bytearray((tmp_path / "fold-2.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "fold-2.safetensors").write_bytes(content)
    assert_same(fit(make_config(encoder), corpus, tmp_path, resume=True), uninterrupted)
    assert "is damaged" in caplog.text
    assert "this fold is trained again" in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"folds": 1},
        {"folds": 2, "objective": "bce", "lexical": False, "neighbours": False},
        {"folds": 2, "epochs": 0},
        {"folds": 2, "objective": "msc", "freeze_layers": 1},
        {"folds": 2, "objective": "msc", "classifier": "finetune", "finetune_epochs": 1},
    ],
)
@pytest.mark.filterwarnings("ignore:.*(does not beat|adds nothing to)")
def test_every_kind_of_training_can_be_cross_fitted(changes, encoder, corpus, tmp_path):
    model = fit(make_config(encoder, **changes), corpus, tmp_path)
    judged = len(model.out_of_fold)
    assert judged == 120 if changes["folds"] > 1 else 20 <= judged <= 28
    assert model.probabilities(corpus.train.texts[:3]).shape == (3, 5)


def test_words_alone_are_cross_fitted_too(corpus, tmp_path):
    config = Config(encoder="none", epochs=0, folds=3, lexical=True)
    model = fit(config, corpus, tmp_path)
    assert (model.backend, len(model.out_of_fold)) == (None, 120)
    assert model.story["scores"]["out of fold"]["macro_f1"] > 0.7


def split_of(texts: list[str], labels: list[list[int]]) -> Split:
    return Split(texts, csr_array(np.array(labels, np.int32)))


def test_copies_of_a_text_are_in_one_fold():
    texts = [f"text {number // 3}" for number in range(30)]
    folds = divide(split_of(texts, [[1, number % 2] for number in range(30)]), 4)
    assert [fold.number for fold in folds] == [1, 2, 3, 4]
    for fold in folds:
        assert {texts[row] for row in fold.train}.isdisjoint(texts[row] for row in fold.held_out)
    assert sorted(np.concatenate([fold.held_out for fold in folds])) == list(range(30))


def test_answers_tell_their_fold_from_0():
    documents = split_of([f"text {number}" for number in range(10)], [[1]] * 10)
    folds = divide(documents, 2)
    expected = [0] * len(folds[0].held_out) + [1] * len(folds[1].held_out)
    assert held_out_labels(documents, folds)["folds"].tolist() == expected


def test_a_label_that_a_fold_has_not_seen_has_no_say_in_its_threshold():
    documents = split_of([f"text {number}" for number in range(10)], [[1, number == 4] for number in range(10)])
    folds = divide(documents, 2)
    assert sum(learnable(documents.labels, fold)[:, [1]].sum() for fold in folds) == 0
    assert sum(learnable(documents.labels, fold)[:, [0]].sum() for fold in folds) == 10


@pytest.mark.parametrize(
    ("texts", "labels", "folds", "told"),
    [
        (["a", "b", "c"], [[1], [1], [1]], 5, "5 folds need at least as many distinct documents, and there are 3"),
        (["a", "a", "b"], [[1], [1], [1]], 3, "3 folds need at least as many distinct documents, and there are 2"),
        (["a", "b"], [[1, 0], [0, 1]], 2, "no label is both on a document that is held out and on one that is trained"),
        (["a", "b", "c"], [[1], [0], [0]], 3, "has training documents without any label: lower folds"),
    ],
)
def test_folds_that_cannot_be_are_refused_with_advice(texts, labels, folds, told):
    with pytest.raises(ValueError, match=told):
        divide(split_of(texts, labels), folds)


@pytest.mark.parametrize("labelled", [0, 1, 2])
def test_the_fold_that_cannot_be_is_told_by_its_number(labelled):
    """It is the one that holds out the only document with a label."""
    texts = ["a", "b", "c"]
    labels = [[int(row == labelled)] for row in range(3)]
    number = fold_of_documents(csr_array(np.array(labels)), text_hashes(texts), 3, SEED)[labelled] + 1
    with pytest.raises(ValueError, match=f"fold {number} of 3 has training documents without any label"):
        divide(split_of(texts, labels), 3)


def test_patience_and_folds_contradict_each_other(encoder, corpus, tmp_path):
    with pytest.raises(ValueError, match=r"patience watches validation documents.*set folds to 0"):
        fit(make_config(encoder, patience=2), corpus, tmp_path)
    assert settled(make_config(encoder, patience=2, folds=None), 100, on_cpu=True).folds == 0


@pytest.mark.parametrize(
    ("documents", "on_cpu", "folds", "epochs"),
    [
        (324, False, 5, 80),
        (7_770, False, 5, 16),
        (47_300, False, 3, 5),
        (300_000, False, 1, 5),
        (7_770, True, 1, 6),
        (100, True, 1, 55),
        (3, False, 3, 80),
    ],
)
def test_settings_that_are_left_open_suit_corpus_and_machine(documents, on_cpu, folds, epochs):
    suited = settled(Config(folds=None, epochs=None), documents, on_cpu=on_cpu)
    assert (suited.folds, suited.epochs) == (folds, epochs)


def test_a_run_goes_on_with_the_folds_it_began_with(encoder, corpus, tmp_path, monkeypatch):
    config = make_config(encoder, folds=None)
    fit(config, corpus, tmp_path)
    monkeypatch.setattr(pipeline, "settled", lambda config, *_, **__: config.replace(folds=4))
    assert fit(config, corpus, tmp_path, resume=True).config.folds == 1
