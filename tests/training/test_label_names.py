"""Label names as training documents: learnt, never held out, no neighbours, and not counted as documents."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import tiny
from abalone import AbaloneClassifier
from abalone.config import Config
from abalone.data.corpus import Corpus, Split
from abalone.data.hashes import text_hashes
from abalone.data.store import MappedTexts, TextWriter
from abalone.encoder.fast.optimizer import FusedAdamW
from abalone.evaluation.crossfit_probe import CrossFitProbe
from abalone.evaluation.neighbours import NearestNeighbours
from abalone.inference.card import model_card
from abalone.recipes import RECIPES, recipe, words_alone
from abalone.training import crossfit, pipeline
from abalone.training.folds import divide, learnable
from abalone.training.label_names import as_text, taught_by, with_names
from abalone.training.pipeline import fit
from abalone.training.words import Words

pytestmark = pytest.mark.usefixtures("one_split")

LONE, NAME = 4, "w50-w51"  # a label on one document, which does not have the words of its name
NAMES = ("w0", "w1", "2", "w3", NAME)  # the third has no letter
NAMED = 4


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return tiny.save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    texts, labels = tiny.corpus(120)
    dense = labels.toarray()
    dense[:, LONE] = 0
    dense[next(row for row in range(80) if "w50" not in texts[row] and "w51" not in texts[row]), LONE] = 1
    labels = csr_array(dense)
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
        "epochs": 1,
        "batch_size": 16,
        "learning_rate": 2e-3,
        "head_learning_rate": 2e-3,
        "learn_names": True,
        "lexical": True,
        "neighbours": True,
        "device": "cpu",
        "precision": "fp32",
    }
    return Config(**{**small, **changes})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("groundnut-oil", "groundnut oil"),
        ("__unpaid_invoice__", "unpaid invoice"),
        ("unpaidInvoice2024", "unpaid Invoice2024"),
        ("IT/Hardware & (Software)", "IT Hardware Software"),
        ("\tTax\n law ", "Tax law"),
        ("Straßenbau–Überblick", "Straßenbau Überblick"),
        ("cafe\u0301-bar", "cafe\u0301 bar"),  # the accent is a character of its own
        ("हिन्दी_समाचार", "हिन्दी समाचार"),  # vowels are marks on letters
        ("می\u200cخواهم", "می\u200cخواهم"),  # a joiner within a word
        ("希少な・ラベル", "希少な ラベル"),
        ("C++", "C"),
        ("3.5-inch", "3 5 inch"),
        ("😀 fun", "fun"),
        ("17", ""),
        ("3.5%", ""),
        ("½", ""),
        ("_", ""),
        ("", ""),
    ],
)
def test_name_is_the_text_that_a_person_would_write(name, text):
    assert as_text(name) == text


def test_names_follow_the_documents_and_each_carries_its_label_alone(corpus):
    taught = with_names(corpus.train, corpus.label_names)
    assert list(taught.texts) == [*corpus.train.texts, "w0", "w1", "w3", "w50 w51"]
    assert (taught.labels[:80] != corpus.train.labels).nnz == 0
    assert taught.labels[80:].toarray().tolist() == np.eye(5, dtype=int)[[0, 1, 3, 4]].tolist()
    assert taught.labels.dtype == corpus.train.labels.dtype


def test_names_without_letters_leave_the_documents_as_they_are(corpus):
    assert with_names(corpus.train, ["1", "2.5", "", "--", "#4"]) is corpus.train


def test_names_of_the_same_text_are_a_document_each():
    documents = Split(["one", "two"], csr_array(np.eye(2, dtype=np.int32)))
    taught = with_names(documents, ["a-b", "a_b"])
    assert list(taught.texts) == ["one", "two", "a b", "a b"]
    assert taught.labels.toarray().tolist() == [[1, 0], [0, 1]] * 2


def test_mapped_texts_are_not_read_into_memory(tmp_path, corpus):
    with TextWriter(tmp_path / "texts") as writer:
        for text in corpus.train.texts:
            writer.append(text)
    taught = with_names(Split(MappedTexts(tmp_path / "texts"), corpus.train.labels), NAMES)
    assert not isinstance(taught.texts, list)
    assert list(taught.texts) == list(with_names(corpus.train, NAMES).texts)


def test_names_are_taught_where_they_are_asked_for(corpus):
    assert taught_by(Config(), corpus) is corpus.train
    assert len(taught_by(Config(learn_names=True), corpus)) == 80 + NAMED


def test_every_recipe_but_the_papers_learns_names():
    assert {name: recipe(name).learn_names for name in RECIPES} == {
        "rare": True, "paper": False, "fast": True, "words": True,
    }  # fmt: skip
    assert not words_alone(recipe(learn_names=False)).learn_names


@pytest.mark.parametrize("folds", [1, 3])
def test_further_rows_are_taught_in_every_fold_and_held_out_in_none(folds, corpus):
    plain, named = (divide(corpus.train, folds, extra) for extra in (0, NAMED))
    for without, fold in zip(plain, named, strict=True):
        np.testing.assert_array_equal(without.taught, without.train)
        assert without.taught.dtype == without.train.dtype
        np.testing.assert_array_equal(fold.train, without.train)
        np.testing.assert_array_equal(fold.held_out, without.held_out)
        np.testing.assert_array_equal(fold.taught, [*fold.train, 80, 81, 82, 83])
        assert learnable(corpus.train.labels, fold).nnz == learnable(corpus.train.labels, without).nnz


def watch(monkeypatch, place, name, look):
    """Let `look` see what a function is called with."""
    original = getattr(place, name)
    monkeypatch.setattr(place, name, lambda *given, **named: (look(*given, **named), original(*given, **named))[1])


def assert_names_follow(taught, sizes):
    """Labels that were trained on, [n, L] each, are those of so many documents and of the names after them."""
    assert [labels.shape[0] for labels in taught] == [size + NAMED for size in sizes]
    for labels in taught:
        assert labels[-NAMED:].toarray().tolist() == np.eye(5, dtype=int)[[0, 1, 3, 4]].tolist()


@pytest.mark.parametrize("folds", [3, 1, 0])
def test_model_of_words_learns_names_in_every_fold_and_in_the_end(folds, corpus, tmp_path, monkeypatch):
    words = []
    watch(monkeypatch, Words, "expert", lambda self, rows: words.append(self.documents.labels[rows]))
    model = fit(recipe("words", folds=folds), corpus, tmp_path)
    whole = corpus.with_validation_in_train() if folds else corpus
    divided = divide(whole.train, folds) if folds else []
    assert_names_follow(words, [*(len(fold.train) for fold in divided), len(whole.train)])
    assert model.story["statistics"] == whole.stats().as_dict()
    assert len(model.out_of_fold or ()) == sum(len(fold.held_out) for fold in divided)


@pytest.mark.parametrize("changes", [{"folds": 3}, {"folds": 1}, {"folds": 0}, {"folds": 2, "epochs": 0}], ids=str)
@pytest.mark.filterwarnings("ignore:.*does not beat")
def test_names_are_trained_on_never_held_out_never_neighbours_and_not_counted(
    changes, encoder, corpus, tmp_path, monkeypatch
):
    taught, words, probes, neighbours = [], [], [], []
    for place, name in ((crossfit, "train_copy"), (pipeline, "train_copy"), (pipeline, "train_stages")):
        watch(monkeypatch, place, name, lambda run, start: taught.append(run.train.labels))
    watch(monkeypatch, Words, "expert", lambda self, rows: words.append(self.documents.labels[rows]))
    for name in ("heldout_logits", "fit_chosen"):
        watch(monkeypatch, CrossFitProbe, name, lambda self, embeddings, labels, _: probes.append(labels))
    watch(monkeypatch, NearestNeighbours, "fit", lambda self, _, labels: neighbours.append(labels.shape[0]))
    config = make_config(encoder, **changes)
    with tiny.every_expert_heard():
        model = fit(config, corpus, tmp_path)
    folds = config.folds
    whole = corpus.with_validation_in_train() if folds else corpus
    documents = len(whole.train)
    held_out = [len(fold.held_out) for fold in divide(whole.train, folds)] if folds else []
    sizes = [*(documents - held for held in held_out), documents]
    for each in (taught, words, probes) if config.epochs == 0 else (taught, words):
        assert_names_follow(each, sizes)
    assert neighbours == sizes
    if folds:
        hashes = text_hashes(whole.train.texts)
        judged = set(model.out_of_fold.documents.tolist())
        assert len(model.out_of_fold) == sum(held_out)
        assert judged == set(hashes.tolist()) if folds > 1 else judged < set(hashes.tolist())
    assert model.story["statistics"] == whole.stats().as_dict()
    assert f"## Data\n\n{documents} training and {len(whole.validation)} validation documents" in model_card(model)
    assert model.seen.hold(whole.train.texts).all()
    assert not model.seen.hold(["w0", "w50 w51"]).any()


TRAINED = {
    "objective": "bce", "lexical": False, "neighbours": False, "dropout": 0.0,
    "epochs": 24, "batch_size": 16, "learning_rate": 2e-3, "head_learning_rate": 2e-2,
}  # fmt: skip


@pytest.mark.parametrize("folds", [2, 0])
@pytest.mark.parametrize(("name", "changes"), [("words", {}), ("fast", {}), ("rare", TRAINED)], ids=lambda each: each)
@pytest.mark.filterwarnings("ignore:.*(does not beat|adds nothing to)")
def test_label_with_one_document_is_found_by_its_name(name, changes, folds, encoder, corpus, tmp_path):
    if name != "words":
        changes = {**changes, "encoder": encoder, "max_length": 16}
    config = recipe(name, **changes, folds=folds, device="cpu")
    models = [fit(config.replace(learn_names=named), corpus, tmp_path / str(named)) for named in (True, False)]
    (found, other), (unnamed, _) = (model.probabilities(["w50 w51", "w44 w45"])[:, LONE] for model in models)
    assert found > 1.5 * other
    assert found > 10 * unnamed


def test_labels_of_the_same_name_text_are_both_learnt(corpus, tmp_path):
    alike = Corpus(corpus.train, corpus.validation, corpus.test, ("w0", "w1", "w2", "w50_w51", NAME))
    model = fit(recipe("words", folds=2), alike, tmp_path)
    found = model.probabilities(["w50 w51", "w44 w45"])
    assert (found[0, 3:] > found[1, 3:]).all()


def test_numbered_columns_have_no_names_to_learn():
    texts, labels = tiny.corpus(60)
    on, off = (
        AbaloneClassifier("words", folds=2, learn_names=learn).fit(texts, labels).predict_proba(texts)
        for learn in (True, False)
    )
    np.testing.assert_array_equal(on, off)


@pytest.mark.parametrize(
    ("name", "learn", "told"),
    [
        ("rye", True, "carries rye, so the model has only the name to learn it from"),
        ("rye", False, "carries rye, so the model cannot learn it"),
        ("17", True, "carries 17, so the model cannot learn it"),
    ],
)
def test_label_without_documents_is_told(name, learn, told):
    texts, labels = tiny.corpus(60)
    dense = np.hstack([labels.toarray(), np.zeros((60, 1), dtype=np.int32)])
    names = [*(f"topic {j}" for j in range(5)), name]
    with pytest.warns(UserWarning, match=told):
        AbaloneClassifier("words", folds=2, learn_names=learn).fit(texts, dense, label_names=names)


@pytest.mark.parametrize("folds", [2, 0])
@pytest.mark.filterwarnings("ignore:.*does not beat")
def test_a_break_costs_nothing_but_time(folds, encoder, corpus, tmp_path, monkeypatch):
    class BrokenError(Exception):
        pass

    def breaking(self):
        if next(calls) == after:
            raise BrokenError
        step(self)

    config = make_config(encoder, folds=folds, epochs=2, checkpoint_seconds=0)
    whole = fit(config, corpus, tmp_path / "whole")
    step, calls, after = FusedAdamW.step, iter(range(1000)), 13 if folds else 7
    with monkeypatch.context() as patch:
        patch.setattr(FusedAdamW, "step", breaking)
        with pytest.raises(BrokenError):
            fit(config, corpus, tmp_path / "broken")
    torch.rand(3)  # another process has another random state
    resumed = fit(config, corpus, tmp_path / "broken", resume=True)
    found, expected = resumed.network, whole.network
    for (name, value), other in zip(
        found.encoder.state_dict().items(), expected.encoder.state_dict().values(), strict=True
    ):
        assert torch.equal(value, other), name
    assert torch.equal(found.head.weight, expected.head.weight)
    assert resumed.decision.to_dict() == whole.decision.to_dict()
    assert resumed.story["scores"] == whole.story["scores"]
    if folds:
        assert resumed.out_of_fold.to_bytes() == whole.out_of_fold.to_bytes()


def test_run_without_names_is_not_resumed_with_them(encoder, corpus, tmp_path):
    config = make_config(encoder, folds=0, lexical=False, neighbours=False)
    fit(config.replace(learn_names=False), corpus, tmp_path)
    with pytest.raises(ValueError, match=r"cannot resume the run in .*: learn_names was False and is True"):
        fit(config, corpus, tmp_path, resume=True)
