from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import scored_documents
from scipy.sparse import coo_array, csc_array, csr_array, random_array
from sklearn.metrics import f1_score, hamming_loss, precision_score, recall_score

from abalone.evaluation.metrics import LabelScore, evaluate, per_label

COUNTED = {
    "micro_f1": lambda y, p: f1_score(y, p, average="micro", zero_division=0),
    "macro_f1": lambda y, p: f1_score(y, p, average="macro", zero_division=0),
    "macro_f1_present": lambda y, p: np.mean(
        [f1_score(y[:, j], p[:, j]) for j in np.flatnonzero(y.any(axis=0))] or [0.0]
    ),
    "micro_precision": lambda y, p: precision_score(y, p, average="micro", zero_division=0),
    "macro_precision": lambda y, p: precision_score(y, p, average="macro", zero_division=0),
    "micro_recall": lambda y, p: recall_score(y, p, average="micro", zero_division=0),
    "macro_recall": lambda y, p: recall_score(y, p, average="macro", zero_division=0),
    "hamming_loss": hamming_loss,
}


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    documents=st.integers(1, 40),
    labels=st.integers(2, 9),
    share=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
)
def test_values_are_those_of_scikit_learn(seed, documents, labels, share):
    truth, probabilities = scored_documents(seed, documents, labels, share)
    predictions = probabilities > 0.4
    scores = evaluate(truth, predictions)
    assert scores.keys() == COUNTED.keys()
    for name, expected in COUNTED.items():
        assert scores[name] == pytest.approx(expected(truth, predictions), abs=1e-12), name


def test_documents_without_labels_and_labels_without_positives():
    truth, probabilities = scored_documents(labels=6)
    truth[:20] = 0
    truth[:, 2] = 0
    predictions = probabilities > 0.4
    predictions[:, [2, 3]] = False  # label 2: neither present nor predicted
    scores = evaluate(truth, predictions)
    for name, expected in COUNTED.items():
        assert scores[name] == pytest.approx(expected(truth, predictions), abs=1e-12), name
    assert per_label(truth, predictions, list("abcdef"))[2].f1 == 0


def test_one_label():
    truth, probabilities = scored_documents(labels=1)
    scores = evaluate(truth, probabilities > 0.4, probabilities=probabilities, frequencies=[3])
    assert scores["micro_f1"] == scores["macro_f1"] == pytest.approx(f1_score(truth, probabilities > 0.4))
    assert scores["ranking_loss"] == 0
    assert scores["precision_at_5"] == pytest.approx(truth.mean() / 5)
    assert scores["macro_f1_head"] == scores["macro_f1"]
    assert "macro_f1_medium" not in scores


def test_any_form_of_the_same_labels():
    truth, probabilities = scored_documents()
    predictions = probabilities > 0.4
    expected = evaluate(truth, predictions, probabilities=probabilities)
    for form in (csr_array, csc_array, coo_array, lambda m: m.astype(bool), lambda m: m.astype(np.float16).tolist()):
        assert evaluate(form(truth), form(predictions * 1), probabilities=probabilities) == expected
    assert evaluate(truth, predictions, probabilities=probabilities.astype(np.float32)) == pytest.approx(expected)


def test_sparse_input_is_left_as_it_is():
    unsorted = csr_array((np.array([1, 1, 0]), np.array([2, 0, 1]), np.array([0, 3])), shape=(1, 3))
    assert evaluate(unsorted, np.array([[1, 0, 1]]))["micro_f1"] == 1
    assert unsorted.indices.tolist() == [2, 0, 1]
    assert unsorted.nnz == 3


def test_many_labels_are_never_made_dense():
    rng = np.random.default_rng(0)
    truth = random_array((100_000, 200_000), density=1e-5, rng=rng, data_sampler=lambda size: np.ones(size))
    scores = evaluate(truth, truth, frequencies=np.ones(200_000))  # dense it would be 20 GB as bytes
    assert scores["micro_f1"] == 1
    assert scores["macro_f1"] == pytest.approx(np.mean(truth.sum(0) > 0))


def test_macro_f1_of_the_thirds():
    truth, probabilities = scored_documents(labels=6)
    predictions = probabilities > 0.4
    frequencies = np.array([10, 60, 20, 50, 30, 40])
    scores = evaluate(truth, predictions, frequencies=frequencies)
    f1 = f1_score(truth, predictions, average=None)
    assert scores["macro_f1_head"] == pytest.approx(f1[[1, 3]].mean())
    assert scores["macro_f1_medium"] == pytest.approx(f1[[5, 4]].mean())
    assert scores["macro_f1_tail"] == pytest.approx(f1[[2, 0]].mean())


def test_labels_that_are_not_scored_count_nowhere():
    truth, probabilities = scored_documents(labels=6)
    predictions = probabilities > 0.4
    frequencies = np.array([0, 60, 20, 50, 30, 40])
    scored = frequencies > 0
    scores = evaluate(truth, predictions, probabilities=probabilities, frequencies=frequencies, scored=scored)
    alone = evaluate(truth[:, 1:], predictions[:, 1:], probabilities=probabilities[:, 1:])
    assert {name: scores[name] for name in alone} == alone
    assert scores["macro_f1_tail"] == f1_score(truth[:, 2], predictions[:, 2]), "the thirds are those of all labels"


def test_per_label_table():
    truth = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0]])
    predictions = np.array([[1, 0, 1], [1, 0, 0], [1, 1, 0], [0, 0, 0]])
    table = per_label(truth, predictions, ("a", "b", "c"), frequencies=np.array([9, 4, 0]), thresholds=[0.5, 0.2, 0.1])
    assert table[0] == LabelScore("a", 9, 3, 3, 2 / 3, 2 / 3, 2 / 3, 0.5)
    assert table[1] == LabelScore("b", 4, 2, 1, 1.0, 0.5, 2 / 3, 0.2)
    assert table[2] == LabelScore("c", 0, 0, 1, 0.0, 0.0, 0.0, 0.1)
    assert [row.name for row in sorted(table, key=attrgetter("support"))] == ["c", "b", "a"]
    assert per_label(truth, predictions, ["a", "b", "c"])[0].train_frequency is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((3, 2)), np.ones((3, 4))), r"truth and predictions .* \(3, 2\) and \(3, 4\)"),
        ((np.ones(3), np.ones(3)), r"truth must be \[documents, labels\].* \(3,\)"),
        ((np.ones((0, 2)), np.ones((0, 2))), r"truth .* not empty.* \(0, 2\)"),
        ((np.ones((1, 2)), np.array([[0.4, 1]])), r"predictions must be 0 or 1 everywhere, found 0.4"),
        ((np.array([[np.nan, 1]]), np.ones((1, 2))), r"truth must be 0 or 1 everywhere, found nan"),
        ((coo_array(([1, 1], ([0, 0], [1, 1])), shape=(1, 2)), np.ones((1, 2))), r"truth must be 0 or 1 .* found 2"),
    ],
)
def test_bad_labels_are_refused_by_name(arguments, message):
    for refusing in (evaluate, lambda *pair: per_label(*pair, ["a", "b"])):
        with pytest.raises(ValueError, match=message):
            refusing(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"probabilities": np.full((2, 2), 0.5)}, r"truth and probabilities .* \(2, 3\) and \(2, 2\)"),
        ({"probabilities": np.array([[0, 0, 0], [0, np.nan, 0]])}, r"probabilities .* nan in row 1, column 1"),
        ({"probabilities": np.array([[0, 0, 1.2], [0, 0, 0]])}, r"probabilities .* 1.2 in row 0, column 2"),
        ({"probabilities": np.array([[0, 0, -0.1], [0, 0, 0]])}, r"probabilities must lie in \[0, 1\]"),
        ({"frequencies": np.ones(2)}, r"frequencies .* 3 labels, got shape \(2,\)"),
        ({"frequencies": np.array([1, -1, 1])}, "frequencies must be counts"),
        ({"scored": np.array([0, 1, 2])}, "scored must be True or False"),
        ({"scored": np.zeros(3, dtype=bool)}, "scored must be True .* for at least one"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(np.ones((2, 3)), np.ones((2, 3)), **options)


def test_a_table_needs_a_name_for_each_label():
    with pytest.raises(ValueError, match=r"label_names .* 3 labels"):
        per_label(np.ones((2, 3)), np.ones((2, 3)), ["a"])
