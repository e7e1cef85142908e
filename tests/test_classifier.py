"""The front door, with a tiny encoder: all stages, manners, bad input, and what a folder gives back."""

import json
import os
import resource
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

import tiny
from abalone import AbaloneClassifier
from abalone.files.atomic import InUseError
from abalone.files.cache import KEPT
from abalone.recipes import DEFAULT, recipe
from abalone.training import pipeline, run

pytestmark = pytest.mark.usefixtures("one_split")

LABELS = 5
NAMES = [f"topic {j}" for j in range(LABELS)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return tiny.save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def data():
    texts, labels = tiny.corpus(240, labels=LABELS)
    return texts, labels


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))


def make(encoder, **settings):
    small = {
        "objective": "msc",
        "lexical": False,
        "max_length": 20,
        "epochs": 2,
        "queue_size": 32,
        "projection_dim": 16,
        "learning_rate": 2e-3,
        "head_learning_rate": 2e-3,
        "finetune_epochs": 2,
        "finetune_learning_rate": 2e-3,
        "device": "cpu",
    }
    return AbaloneClassifier(encoder=encoder, **{**small, **settings})


def lists(labels):
    return [[NAMES[j] for j in np.flatnonzero(row)] for row in labels.toarray()]


@pytest.fixture(scope="module")
def fitted(encoder, data, tmp_path_factory):
    os.environ["ABALONE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    texts, labels = data
    with warnings.catch_warnings():
        # Words decide the labels of this corpus, so nothing beats tf-idf on it.
        warnings.filterwarnings("ignore", "on validation the model .* does not beat tf-idf alone")
        return make(encoder, lexical=True, neighbours=True).fit(texts[:200], lists(labels[:200]))


def test_names_in_names_out(fitted, data):
    texts, _ = data
    assert fitted.label_names == tuple(NAMES)
    assert fitted.classes_.tolist() == NAMES
    predictions = fitted.predict(texts[200:])
    assert len(predictions) == 40
    assert all(set(row) <= set(NAMES) for row in predictions)
    probabilities = fitted.predict_proba(texts[200:])
    assert probabilities.shape == (40, LABELS)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    assert fitted.encode(texts[:3]).shape == (3, 32)


def test_it_learns_what_words_say(fitted, data):
    texts, labels = data
    scores = fitted.evaluate(texts[200:], lists(labels[200:]))
    assert {
        "micro_f1",
        "macro_f1",
        "hamming_loss",
        "macro_f1_head",
        "macro_f1_medium",
        "macro_f1_tail",
    } <= scores.keys()
    assert scores["macro_f1"] > 0.9  # the lexical expert sees the very words
    assert fitted.score(texts[200:], lists(labels[200:])) == scores["macro_f1"]


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": "bce", "epochs": 3},
        {"objective": "msc+10*bce"},
        {"objective": "mulcon+bce"},
        {"classifier": "finetune"},
        {"epochs": 0},
        {"freeze_layers": 1},
        {"max_chunks": 2, "max_length": 8},
        {"name_prototypes": True},
        {"name_prototypes": True, "freeze_layers": 1},
        {"thresholds": "half", "calibrate": False},
        {"thresholds": "micro", "at_least_one": True},
        {"accumulation": 2, "patience": 1, "pooling": "cls"},
    ],
    ids=str,
)
def test_every_way_to_train(encoder, data, settings):
    texts, labels = data
    model = make(encoder, **settings).fit(texts, labels, label_names=NAMES)
    probabilities = model.predict_proba(texts[:20])
    assert np.isfinite(probabilities).all()
    if settings.get("thresholds") == "half":
        chosen = [[NAMES[j] for j in np.flatnonzero(row >= 0.5)] for row in probabilities]
        assert model.predict(texts[:20]) == chosen
    if settings.get("at_least_one"):
        assert all(model.predict(texts[:20]))
    if "freeze_layers" in settings:  # what was frozen is what it was
        from abalone.encoder.load import load_encoder

        before = load_encoder(encoder)[0].state_dict()
        after = model.predictor_.network.encoder.state_dict()
        moved = {name for name in before if not np.array_equal(before[name], after[name])}
        assert moved
        assert all("layer.1." in name for name in moved)


def test_fine_tuning_on_plain_bce_reaches_good_scores(encoder, data):
    texts, labels = data
    model = make(encoder, objective="bce", epochs=40).fit(texts[:200], lists(labels[:200]))
    assert model.evaluate(texts[200:], lists(labels[200:]))["micro_f1"] > 0.8


def test_same_seed_same_model(encoder, data):
    texts, labels = data
    first, second = (make(encoder).fit(texts, labels).predict_proba(texts) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, make(encoder, seed=1).fit(texts, labels).predict_proba(texts))


@pytest.mark.slow
def test_read_back_in_a_new_process_it_is_identical(fitted, data, tmp_path):
    texts, _ = data
    folder = tmp_path / "model"
    fitted.save_pretrained(folder)
    np.save(tmp_path / "expected.npy", fitted.predict_proba(texts))
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    code = (
        "import json, sys, numpy as np; from abalone import AbaloneClassifier;"
        f"texts = json.load(open({str(tmp_path / 'texts.json')!r}));"
        f"model = AbaloneClassifier.from_pretrained({str(folder)!r});"
        f"expected = np.load({str(tmp_path / 'expected.npy')!r});"
        "np.testing.assert_array_equal(model.predict_proba(texts), expected);"
        "print(model.predict(texts[:2]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(fitted.predict(texts[:2]))


def test_the_folder_holds_no_pickle_and_a_card(fitted, tmp_path):
    fitted.save_pretrained(tmp_path / "model")
    files = {path.relative_to(tmp_path / "model").as_posix() for path in (tmp_path / "model").rglob("*")}
    assert {
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "head.safetensors",
        "abalone.json",
        "README.md",
    } <= files
    assert not [name for name in files if name.endswith((".bin", ".pt", ".pkl", ".pickle", ".joblib", ".npy"))]
    card = (tmp_path / "model" / "README.md").read_text()
    assert "macro-F1, rare third" in card
    assert "lexical" in card
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "cache") == ["model"]


def test_saving_again_replaces_and_other_folders_are_safe(fitted, tmp_path):
    fitted.save_pretrained(tmp_path / "model")
    fitted.save_pretrained(tmp_path / "model")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("do not touch")
    with pytest.raises(FileExistsError, match="is not a model folder"):
        fitted.save_pretrained(mine)
    assert (mine / "thesis.txt").read_text() == "do not touch"
    with pytest.raises(FileNotFoundError, match="is not a model folder"):
        AbaloneClassifier.from_pretrained(mine)


def test_a_full_disk_leaves_the_old_folder_whole(fitted, data, tmp_path):
    """A limit on file size fails in the middle of writing, as a full disk does."""
    folder = tmp_path / "model"
    fitted.save_pretrained(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(Exception, match=r"(?i)too large|os error 27|File too large"):
            fitted.save_pretrained(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "cache") == ["model"]


def test_manners_of_scikit_learn(encoder):
    model = make(encoder, temperature=0.2)
    assert model.get_params()["temperature"] == 0.2
    copy = clone(model).set_params(temperature=0.3)
    assert (model.temperature, copy.temperature) == (0.2, 0.3)
    with pytest.raises(NotFittedError):
        model.predict(["a text"])
    assert not hasattr(model, "classes_")
    with pytest.raises(NotFittedError):
        model.save_pretrained("nowhere")
    with pytest.raises(ValueError, match="no setting is called 'temprature'; did you mean 'temperature'"):
        AbaloneClassifier(temprature=0.1)
    with pytest.raises(ValueError, match="epochs must be at least 0, got -1"):
        make(encoder, epochs=-1).fit(["a"] * 20, [["x"]] * 20)


def test_a_recipe_is_a_parameter_too():
    model = AbaloneClassifier("fast", seed=3)
    assert AbaloneClassifier().get_params() == {"recipe": DEFAULT, **recipe().to_dict()}
    assert model.get_params() == {"recipe": "fast", **recipe("fast", seed=3).to_dict()}
    assert clone(model).get_params() == model.get_params()
    assert clone(model.set_params(beta=0.3)).get_params()["beta"] == 0.3
    assert "recipe='fast'" in repr(model)
    for wrong, message in (
        ({"recipe": "past"}, "no recipe is called 'past'; did you mean 'fast'"),
        ({"recip": "fast"}, "no setting is called 'recip'; did you mean 'recipe'"),
    ):
        with pytest.raises(ValueError, match=message):
            AbaloneClassifier(**wrong)
    with pytest.raises(ValueError, match="no recipe is called 'past'; did you mean 'fast'"):
        model.set_params(recipe="past")
    assert model.recipe == "fast"


def test_another_recipe_keeps_what_was_changed():
    model = AbaloneClassifier("fast", seed=3, max_length=77)
    assert clone(model).set_params(recipe="paper").get_params() == {
        "recipe": "paper", **recipe("paper", seed=3, max_length=77).to_dict()
    }  # fmt: skip
    assert model.set_params(recipe="paper", max_length=55, queue_size=9).get_params() == {
        "recipe": "paper", **recipe("paper", seed=3, max_length=55, queue_size=9).to_dict()
    }  # fmt: skip


def test_a_model_knows_its_recipe_after_reading_back(encoder, data, tmp_path):
    texts, labels = data
    model = AbaloneClassifier("paper", encoder=encoder, max_length=20, epochs=0, queue_size=9, device="cpu")
    model.fit(texts, labels).save_pretrained(tmp_path / "m")
    again = AbaloneClassifier.from_pretrained(tmp_path / "m")
    assert again.get_params() == model.get_params()
    changed = "`encoder`, `max_length`, `queue_size`, `epochs`, `device`"
    assert f"The recipe `paper`, but for {changed}. All settings:" in (tmp_path / "m" / "README.md").read_text()


def test_under_grid_search_and_in_a_pipeline(encoder, data):
    texts, labels = data
    matrix = labels.toarray()
    search = GridSearchCV(make(encoder, epochs=1), {"temperature": [0.1, 0.3]}, cv=2, scoring="f1_macro")
    search.fit(texts, matrix)
    assert search.best_params_["temperature"] in (0.1, 0.3)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    pipe = Pipeline([("model", make(encoder, epochs=1))]).fit(texts, matrix)
    predictions = pipe.predict(texts[:4])
    assert predictions.shape == (4, LABELS)
    assert set(np.unique(predictions)) <= {0, 1}


def test_validation_given_and_labels_unseen_in_training(encoder, data):
    texts, labels = data
    validation = (texts[200:], [[*row, "news"] for row in lists(labels[200:])])
    with pytest.warns(UserWarning, match="no training document carries news: left out of the scores"):
        model = make(encoder).fit(texts[:200], lists(labels[:200]), validation=validation)
    assert "news" not in model.label_names
    with pytest.warns(UserWarning, match="no training document carries sport"):
        scores = model.evaluate(texts[:10], [["sport"]] * 10)
    assert scores["micro_recall"] == 0


@pytest.mark.filterwarnings("ignore:no training document carries")
def test_a_label_with_no_training_document(encoder, data):
    texts, labels = data
    wider = csr_array(np.hstack([labels.toarray(), np.zeros((240, 1), np.int32)]))
    model = make(encoder).fit(texts, wider, validation=(texts, wider))
    assert model.predict_proba(texts).shape == (240, LABELS + 1)
    assert model.predict_proba(texts)[:, LABELS].max() < 0.5


def test_a_run_folder_knows_whose_it_is(encoder, data, tmp_path):
    texts, labels = data
    folder = tmp_path / "run"
    make(encoder).fit(texts, labels, run_folder=folder)
    with pytest.raises(ValueError, match=r"temperature was 0\.1 and is 0\.2"):
        make(encoder, temperature=0.2).fit(texts, labels, run_folder=folder, resume=True)
    with pytest.raises(ValueError, match="the documents or labels are others"):
        make(encoder).fit(texts[:200], labels[:200], run_folder=folder, resume=True)
    other = make(encoder, seed=3, classifier="finetune")
    expected = other.fit(texts, labels).predict_proba(texts)
    np.testing.assert_array_equal(other.fit(texts, labels, run_folder=folder).predict_proba(texts), expected)
    with pytest.warns(UserWarning, match="there is no run to resume"):
        make(encoder).fit(texts, labels, run_folder=tmp_path / "new", resume=True)


def test_what_could_only_fail_later_fails_at_once(encoder, data):
    texts, labels = data
    for settings, message in (
        ({"objective": "mcs"}, "no loss is called 'mcs'; did you mean 'msc'"),
        ({"classifier": "finetune", "finetune_objective": "msc"}, "finetune_objective must be a pointwise loss"),
        ({"objective": "mulcon+bce", "max_chunks": 2}, "cannot read documents in chunks"),
        ({"objective": "mulcon"}, "alone collapses"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"device": "cuda:7"}, "torch finds none here"),
    ):
        with pytest.raises(ValueError, match=message):
            make(encoder, **settings).fit(texts, labels)
    with pytest.raises(ValueError, match="no validation document carries a label"):
        make(encoder, folds=0).fit(texts, labels, validation=(texts[:5], csr_array(np.zeros((5, LABELS), np.int32))))


def test_an_answer_of_the_same_kind_after_reading_back(encoder, data, tmp_path):
    texts, labels = data
    model = make(encoder, epochs=0).fit(texts, labels.toarray())
    model.save_pretrained(tmp_path / "m")
    again = AbaloneClassifier.from_pretrained(tmp_path / "m").predict(texts[:3])
    np.testing.assert_array_equal(again, model.predict(texts[:3]))


def test_one_label_only(encoder, data):
    texts, labels = data
    model = make(encoder).fit(texts, labels[:, [0]], label_names=["the one"])
    assert set(map(tuple, model.predict(texts))) <= {(), ("the one",)}


@pytest.mark.parametrize(
    ("texts", "labels", "kind", "message"),
    [
        ([], [], ValueError, "there are no training documents"),
        (["a", None], [["x"], ["x"]], TypeError, "text 1 is NoneType, not a string"),
        (["a", 3], [["x"], ["x"]], TypeError, "text 1 is int, not a string"),
        ("a text", [["x"]], TypeError, "put it in a list"),
        (["a", "b"], [["x"]], ValueError, "2 texts but 1 rows of labels"),
        (["a", "b"], ["x", "y"], TypeError, "the labels of text 0 must be a list of names, got 'x'"),
        (["a"] * 20, [[]] * 20, ValueError, "no training document carries a label"),
        (["a", "b"], np.array([[0, 2], [1, 0]]), ValueError, "must hold 0 and 1 only, found 2"),
    ],
)
def test_bad_input_is_named(encoder, texts, labels, kind, message):
    with pytest.raises(kind, match=message):
        make(encoder).fit(texts, labels)


def test_nothing_in_nothing_out(fitted):
    assert fitted.predict([]) == []
    assert fitted.predict_proba([]).shape == (0, LABELS)
    assert fitted.encode([]).shape == (0, 32)
    with pytest.raises(TypeError, match="text 0 is NoneType"):
        fitted.predict([None])
    for ask in (fitted.predict, fitted.predict_proba, fitted.encode):
        with pytest.raises(ValueError, match="text 1 is empty"):
            ask(["w1", ""])


def test_longer_than_the_window_is_said(encoder, data):
    texts, labels = data
    with pytest.warns(UserWarning, match="reads at most 64 tokens, so max_length=300 becomes 64"):
        make(encoder, max_length=300, epochs=0).fit(texts, labels)


@pytest.mark.skipif(os.name == "nt", reason="it has no such locks")
def test_two_fits_in_one_folder_do_not_meet(encoder, data, monkeypatch):
    texts, labels = data
    plain, refused = pipeline.load_encoder, []

    def load_encoder(*given):  # the first fit is in its folder now
        if not refused:
            with pytest.raises(InUseError, match=r"another process is using .*run_folder= of fit") as error:
                make(encoder).fit(texts, labels)
            refused.append(error)
        return plain(*given)

    expected = make(encoder).fit(texts, labels).predict_proba(texts)
    monkeypatch.setattr(pipeline, "load_encoder", load_encoder)
    np.testing.assert_array_equal(make(encoder).fit(texts, labels).predict_proba(texts), expected)
    assert len(refused) == 1


def test_what_an_interrupted_fit_leaves_is_forgotten_in_the_end(encoder, data, tmp_path, monkeypatch):
    texts, labels = data
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "decide", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            make(encoder).fit(texts, labels)
    (left,) = (tmp_path / "cache" / "runs").iterdir()
    make(encoder, seed=1).fit(texts, labels)
    assert left.exists()
    for old in (*left.iterdir(), left):
        os.utime(old, (time.time() - KEPT - 60,) * 2)
    make(encoder, seed=1).fit(texts, labels)
    assert not left.exists()


def test_the_texts_are_read_once_to_know_whose_run_it_is(encoder, data, tmp_path, monkeypatch):
    texts, labels = data
    plain, passes = run.fingerprint, []
    monkeypatch.setattr(run, "fingerprint", lambda *given: passes.append(given) or plain(*given))
    make(encoder, epochs=0).fit(texts, labels, run_folder=tmp_path / "run")
    assert len(passes) == 1


def test_a_fit_leaves_no_checkpoints_behind(encoder, data, tmp_path):
    texts, labels = data
    make(encoder).fit(texts, labels)
    assert not list((tmp_path / "cache" / "runs").glob("*"))
    make(encoder).fit(texts, labels, run_folder=tmp_path / "run")
    assert list((tmp_path / "run" / "pretraining").glob("epoch-*.safetensors"))
