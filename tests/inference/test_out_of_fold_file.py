"""Out-of-fold answers in the model folder: there and back, refused where they do not fit, told by the card."""

import json
from dataclasses import replace

import numpy as np
import pytest

import judged
import tiny
from abalone import AbaloneClassifier
from abalone.evaluation.out_of_fold import OUT_OF_FOLD
from abalone.inference.folder import SUMS, load, load_judged, save

NAMES = ["a", "b", "c", "d", "e"]
TEXTS, LABELS = tiny.corpus(120)


@pytest.fixture(scope="module")
def classifier():
    """Of words alone, which is made in a second; and what a cross-fitted one would know of its documents."""
    model = AbaloneClassifier("words").fit(TEXTS, LABELS, label_names=NAMES)
    model.predictor_.out_of_fold = judged.out_of_fold(TEXTS, LABELS)
    return model


@pytest.fixture
def folder(classifier, tmp_path):
    classifier.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_it_comes_back_to_the_byte_and_is_summed(classifier, folder, tmp_path):
    assert OUT_OF_FOLD in (folder / SUMS).read_text()
    again = load(folder)
    assert again.out_of_fold.to_bytes() == classifier.predictor_.out_of_fold.to_bytes()
    save(again, tmp_path / "again")
    for file in (OUT_OF_FOLD, "README.md", SUMS):
        assert (folder / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_who_only_answers_does_not_read_it(folder):
    assert load(folder, only_to_answer=True).out_of_fold is None
    assert load_judged(folder).out_of_fold.num_labels == 5


def test_scores_are_those_of_the_answers(classifier, folder):
    scores, by_label = AbaloneClassifier.from_pretrained(folder).evaluate_out_of_fold()
    answers, frequencies = classifier.predictor_.out_of_fold, classifier.predictor_.frequencies
    assert scores == answers.scores(frequencies)
    thresholds = classifier.predictor_.decision.thresholds.values
    assert by_label == answers.by_label(NAMES, frequencies, thresholds)
    assert [label.threshold for label in by_label] == thresholds.tolist()


def test_a_model_without_says_what_to_do(classifier, tmp_path):
    bare = replace(classifier.predictor_, out_of_fold=None)
    save(bare, tmp_path / "bare")
    assert not (tmp_path / "bare" / OUT_OF_FOLD).exists()
    model = AbaloneClassifier.from_pretrained(tmp_path / "bare")
    with pytest.raises(ValueError, match=r"^this model has no out-of-fold scores, as it was trained with folds=0"):
        model.evaluate_out_of_fold()
    with pytest.raises(ValueError, match=r"bare: this model has no out-of-fold scores.* give labelled documents"):
        load_judged(tmp_path / "bare")
    assert "Out-of-fold" not in (tmp_path / "bare" / "README.md").read_text()


def test_answers_of_another_model_are_refused(folder):
    (folder / SUMS).unlink()
    (folder / OUT_OF_FOLD).write_bytes(judged.out_of_fold(TEXTS[:9], LABELS[:9, :4]).to_bytes())
    for read in (load, load_judged):
        with pytest.raises(ValueError, match=rf"{folder} is damaged: there are 5 label names, and {OUT_OF_FOLD} for 4"):
            read(folder)


def test_damage_is_named(folder):
    (folder / OUT_OF_FOLD).write_bytes(b"{}")
    for read in (load, load_judged):
        with pytest.raises(ValueError, match=rf"{OUT_OF_FOLD} is damaged: it is not what was written"):
            read(folder)
    (folder / SUMS).unlink()
    for read in (load, load_judged):
        with pytest.raises(ValueError, match=rf"{folder} is damaged: {OUT_OF_FOLD} is not a safetensors file"):
            read(folder)


def test_the_card_tells_the_scores_with_intervals(classifier, folder):
    card = (folder / "README.md").read_text(encoding="utf-8")
    scores, _ = classifier.evaluate_out_of_fold()
    interval = classifier.predictor_.out_of_fold.intervals(classifier.predictor_.frequencies)["macro_f1"]
    assert "## Out-of-fold scores\n\nEach of 120 documents was judged by a model that had not seen it" in card
    assert f"| macro-F1 | {scores['macro_f1']:.4f} | {interval.low:.4f} – {interval.high:.4f} |" in card
    assert f"| Hamming loss | {scores['hamming_loss']:.4f} | |" in card
    assert "were fitted on out-of-fold answers" in card
    assert "fitted on the validation documents" not in card


def test_texts_are_not_in_the_folder(folder):
    content = (folder / OUT_OF_FOLD).read_bytes()
    assert not any(text.encode() in content for text in TEXTS)
    assert np.array_equal(load_judged(folder).out_of_fold.rows(TEXTS[:3]), [0, 1, 2])
    assert "out_of_fold" not in json.loads((folder / "abalone.json").read_text())
