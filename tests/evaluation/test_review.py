"""Suspects: planted errors come first, by the model's probability and by the other labels of the document."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from abalone.config import Config
from abalone.evaluation.out_of_fold import OutOfFold
from abalone.evaluation.review import _best_of_others, find_suspects

DOCUMENTS, LABELS = 600, 6


def answers_of(labels: np.ndarray, probabilities: np.ndarray, folds: int = 3) -> OutOfFold:
    texts = [f"text {number}" for number in range(len(labels))]
    return OutOfFold.of(texts, np.arange(len(labels)) % folds, csr_array(labels.astype(int)), probabilities, Config())


def made_up(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return labels, one or two a document with a long tail, and what a good model says of them."""
    random = np.random.default_rng(seed)
    share = 0.5 ** np.arange(LABELS)
    truth = np.zeros((DOCUMENTS, LABELS), dtype=bool)
    for row in truth:
        row[random.choice(LABELS, 1 + (random.random() < 0.4), replace=False, p=share / share.sum())] = True
    scores = np.where(truth, 2.5, -3.5) + 1.5 * random.standard_normal(truth.shape)
    return truth, 1 / (1 + np.exp(-scores))


def with_errors(truth: np.ndarray, seed: int = 1) -> np.ndarray:
    random = np.random.default_rng(seed)
    planted = truth.copy()
    for among in (np.argwhere(truth), np.argwhere(~truth)):
        for row, column in among[random.choice(len(among), 25, replace=False)]:
            planted[row, column] ^= True
    return planted


def found(suspects, truth, planted, given):
    """Return the share of the first 25 suspects of a kind that are errors."""
    first = suspects[suspects.given == given][:25]
    return (truth != planted)[first.documents, first.labels].mean()


@pytest.mark.parametrize("folds", [3, 1])
def test_planted_errors_come_first(folds):
    truth, probabilities = made_up()
    planted = with_errors(truth)
    answers = answers_of(planted, probabilities, folds)
    rows = np.arange(DOCUMENTS)
    assert (answers.labels.toarray() == planted[rows]).all()  # in the order that was given
    # With one fold, a fifth of the documents is held out: a model has seen the labels of the others.
    suspects = find_suspects(answers, planted.sum(axis=0) * (5 if folds == 1 else 1))
    assert (suspects.given[:100] == ([True, False] * 50)).all()
    assert (np.diff(suspects.doubts[suspects.given]) <= 0).all()
    for label in range(LABELS):
        assert (np.diff(suspects.doubts[~suspects.given & (suspects.labels == label)]) <= 0).all()
    assert found(suspects, truth, planted, given=True) > 0.8
    assert found(suspects, truth, planted, given=False) > 0.8
    chance = np.count_nonzero(truth & ~planted) / np.count_nonzero(~planted)
    assert chance < 0.02


def test_document_without_labels_is_more_doubtful_than_one_that_has_its_label():
    truth, probabilities = made_up()
    planted = truth.copy()
    lonely, other = np.flatnonzero(truth.sum(axis=1) == 1)[:2]
    planted[lonely] = False  # all others have a label
    missing = int(truth[lonely].argmax())
    absent = next(column for column in range(LABELS) if not truth[other, column])
    probabilities[lonely, missing] = probabilities[other, absent] = 0.3
    suspects = find_suspects(answers_of(planted, probabilities), planted.sum(axis=0))
    doubts = np.zeros(truth.shape)
    doubts[suspects.documents, suspects.labels] = suspects.doubts
    assert doubts[lonely, missing] > 2 * doubts[other, absent]


def test_label_that_no_model_knew_is_never_called_wrong():
    truth, probabilities = made_up()
    truth = np.column_stack([truth, np.zeros(DOCUMENTS, dtype=bool)])
    truth[7, LABELS] = True  # its only document
    probabilities = np.column_stack([probabilities, np.full(DOCUMENTS, 1e-3)])
    suspects = find_suspects(answers_of(truth, probabilities), truth.sum(axis=0))
    assert not (suspects.given & (suspects.labels == LABELS)).any()
    assert (suspects.given & (suspects.labels == LABELS - 1)).any()


def test_missing_rare_label_comes_before_an_equally_doubtful_frequent_one():
    truth, probabilities = made_up()
    rows = np.flatnonzero(truth.sum(axis=1) == 2)
    frequent, rare = (next(row for row in rows if not truth[row, column]) for column in (0, LABELS - 1))
    probabilities[frequent, 0] = probabilities[rare, LABELS - 1] = 0.999
    suspects = find_suspects(answers_of(truth, probabilities), truth.sum(axis=0))
    places = {
        pair: place
        for place, pair in enumerate(zip(suspects.documents.tolist(), suspects.labels.tolist(), strict=True))
    }
    assert places[int(rare), LABELS - 1] < places[int(frequent), 0]


def test_few_documents_are_ranked_by_the_model_alone():
    truth = np.eye(3, dtype=bool)[[0, 1, 2, 0]]
    probabilities = np.where(truth, 0.9, 0.05)
    probabilities[3] = 0.2, 0.7, 0.05
    suspects = find_suspects(answers_of(truth, probabilities, folds=2), truth.sum(axis=0))
    first = suspects[suspects.given == 0][:1]
    assert (first.documents[0], first.labels[0]) == (3, 1)
    assert first.doubts[0] == pytest.approx(0.7, abs=1e-3)


def test_best_of_others_leaves_the_pair_itself_out():
    documents = np.array([0, 0, 0, 1, 2, 2])
    values = np.array([1.0, 3.0, 2.0, 5.0, 4.0, 4.0])
    lowest = _best_of_others(np.array([0]), np.array([1.0]), 1)[0]
    assert _best_of_others(documents, values, 3).tolist() == [3.0, 2.0, 3.0, lowest, 4.0, 4.0]
