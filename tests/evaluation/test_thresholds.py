import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import expit, logit

from abalone.evaluation.decision import NEVER, Thresholds
from abalone.evaluation.metrics import evaluate
from abalone.evaluation.thresholds import LEAST, SHRINKAGE, fit_thresholds


def micro(truth, predictions):
    return 2 * (truth * predictions).sum() / max(1, truth.sum() + predictions.sum())


def draw(data, documents, labels):
    """A small set of documents with many ties, zeros and ones among the probabilities."""
    rng = np.random.default_rng(data.draw(st.integers(0, 100_000)))
    truth = rng.random((documents, labels)) < data.draw(st.sampled_from([0.2, 0.5, 0.8]))
    truth[0] = True
    return rng.integers(0, 6, (documents, labels)) / 5, truth


def all_cuts(column):
    return [NEVER, *np.unique(np.append(column, 0.0))[::-1]]


@settings(max_examples=80)
@given(st.data())
def test_macro_cuts_are_the_best_there_are(data):
    probabilities, truth = draw(data, data.draw(st.integers(1, 12)), data.draw(st.integers(2, 4)))
    cut = fit_thresholds(probabilities, truth, shrinkage=0)
    for label, (column, true) in enumerate(zip(probabilities.T, truth.T, strict=True)):
        best = max(micro(true, column >= value) for value in all_cuts(column))
        assert micro(true, column >= cut.values[label]) == pytest.approx(best, abs=1e-12)


@settings(max_examples=60)
@given(st.data())
def test_micro_cuts_are_the_joint_optimum(data):
    probabilities, truth = draw(data, data.draw(st.integers(2, 5)), data.draw(st.integers(2, 3)))
    best = max(micro(truth, probabilities >= values) for values in product(*map(all_cuts, probabilities.T)))
    cut = fit_thresholds(probabilities, truth, objective="micro", shrinkage=0)
    assert micro(truth, cut.apply(probabilities)) == pytest.approx(best, abs=1e-12)


def test_micro_gives_up_a_label_that_costs_more_than_it_brings():
    rng = np.random.default_rng(0)
    truth = np.zeros((100, 2), dtype=int)
    truth[:50, 0] = truth[7, 1] = 1
    probabilities = np.stack([np.where(truth[:, 0], 0.9, 0.1), rng.uniform(0.3, 0.8, 100)], axis=1)
    probabilities[7, 1] = 0.3
    own = fit_thresholds(probabilities, truth, objective="micro", shrinkage=0).apply(probabilities)
    assert own.sum(0).tolist() == [50, 0]
    assert fit_thresholds(probabilities, truth, shrinkage=0).apply(probabilities).sum(0).tolist() == [50, 100]


def test_cuts_lie_midway():
    probabilities = np.array([[0.9], [0.7], [0.4], [0.1]])
    assert fit_thresholds(probabilities, [[1], [1], [0], [0]], shrinkage=0).values == pytest.approx([0.55])
    assert fit_thresholds(probabilities, [[1], [1], [1], [1]], shrinkage=0).values == pytest.approx([0.05])


def test_cuts_separate_neighbouring_floats():
    below = np.float64(0.3)
    probabilities = np.array([[np.nextafter(below, 1)], [below]])
    cut = fit_thresholds(probabilities, [[1], [0]], shrinkage=0)
    assert cut.apply(probabilities).ravel().tolist() == [True, False]


def test_ties_are_never_split():
    probabilities = np.array([[0.9], [0.5], [0.5], [0.5], [0.1]])
    cut = fit_thresholds(probabilities, [[1], [1], [0], [0], [0]], shrinkage=0)
    assert cut.apply(probabilities).sum() in (1, 4)
    assert cut.apply(probabilities).sum() == 1, "F1 2/3 against 2·2/(4+2) = 2/3: the higher cut among equals"


def test_half_is_the_paper():
    cut = fit_thresholds(np.array([[0.5, 0.51], [0.2, 0.9]]), np.eye(2), objective="half")
    assert cut.values.tolist() == [0.5, 0.5]
    probabilities = np.array([[0.5, np.nextafter(0.5, 0)], [np.nextafter(0.5, 1), 0.0]])
    for dtype in (np.float64, np.float32):  # in single precision next to 0.5 becomes 0.5
        rounded = probabilities.astype(dtype)
        assert np.array_equal(cut.apply(rounded), rounded >= 0.5), "as LinearProbe counts"
    assert cut.apply(probabilities).tolist() == [[True, False], [True, False]]


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_a_label_without_positives_that_scores_the_same_everywhere_is_never_predicted(value):
    probabilities = np.array([[0.9, value], [0.1, value]])
    cut = fit_thresholds(probabilities, [[1, 0], [0, 0]])
    assert cut.apply(probabilities).tolist() == [[True, False], [False, False]]


def test_positives_with_probability_0_can_be_reached():
    cut = fit_thresholds(np.zeros((3, 1)), [[1], [1], [0]], shrinkage=0)
    assert cut.values.tolist() == [0]
    assert cut.apply(np.zeros((3, 1))).all()


def test_micro_gives_up_a_label_even_at_probability_1():
    truth = np.zeros((100, 2), dtype=int)
    truth[:50, 0] = truth[7, 1] = 1
    probabilities = np.stack([np.where(truth[:, 0], 0.9, 0.1), np.ones(100)], axis=1)
    cut = fit_thresholds(probabilities, truth, objective="micro", shrinkage=0)
    assert cut.values[1] == NEVER
    assert cut.apply(probabilities).sum(0).tolist() == [50, 0]


def test_macro_shrinks_towards_break_even():
    rng = np.random.default_rng(0)
    probabilities, truth = rng.random((200, 3)), np.zeros((200, 3), dtype=int)
    truth[:10, 0] = truth[:40, 1] = 1
    ranked = -np.sort(-probabilities, axis=0)
    break_even = np.array([(ranked[k - 1, j] + ranked[k, j]) / 2 for j, k in enumerate((10, 40, 1))])
    own = fit_thresholds(probabilities, truth, shrinkage=0).values
    weight = np.array([10 / 25, 40 / 55, 0])
    shrunk = fit_thresholds(probabilities, csr_array(truth), shrinkage=15).values
    assert shrunk == pytest.approx(expit(weight * logit(own) + (1 - weight) * logit(break_even)))
    assert own[2] == shrunk[2] == break_even[2], "no positive: predicted for the likeliest document only"


def test_calibrated_labels_shrink_towards_half_of_the_f1_they_promise():
    rng = np.random.default_rng(0)
    probabilities, truth = rng.random((200, 2)) ** 4, np.zeros((200, 2), dtype=int)
    truth[:60] = 1
    expected = [
        max(2 * column[column >= cut].sum() / ((column >= cut).sum() + column.sum()) for cut in column)
        for column in probabilities.T
    ]
    cut = fit_thresholds(probabilities, truth, shrinkage=1e12, calibrated=True).values
    assert cut == pytest.approx(np.array(expected) / 2)


@pytest.mark.parametrize("value", [0.0, 0.01, 1.0])
def test_no_promise_gives_a_label_to_every_document(value):
    probabilities = np.stack([np.linspace(0, 1, 50), np.full(50, value)], axis=1)
    truth = np.zeros((50, 2), dtype=int)
    truth[45:, 0] = 1
    assert fit_thresholds(probabilities, truth, calibrated=True).apply(probabilities)[:, 1].sum() == 0


def test_a_label_without_a_positive_that_is_nowhere_probable_is_given_to_nobody():
    """As one with a single training document and none in validation: a little less improbable is not probable."""
    rng = np.random.default_rng(0)
    probabilities = np.stack([np.linspace(0, 1, 50), 0.02 * rng.random(50)], axis=1)
    truth = np.zeros((50, 2), dtype=int)
    truth[45:, 0] = 1
    cut = fit_thresholds(probabilities, truth, calibrated=True)
    assert cut.values[1] == pytest.approx(LEAST)
    assert cut.apply(probabilities)[:, 0].any()


def test_a_label_with_positives_keeps_a_promise_below_the_least():
    probabilities = np.linspace(0, 0.02, 200)[:, None]
    truth = np.zeros((200, 1), dtype=int)
    truth[100:] = 1
    expected_f1 = max(2 * probabilities[-k:].sum() / (k + probabilities.sum()) for k in range(1, 201))
    assert expected_f1 / 2 < LEAST
    cut = fit_thresholds(probabilities, truth, shrinkage=1e12, calibrated=True)
    assert cut.values == pytest.approx([expected_f1 / 2])


def test_own_cut_of_a_label_that_is_best_given_to_most_documents_is_no_better_than_the_safe_one():
    """45 of 200 documents carry it and all score as those without it do: its own cut would let every one of them in."""
    probabilities = np.full((200, 1), 0.01)
    probabilities[:20] = 0.3
    truth = np.zeros((200, 1), dtype=int)
    truth[50:95] = 1
    for calibrated in (False, True):
        safe = fit_thresholds(probabilities, truth, calibrated=calibrated, shrinkage=1e12).values
        assert safe[0] > 0.01
        cut = fit_thresholds(probabilities, truth, calibrated=calibrated)
        np.testing.assert_array_equal(cut.values, safe)
    truth[95:105] = 1  # of a label that a quarter of the documents carry it may well be true
    assert fit_thresholds(probabilities, truth).apply(probabilities).all()


@pytest.mark.parametrize("calibrated", [False, True])
def test_a_label_of_which_the_scores_say_nothing_is_not_given_to_all(calibrated):
    """As with neighbours: all documents without one of the label have the same probability, its own among them."""
    probabilities = np.full((200, 1), 0.01)
    probabilities[:5] = 0.3
    truth = np.zeros((200, 1), dtype=int)
    truth[50:53] = 1
    cut = fit_thresholds(probabilities, truth, calibrated=calibrated)
    assert cut.apply(probabilities).sum() <= 5
    assert fit_thresholds(probabilities, truth, shrinkage=0).apply(probabilities).all(), "exact where it is asked for"


def test_micro_shrinks_towards_the_common_cut():
    rng = np.random.default_rng(0)
    probabilities, truth = rng.random((200, 3)), np.zeros((200, 3), dtype=int)
    truth[:10, 0] = truth[:40, 1] = 1
    probabilities[:40, :2] = np.sqrt(probabilities[:40, :2])
    candidates = np.unique(probabilities)
    common = max(candidates, key=lambda value: micro(truth, probabilities >= value))
    own = fit_thresholds(probabilities, truth, objective="micro", shrinkage=0).values
    shrunk = fit_thresholds(probabilities, truth, objective="micro", shrinkage=15).values
    weight = np.array([10 / 25, 40 / 55, 0])
    assert own[2] == shrunk[2] == pytest.approx(common, abs=0.01)
    assert shrunk == pytest.approx(expit(weight * logit(own) + (1 - weight) * logit(shrunk[2])))


def noisy_labels(rng, documents, labels, overconfidence=0.2):
    """Scores of labels from common to rare, each a little over- or underconfident in its own way."""
    frequency = np.geomspace(0.003, 0.2, labels)
    sharpness, slope, bias = (
        rng.uniform(1.5, 3.5, labels),
        np.exp(rng.normal(0, overconfidence, labels)),
        rng.normal(0, 2.5 * overconfidence, labels),
    )
    sets = []
    for n in documents:
        truth = rng.random((n, labels)) < frequency
        evidence = sharpness * truth + rng.normal(size=truth.shape)
        honest = sharpness * evidence - sharpness**2 / 2 + logit(frequency)  # the log-odds given the evidence
        sets.append((expit(slope * honest + bias), truth))
    return sets


def test_calibrated_probabilities_help_on_fresh_documents():
    gains = []
    for seed in range(20):
        validation, (probabilities, truth) = noisy_labels(
            np.random.default_rng(seed), documents=(600, 5000), labels=30, overconfidence=0.05
        )
        knowing, counting = (
            evaluate(truth, fit_thresholds(*validation, calibrated=calibrated).apply(probabilities))["macro_f1"]
            for calibrated in (True, False)
        )
        gains.append(knowing - counting)
    assert np.mean(gains) > 3 * np.std(gains) / np.sqrt(len(gains)), "more than chance"


@pytest.mark.parametrize("objective", ["macro", "micro"])
@pytest.mark.parametrize(("validation_documents", "least_gain"), [(600, 0.005), (3000, 0.0005)])
def test_shrinkage_helps_on_fresh_documents(objective, validation_documents, least_gain):
    gains = []
    for seed in range(20):
        validation, (probabilities, truth) = noisy_labels(
            np.random.default_rng(seed), documents=(validation_documents, 5000), labels=30
        )
        shrunk, own = (
            evaluate(truth, fit_thresholds(*validation, objective=objective, shrinkage=strength).apply(probabilities))
            for strength in (SHRINKAGE, 0)
        )
        gains.append(shrunk[f"{objective}_f1"] - own[f"{objective}_f1"])
    assert np.mean(gains) > 3 * np.std(gains) / np.sqrt(len(gains)), "more than chance"
    assert np.mean(gains) > least_gain


@pytest.mark.parametrize("objective", ["macro", "micro"])
def test_probabilities_next_to_0_and_1_can_be_cut(objective):
    truth = np.eye(6, dtype=int)[:, :2]
    probabilities = np.stack([np.where(truth[:, 0], 3e-200, 1e-200), np.where(truth[:, 1], 1.0, 1 - 1e-12)], axis=1)
    for label in range(2):
        own = probabilities[:, [label]]
        assert np.array_equal(fit_thresholds(own, truth[:, [label]], objective=objective).apply(own), truth[:, [label]])


def test_at_least_one_gives_the_most_probable_label_to_those_without():
    cut = Thresholds(np.array([0.5, 0.1, NEVER]))
    probabilities = np.array([[0.6, 0.05, 1.0], [0.4, 0.05, 0.2], [0.0, 0.0, 0.0]])
    assert cut.apply(probabilities).tolist() == [[True, False, False], [False] * 3, [False] * 3]
    assert cut.apply(probabilities, at_least_one=True).tolist() == [[True, False, False]] * 3


def test_json_round_trip_is_exact():
    rng = np.random.default_rng(0)
    cut = fit_thresholds(rng.random((50, 4)), rng.random((50, 4)) < 0.3)
    again = Thresholds.from_dict(json.loads(json.dumps(cut.to_dict(), allow_nan=False)))
    assert np.array_equal(again.values, cut.values)


def test_the_same_cuts_from_single_precision():
    rng = np.random.default_rng(0)
    probabilities, truth = rng.random((300, 5)).astype(np.float32), rng.random((300, 5)) < 0.2
    for objective in ("macro", "micro"):
        single = fit_thresholds(probabilities, truth, objective=objective, shrinkage=0)
        double = fit_thresholds(probabilities.astype(np.float64), truth, objective=objective, shrinkage=0)
        assert np.array_equal(single.values, double.values)
        assert np.array_equal(single.apply(probabilities), double.apply(probabilities.astype(np.float64)))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.full((3, 2), 0.5), np.ones((2, 2))), {}, r"probabilities and labels .* \(3, 2\) and \(2, 2\)"),
        ((np.full((3, 2), np.nan), np.ones((3, 2))), {}, "probabilities must lie .* nan in row 0, column 0"),
        ((np.full((3, 2), 2.0), np.ones((3, 2))), {}, "probabilities must lie .* found 2.0"),
        ((np.full((3, 2), 0.5), np.full((3, 2), 2)), {}, "labels must be 0 or 1 everywhere"),
        ((np.full((3, 2), 0.5), np.zeros((3, 2))), {}, r"labels of shape \(3, 2\) hold no positive"),
        ((np.full((3, 2), 0.5), np.ones((3, 2))), {"objective": "f2"}, "objective must be one of macro, micro, half"),
        ((np.full((3, 2), 0.5), np.ones((3, 2))), {"shrinkage": -1}, "shrinkage must be a finite number"),
    ],
)
def test_bad_input_is_refused_by_name(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        fit_thresholds(*arguments, **options)


def test_bad_thresholds_are_refused():
    with pytest.raises(ValueError, match=r"values must be \[labels\], each in \[0, 1\]"):
        Thresholds(np.array([0.5, np.nan]))
    with pytest.raises(ValueError, match=r"values of the thresholds .* 3 labels"):
        Thresholds(np.array([0.5, 0.5])).apply(np.full((1, 3), 0.5))
    with pytest.raises(ValueError, match="'values'"):
        Thresholds.from_dict({"cuts": [0.5]})
    with pytest.raises(ValueError, match="read-only"):
        Thresholds(np.array([0.5])).values[0] = 0.1
