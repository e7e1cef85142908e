import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import scored_documents
from sklearn.metrics import average_precision_score, label_ranking_loss

from abalone.evaluation.matrices import read_labels
from abalone.evaluation.metrics import Placement, ranking_scores


def rank(truth, probabilities):
    return ranking_scores(read_labels("truth", truth), probabilities)


def mean_average_precision(truth, probabilities):
    present = truth.any(0)
    if not present.any():
        return 0.0
    columns = zip(truth.T[present], probabilities.T[present], strict=True)
    return np.mean([average_precision_score(y, p) for y, p in columns])


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    documents=st.integers(1, 40),
    labels=st.integers(2, 9),
    share=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    ties=st.booleans(),
)
def test_values_are_those_of_scikit_learn(seed, documents, labels, share, ties):
    truth, probabilities = scored_documents(seed, documents, labels, share, ties)
    scores = rank(truth, probabilities)
    assert scores["ranking_loss"] == pytest.approx(label_ranking_loss(truth, probabilities), abs=1e-12)
    assert scores["mean_average_precision"] == pytest.approx(mean_average_precision(truth, probabilities), abs=1e-12)


def test_documents_without_labels_and_labels_without_positives():
    truth, probabilities = scored_documents(labels=6)
    truth[:20] = 0
    truth[:, 2] = 0
    scores = rank(truth, probabilities)
    assert scores["ranking_loss"] == pytest.approx(label_ranking_loss(truth, probabilities))
    assert scores["mean_average_precision"] == pytest.approx(mean_average_precision(truth, probabilities))


@pytest.mark.parametrize("labels", [2, 3, 4, 5, 9])
def test_precision_at_k(labels):
    truth, probabilities = scored_documents(labels=labels)
    scores = rank(truth, probabilities)
    for k in (1, 3, 5):
        hits = [row[np.argsort(-p)[:k]].sum() for row, p in zip(truth, probabilities, strict=True)]
        assert scores[f"precision_at_{k}"] == pytest.approx(np.mean(hits) / k)


def test_precision_at_k_shares_ties_out():
    truth = np.array([[1, 0, 0, 1], [0, 1, 0, 0]])
    probabilities = np.array([[0.9, 0.5, 0.5, 0.5], [0.2, 0.2, 0.1, 0.1]])
    scores = rank(truth, probabilities)
    assert scores["precision_at_1"] == pytest.approx((1 + 1 / 2) / 2)
    assert scores["precision_at_3"] == pytest.approx((1 + 2 / 3 + 1) / 3 / 2)


def test_standing_is_that_of_a_loop():
    truth, probabilities = scored_documents(documents=30, ties=True)
    at = Placement.of(read_labels("truth", truth), probabilities)
    assert np.array_equal(at.rows, truth.nonzero()[0])
    assert np.array_equal(at.scores, probabilities[truth.nonzero()])
    for place, (row, own) in enumerate(zip(at.rows, at.scores, strict=True)):
        scores = probabilities[row]
        assert at.above[place] == (scores > own).sum()
        assert at.reached[place] == (scores >= own).sum()
        assert at.hits[place] == (scores[truth[row] == 1] >= own).sum()
        assert at.below[place] == scores[scores < own].max(initial=0)


def test_sorting_in_blocks_changes_nothing(monkeypatch):
    documents = scored_documents(ties=True)
    expected = rank(*documents)
    monkeypatch.setattr("abalone.evaluation.metrics.SORTED_AT_ONCE", 20)
    assert rank(*documents) == expected
