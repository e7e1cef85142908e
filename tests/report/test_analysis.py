"""Learning curves, reliability, confusions, document losses and the map."""

import math

import numpy as np
import pytest
import reported
from scipy.sparse import csr_array
from sklearn.metrics import log_loss

from abalone.evaluation.calibration import expected_calibration_error
from abalone.evaluation.metrics import evaluate
from abalone.report.analysis import (
    confusion,
    document_losses,
    document_map,
    excerpt,
    learning_curves,
    reliability,
    reliability_by_third,
    threshold_worth,
    worst_documents,
)

TRUTH = np.array([[1, 0, 0, 1], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 0, 0]])
GIVEN = np.array([[0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 1, 1]])


def test_confusion_equals_counts_by_hand():
    found = confusion(TRUTH, GIVEN)
    expected = np.zeros((4, 4), int)
    expected[0, 2] = 2  # documents 0 and 4
    expected[0, 3] = expected[1, 2] = expected[1, 3] = 1  # document 4
    assert np.array_equal(found.instead.toarray(), expected)
    assert found.together.toarray()[0, 1] == 2
    assert found.only_missed.tolist() == [0, 0, 1, 0]  # document 3
    assert found.only_given.tolist() == [0, 0, 1, 0]  # document 2
    assert found.pairs()[0] == (0, 2, 2, 0)
    assert found.pairs() == [(0, 2, 2, 0), (0, 3, 1, 1), (1, 2, 1, 0), (1, 3, 1, 0)]
    assert found.pairs(limit=1) == [(0, 2, 2, 0)]


def test_confusion_equals_counts_by_loop():
    rng = np.random.default_rng(0)
    truth, given = rng.random((40, 6)) < 0.3, rng.random((40, 6)) < 0.3
    expected = np.zeros((6, 6), int)
    for true, predicted in zip(truth, given, strict=True):
        for a in range(6):
            for b in range(6):
                expected[a, b] += true[a] and not predicted[a] and predicted[b] and not true[b]
    assert np.array_equal(confusion(truth, given).instead.toarray(), expected)


def test_confusion_of_perfect_predictions_is_empty():
    found = confusion(TRUTH, TRUTH)
    assert found.pairs() == []
    assert found.most_confused() == []


def test_most_confused_keeps_the_limit():
    found = confusion(TRUTH, GIVEN)
    assert sorted(found.most_confused(limit=2)) == [0, 2]
    assert sorted(found.most_confused()) == [0, 1, 2, 3]


def test_most_confused_puts_labels_that_occur_together_side_by_side():
    rng = np.random.default_rng(1)
    kin = rng.random((200, 2)) < 0.5
    truth = np.stack([kin[:, 0], kin[:, 1], kin[:, 0], kin[:, 1]], axis=1).astype(int)  # 0 with 2, 1 with 3
    given = (rng.random((200, 4)) < 0.5).astype(int)
    order = confusion(truth, given).most_confused()
    assert abs(order.index(0) - order.index(2)) == 1
    assert abs(order.index(1) - order.index(3)) == 1


def test_learning_curves_have_stages_and_measures():
    story = {
        "history": {
            "pretraining": [
                {"epoch": 1, "train_loss": 3.0, "validation_loss": math.nan, "seconds": 2.0},
                {"epoch": 2, "train_loss": 2.0, "seconds": 3.0},
            ],
            "finetuning": [{"epoch": 1, "train_loss": 0.5, "micro_f1": 0.25, "seconds": 1.0}],
        }
    }
    pretraining, finetuning = learning_curves(story)
    assert (pretraining["stage"], finetuning["stage"]) == ("pretraining", "finetuning")
    assert pretraining["epochs"] == [1, 2]
    assert pretraining["seconds"] == 5
    assert pretraining["curves"] == {"train_loss": [3.0, 2.0], "validation_loss": [None, None]}
    assert finetuning["curves"] == {"train_loss": [0.5], "micro_f1": [0.25]}


def test_learning_curves_without_history_are_empty():
    assert learning_curves({}) == []
    assert learning_curves({"history": {}}) == []
    assert learning_curves({"history": {"pretraining": []}}) == []


def clusters(seed=0, each=20):
    rng = np.random.default_rng(seed)
    centres = 6 * rng.normal(size=(3, 16))
    return np.vstack([centre + 0.3 * rng.normal(size=(each, 16)) for centre in centres]).astype(np.float32)


@pytest.mark.parametrize("layout", ["pca", "tsne"])
def test_map_keeps_clusters_together(layout):
    places = document_map(clusters())[layout]
    group = np.repeat(np.arange(3), 20)
    distance = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    assert np.array_equal(group[distance.argmin(axis=1)], group)


def test_map_is_deterministic():
    first, again = document_map(clusters()), document_map(clusters())
    for layout, places in first.items():
        assert np.array_equal(places, again[layout])


def test_map_fits_the_unit_square_and_is_wider_than_tall():
    for places in document_map(clusters()).values():
        assert places.shape == (60, 2)
        extent = np.ptp(places, axis=0)
        assert extent.max() == pytest.approx(1)
        assert places.min() >= -1e-9
        assert places.max() <= 1 + 1e-9
    assert np.var(places[:, 0]) >= np.var(places[:, 1])  # of t-SNE, which is turned


def test_map_ignores_lengths_of_embeddings():
    embeddings = clusters()
    longer = embeddings * np.random.default_rng(1).uniform(1, 9, size=(60, 1))
    assert np.allclose(document_map(embeddings)["pca"], document_map(longer)["pca"], atol=1e-5)


@pytest.mark.parametrize("documents", [1, 2, 4, 5])
def test_map_of_few_documents(documents):
    maps = document_map(clusters()[:documents])
    assert set(maps) == ({"pca", "tsne"} if documents >= 5 else {"pca"})
    for places in maps.values():
        assert places.shape == (documents, 2)
        assert np.isfinite(places).all()


def test_map_of_equal_or_zero_embeddings_is_a_point():
    for embeddings in (np.ones((6, 4)), np.zeros((6, 4))):
        for places in document_map(embeddings).values():
            assert np.allclose(places, 0.5)


def test_map_of_one_dimensional_embeddings():
    maps = document_map(np.array([[1.0], [-1.0], [1.0], [-1.0], [1.0], [-1.0]]))
    assert all(places.shape == (6, 2) and np.isfinite(places).all() for places in maps.values())


def test_reliability_bins_sum_to_the_calibration_error():
    answers = reported.run().scored
    found = reliability("all", answers.probabilities, answers.truth)
    gap = np.abs(np.array(found.said) - np.array(found.true)) @ np.array(found.pairs) / sum(found.pairs)
    assert gap == pytest.approx(expected_calibration_error(answers.probabilities, answers.truth))
    assert found.error == pytest.approx(gap)
    assert sum(found.pairs) == answers.probabilities.size


def test_reliability_of_calibrated_probabilities_is_the_diagonal():
    rng = np.random.default_rng(0)
    probabilities = rng.random((20000, 1))
    from scipy.sparse import csr_array

    truth = csr_array((rng.random((20000, 1)) < probabilities).astype(int))
    found = reliability("all", probabilities, truth)
    assert np.allclose(found.said, found.true, atol=0.05)


def test_reliability_by_third_leaves_out_an_empty_third():
    answers = reported.run(labels=7).scored
    found = reliability_by_third(answers.probabilities, answers.truth, reported.run(labels=7).thirds)
    assert [part.group for part in found] == ["all", "head", "medium", "tail"]
    assert sum(sum(part.pairs) for part in found[1:]) == sum(found[0].pairs)
    two = reported.run(labels=2)
    found = reliability_by_third(two.scored.probabilities, two.scored.truth, two.thirds)
    assert [part.group for part in found] == ["all", "head", "medium"]


def test_thresholds_in_hindsight_are_the_best():
    run = reported.run()
    worth = threshold_worth(run)
    own = evaluate(run.scored.truth, run.scored.predictions, frequencies=run.frequencies)
    assert worth["chosen"] == own
    half = evaluate(run.scored.truth, run.scored.probabilities >= 0.5, frequencies=run.frequencies)
    assert worth["half"] == half
    assert worth["hindsight"]["macro_f1"] >= max(worth["chosen"]["macro_f1"], half["macro_f1"])


def test_thresholds_without_a_positive_have_no_hindsight():
    run = reported.run(truth=np.zeros((10, 4)))
    assert list(threshold_worth(run)) == ["half", "chosen"]


def test_document_loss_is_cross_entropy():
    rng = np.random.default_rng(0)
    truth, probabilities = rng.integers(2, size=(5, 4)), rng.random((5, 4))
    expected = [log_loss(t, p, normalize=False, labels=[0, 1]) for t, p in zip(truth, probabilities, strict=True)]
    assert document_losses(csr_array(truth), probabilities) == pytest.approx(expected)


def test_document_loss_is_finite_for_wrong_zeros_and_ones():
    losses = document_losses(csr_array([[1, 0], [1, 0]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert np.isfinite(losses).all()
    assert losses[0] > 30
    assert losses[1] < 1e-5


def test_worst_documents_are_sorted_by_loss():
    assert worst_documents(np.array([1.0, 5.0, 3.0, 5.0]), limit=3).tolist() == [1, 3, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (" \n\t ", ""),
        ("short  text\n", "short text"),
        ("x" * 11, "x" * 10 + "…"),
        ("x" * 10, "x" * 10),
        ("  " * 5000 + "late", "…"),
    ],
)
def test_excerpt_is_the_beginning_on_one_line(text, expected):
    assert excerpt(text, 10) == expected
