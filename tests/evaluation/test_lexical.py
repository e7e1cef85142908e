import json
from dataclasses import asdict

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy.sparse import csr_array
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

from abalone.evaluation import lexical
from abalone.evaluation.calibration import PlattScaling
from abalone.evaluation.lexical import SETTINGS, TENSORS, LexicalModel
from abalone.evaluation.tfidf import TermCounts

DECIDING = ("quark", "ribosome", "tax law")
SHARES = (0.5, 0.2, 0.05)


def corpus(documents=300, seed=0):
    """A label is there where its word (the last: its pair of words) is; the rest says nothing."""
    rng = np.random.default_rng(seed)
    labels = (rng.random((documents, len(DECIDING))) < SHARES).astype(int)
    texts = []
    for row in labels:
        words = [f"filler{i}" for i in rng.integers(30, size=8)] + ["law filler0 tax"]
        words += [word for word, there in zip(DECIDING, row, strict=True) if there]
        texts.append(" ".join(rng.permutation(words)))
    return texts, labels


@pytest.fixture(scope="module")
def model():
    return LexicalModel().fit(*corpus())


def cross_entropy(logits, truth):
    return float((np.logaddexp(0, logits) - truth * logits).mean())


def test_words_and_pairs_that_decide_are_found(model):
    texts, labels = corpus(seed=1)
    probabilities = model.predict_proba(texts)
    for label in range(labels.shape[1]):
        here, there = probabilities[labels[:, label] == 1, label], probabilities[labels[:, label] == 0, label]
        assert here.min() > there.max()
    assert ((probabilities > 0.5) == labels)[:, :2].mean() > 0.97


@pytest.mark.parametrize("marks", [("ology", "ness"), (" 😀", " 😡"), ("!!!", " ..."), (" :-)", " :(")])
def test_endings_emojis_and_punctuation_decide_too(marks):
    rng = np.random.default_rng(0)
    stems = ["".join(rng.choice(list("bcdfgklmrt"), 6)) for _ in range(400)]  # each once: no word is known
    labels = rng.integers(2, size=(400, 1))
    texts = [f"{stem}{marks[label]}" for stem, label in zip(stems, labels[:, 0], strict=True)]
    model = LexicalModel().fit(texts[:300] + ["a word"] * 1200, np.r_[labels[:300], np.zeros((1200, 1), int)])
    scores = model.scores(texts[300:])[:, 0]
    assert scores[labels[300:, 0] == 1].min() > scores[labels[300:, 0] == 0].max()


def test_scores_are_logits_of_the_probabilities(model):
    texts, _ = corpus(20)
    assert model.scores(texts).dtype == np.float32
    np.testing.assert_allclose(model.predict_proba(texts), expit(model.scores(texts)), rtol=1e-6)


def test_the_order_is_that_of_a_plain_svm_on_tfidf():
    texts, labels = corpus()
    model = LexicalModel().fit_counts(TermCounts.of(texts, with_pieces=False), np.arange(len(texts)), labels)
    fresh, _ = corpus(seed=2)
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
    svm = LinearSVC(C=0.5, random_state=0).fit(vectorizer.fit_transform(texts), labels[:, 1])
    plain = svm.decision_function(vectorizer.transform(fresh))
    scores = model.scores(fresh)[:, 1]
    assert np.corrcoef(plain, scores)[0, 1] > 0.995  # not 1: the smallest weights are dropped


def test_the_largest_weights_are_kept():
    texts, labels = corpus()
    features = TfidfVectorizer().fit_transform(texts)
    full = LinearSVC(C=0.5, random_state=0).fit(features, labels[:, 0]).coef_[0]
    row, _, converged = lexical._fit_label(features, labels[:, 0], 0.5, 0)
    kept = np.abs(row.toarray()[0])
    assert converged
    assert 0 < np.count_nonzero(kept) < np.count_nonzero(full)
    np.testing.assert_allclose(kept[kept > 0], np.abs(full)[kept > 0], rtol=1e-6)
    assert np.abs(full)[kept == 0].max() <= kept[kept > 0].min()
    total = full @ full
    assert (kept @ kept) >= 0.95 * total > (kept @ kept) - kept[kept > 0].min() ** 2


def test_dense_and_sparse_labels_are_the_same():
    texts, labels = corpus(60)
    dense, sparse = LexicalModel().fit(texts, labels), LexicalModel().fit(texts, csr_array(labels))
    assert np.array_equal(dense.scores(texts), sparse.scores(texts))


def test_one_process_or_two_give_the_same_weights(monkeypatch):
    texts, labels = corpus(60)
    alone = LexicalModel(jobs=1).fit(texts, labels).scores(texts)
    monkeypatch.setattr(lexical, "SMALL", 0)
    assert np.array_equal(LexicalModel(jobs=2).fit(texts, labels).scores(texts), alone)


def test_blocks_do_not_show(model, monkeypatch):
    texts, _ = corpus(50)
    whole = model.scores(texts)
    monkeypatch.setattr(lexical, "BLOCK", 7)
    assert np.array_equal(model.scores(texts), whole)


def test_labels_of_nobody_and_of_everybody_get_their_prior():
    texts, labels = corpus(99)
    labels[:, 0], labels[:, 2] = 0, 1
    scores = LexicalModel().fit(texts, labels).calibrate(texts, labels).scores(["quark tax law", ""])
    assert scores[:, 0] == pytest.approx(np.log(0.5 / 99.5))
    assert scores[:, 2] == pytest.approx(np.log(99.5 / 0.5))
    assert np.isfinite(scores).all()


def test_empty_and_unknown_texts_are_scored_alike(model):
    scores = model.scores(["", "   ", "unheard-of"])
    assert np.isfinite(scores).all()
    assert np.array_equal(scores[0], scores[1])
    assert np.array_equal(scores[0], scores[2])
    assert model.scores([]).shape == (0, 3)


def test_empty_texts_may_be_trained_on():
    texts, labels = corpus(100)
    texts[3] = texts[50] = ""
    assert np.isfinite(LexicalModel().fit(texts, labels).scores(texts)).all()


@pytest.mark.parametrize("texts", [["", ""], ["all words", "differ here"], ["alone"]])
def test_without_words_there_are_only_priors(texts, tmp_path):
    labels = np.ones((len(texts), 2), dtype=int)
    labels[0, 0] = 0
    with pytest.warns(UserWarning, match=f"no word occurs in 2 of the {len(texts)} texts"):
        model = LexicalModel().fit(texts, labels)
    positives = labels.sum(0)
    expected = np.log((positives + 0.5) / (len(texts) - positives + 0.5))
    model.calibrate(texts, labels).save(tmp_path)
    for each in (model, LexicalModel.load(tmp_path)):
        np.testing.assert_allclose(each.scores(["words", ""]), [expected, expected], rtol=1e-6)


def test_read_back_it_scores_the_same_to_the_last_bit_and_without_refitting(model, tmp_path, monkeypatch):
    texts, _ = corpus(seed=3)
    calibrated = LexicalModel().fit(*corpus()).calibrate(*corpus(seed=4))
    for number, saved in enumerate((model, calibrated)):
        expected = saved.scores(texts)
        saved.save(tmp_path / str(number))
        with monkeypatch.context() as patch:
            patch.setattr(LinearSVC, "fit", None)
            patch.setattr(TfidfVectorizer, "fit", None)
            read = LexicalModel.load(tmp_path / str(number))
            assert np.array_equal(read.scores(texts), expected)
        assert read.link == saved.link
        assert (read.c, read.min_df, read.max_features, read.seed) == (0.5, 2, 200_000, 0)


def test_the_folder_holds_safetensors_and_json_alone(model, tmp_path):
    model.save(tmp_path / "new" / "folder")
    files = {path.name for path in (tmp_path / "new" / "folder").iterdir()}
    assert files == {TENSORS, SETTINGS}
    assert load_file(tmp_path / "new" / "folder" / TENSORS)["bias"].shape == (3,)
    terms = json.loads((tmp_path / "new" / "folder" / SETTINGS).read_text())["terms"]
    assert {"quark", "ribosome", "tax law"} <= set(terms)


def test_words_of_any_script_survive_the_files(tmp_path):
    texts = ["größe Ελλάδα", "größe книга", "малый Ελλάδα", "малый книга"] * 5
    model = LexicalModel().fit(texts, np.array([[1], [1], [0], [0]] * 5))
    model.save(tmp_path)
    assert np.array_equal(LexicalModel.load(tmp_path).scores(texts), model.scores(texts))
    assert model.predict_proba(["größe"]) > 0.5 > model.predict_proba(["малый"])


def test_a_model_of_the_format_without_pieces_is_read(tmp_path):
    texts, labels = corpus(100)
    model = LexicalModel().fit_counts(TermCounts.of(texts, with_pieces=False), np.arange(100), labels)
    model.save(tmp_path)
    settings = json.loads((tmp_path / SETTINGS).read_text())
    assert settings.pop("pieces") == []
    (tmp_path / SETTINGS).write_text(json.dumps(settings | {"format": 1}))
    read = LexicalModel.load(tmp_path)
    assert np.array_equal(read.scores(texts), model.scores(texts))
    read.save(tmp_path)
    assert np.array_equal(LexicalModel.load(tmp_path).scores(texts), model.scores(texts))


def test_files_that_do_not_belong_together_are_refused(model, tmp_path):
    model.save(tmp_path)
    tensors = (tmp_path / TENSORS).read_bytes()
    (tmp_path / TENSORS).write_bytes(tensors[:-1] + b"?")
    with pytest.raises(ValueError, match=rf"{TENSORS}: damaged, or from another save"):
        LexicalModel.load(tmp_path)
    (tmp_path / TENSORS).unlink()
    with pytest.raises(FileNotFoundError, match=TENSORS):
        LexicalModel.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"), [("{", "not the settings"), ("[]", "not the settings"), ('{"format": 99}', "format 99")]
)
def test_settings_of_something_else_are_refused(tmp_path, content, message):
    (tmp_path / SETTINGS).write_text(content)
    (tmp_path / TENSORS).write_bytes(b"")
    with pytest.raises(ValueError, match=rf"{SETTINGS}: {message}"):
        LexicalModel.load(tmp_path)


def test_a_planted_link_is_found():
    rng = np.random.default_rng(0)
    log_odds = np.array([-6.0, -3.0, -1.0, 0.5, 3.0])
    planted = PlattScaling(offset=-2.5, offset_by_rarity=-0.6, log_slope=0.9, log_slope_by_rarity=0.3)
    height = rng.normal(1, 2, (20_000, 5)) * np.exp(-0.3 * np.abs(log_odds))
    decisions = -np.sign(log_odds) * (height - 1)
    positive = rng.random(decisions.shape) < expit(planted.logits(decisions, log_odds))
    found = PlattScaling.fitted(decisions, positive, log_odds)
    assert found.offset == pytest.approx(planted.offset, abs=0.15)
    assert found.offset_by_rarity == pytest.approx(planted.offset_by_rarity, abs=0.05)
    assert found.log_slope == pytest.approx(planted.log_slope, abs=0.08)
    assert found.log_slope_by_rarity == pytest.approx(planted.log_slope_by_rarity, abs=0.03)


def test_a_link_of_several_models_takes_the_log_odds_of_each_row():
    rng = np.random.default_rng(0)
    decisions = rng.normal(-0.8, 0.5, (90, 3))
    positive = rng.random(decisions.shape) < 0.2
    log_odds = np.array([-3.0, -1.0, 2.0])
    alike = np.tile(log_odds, (90, 1))
    assert PlattScaling.fitted(decisions, positive, alike) == PlattScaling.fitted(decisions, positive, log_odds)
    by_row = np.repeat([log_odds, [-2.0, -0.5, -1.0]], 45, axis=0)
    link = PlattScaling.fitted(decisions, positive, by_row)
    expected = [PlattScaling.logits(link, decisions[part], by_row[part][0]) for part in (slice(45), slice(45, 90))]
    assert np.array_equal(link.logits(decisions, by_row), np.concatenate(expected))
    # A column beside another says the same as its rows below those of the other.
    below = PlattScaling.fitted(
        decisions[:, :2].T.reshape(-1, 1), positive[:, :2].T.reshape(-1, 1), alike[:, :2].T.reshape(-1, 1)
    )
    beside = PlattScaling.fitted(decisions[:, :2], positive[:, :2], log_odds[:2])
    np.testing.assert_allclose(list(asdict(below).values()), list(asdict(beside).values()), atol=1e-4)


def test_a_frequent_label_is_the_mirror_image_of_a_rare_one():
    decisions, log_odds = np.random.default_rng(0).normal(size=(5, 3)), np.array([-4.0, -1.0, -0.1])
    link = PlattScaling()
    np.testing.assert_allclose(link.logits(-decisions, -log_odds), -link.logits(decisions, log_odds))
    positive = decisions > 0
    mirrored = PlattScaling.fitted(-decisions, ~positive, -log_odds)
    assert mirrored == PlattScaling.fitted(decisions, positive, log_odds)


def test_a_link_stays_sober_where_words_decide_everything():
    decisions = np.array([[-1.0], [-1.0], [1.0]])
    link = PlattScaling.fitted(decisions, decisions > 0, np.array([-1.0]))
    assert np.allclose(
        list(asdict(link).values()), list(asdict(PlattScaling()).values()), atol=0.2
    )  # three documents: a nudge
    logits = link.logits(decisions, np.array([-1.0]))
    assert ((logits > 0) == (decisions > 0)).all()


def test_a_link_is_the_best_between_the_documents_and_the_default():
    rng = np.random.default_rng(0)
    decisions, log_odds = rng.normal(-0.8, 0.4, (60, 3)), np.array([-3.0, -1.0, 2.0])
    positive = rng.random(decisions.shape) < 0.2
    default = np.array(list(asdict(PlattScaling()).values()))

    def loss(numbers):
        distance = np.square(numbers - default).sum() / 2
        return cross_entropy(PlattScaling(*numbers).logits(decisions, log_odds), positive) * positive.size + distance

    found = np.array(list(asdict(PlattScaling.fitted(decisions, positive, log_odds)).values()))
    assert all(loss(found) < loss(found + step) for step in rng.normal(0, 0.05, (200, 4)))


def test_calibration_lowers_the_cross_entropy_and_keeps_the_order():
    rng = np.random.default_rng(0)
    texts, labels = corpus(600)
    labels ^= rng.random(labels.shape) < 0.1  # so that being sure costs
    fresh_texts, fresh_labels = corpus(600, seed=1)
    fresh_labels ^= rng.random(labels.shape) < 0.1
    model = LexicalModel().fit(texts[:300], labels[:300])
    before = model.scores(fresh_texts)
    after = model.calibrate(texts[300:], labels[300:]).scores(fresh_texts)
    assert cross_entropy(after, fresh_labels) < cross_entropy(before, fresh_labels)
    for label in range(labels.shape[1]):
        assert np.array_equal(np.argsort(before[:, label], kind="stable"), np.argsort(after[:, label], kind="stable"))


def test_fitting_again_forgets_the_calibration():
    texts, labels = corpus(100)
    model = LexicalModel().fit(texts, labels).calibrate(texts, labels)
    assert model.link != PlattScaling()
    assert model.fit(texts, labels).link == PlattScaling()


def test_a_link_fitted_elsewhere_can_be_given():
    texts, labels = corpus(100)
    link = PlattScaling(offset=-2.0)
    model = LexicalModel().fit(texts, labels)
    decisions = model.decisions_of(TermCounts.of(texts), np.arange(100))
    model.link = link
    np.testing.assert_allclose(model.scores(texts), link.logits(decisions, model.log_odds), atol=1e-4)


def test_log_odds_and_constant_labels_are_told():
    texts, labels = corpus(99)
    labels[:, 0], labels[:, 2] = 0, 1
    model = LexicalModel().fit(texts, labels)
    assert model.constant.tolist() == [True, False, True]
    share = labels[:, 1].sum()
    np.testing.assert_allclose(
        model.log_odds, np.log([0.5 / 99.5, (share + 0.5) / (99 - share + 0.5), 99.5 / 0.5]), rtol=1e-12
    )


def test_labels_that_do_not_settle_are_told_once(monkeypatch):
    monkeypatch.setattr(lexical, "MAX_ITERATIONS", 1)
    with pytest.warns(ConvergenceWarning, match="3 of 3 labels did not converge") as caught:
        LexicalModel(c=100.0).fit(*corpus(100))
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (["a", None], [[1], [0]], "got NoneType in row 1"),
        (["a", 3.5], [[1], [0]], "got float in row 1: 3.5"),
        ("one text", [[1]], "list of strings, got one string: 'one text'"),
        (["a", "b"], [[1]], r"same number of rows, got 2 and \(1, 1\)"),
        (["a", "b"], [[1], [2]], "labels must be 0 or 1 everywhere, found 2"),
        (["a", "b"], [1, 0], r"labels must be \[documents, labels\]"),
        ([], np.empty((0, 2)), r"labels must be \[documents, labels\] and not empty, got shape \(0, 2\)"),
    ],
)
def test_bad_documents_are_refused(model, texts, labels, message):
    with pytest.raises(ValueError, match=message):
        LexicalModel().fit(texts, np.array(labels))
    with pytest.raises(ValueError, match=message):
        model.calibrate(texts, np.array(labels))


def test_bad_use_is_refused(model):
    with pytest.raises(NotFittedError, match="fit"):
        LexicalModel().scores(["a"])
    with pytest.raises(ValueError, match="got NoneType in row 0"):
        model.scores([None])
    with pytest.raises(ValueError, match=r"3 columns as in fit, got shape \(1, 2\)"):
        model.calibrate(["a"], np.ones((1, 2)))
    for name in ("max_features", "min_df", "c", "jobs"):
        with pytest.raises(ValueError, match=f"{name} must be above 0, got 0"):
            LexicalModel(**{name: 0})
