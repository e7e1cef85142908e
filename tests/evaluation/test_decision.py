"""From logits to labels: what is fitted, what is asked for, and what a file gives back."""

import json

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit

from abalone.config import Config
from abalone.evaluation.decision import Decision, Mixture, TemperatureCalibration, Thresholds
from abalone.evaluation.metrics import evaluate
from abalone.evaluation.mixing import choose_weights, fit_decision
from abalone.evaluation.thresholds import fit_thresholds

DOCUMENTS, LABELS = 400, 4
FREQUENCIES = np.array([900, 300, 60, 20])


@pytest.fixture(scope="module")
def validation():
    """Labels; logits of a weak classifier, three times too sure of itself; and those of an expert that knows better."""
    rng = np.random.default_rng(0)
    truth = rng.random((DOCUMENTS, LABELS)) < [0.5, 0.3, 0.2, 0.1]
    weak = 3 * (np.where(truth, 1.0, -1.0) + rng.normal(0, 1.5, truth.shape))
    expert = np.where(truth, 2.0, -2.0) + rng.normal(0, 0.8, truth.shape)
    return csr_array(truth.astype(np.int32)), weak, expert


def test_each_part_is_fitted(validation):
    truth, weak, expert = validation
    decision = fit_decision(weak, {"lexical": expert}, truth, FREQUENCIES, Config())
    assert decision.mixture.weights["lexical"] > 0.5
    assert decision.calibration is not None
    assert decision.thresholds.values.shape == (LABELS,)
    assert not decision.at_least_one
    probabilities = decision.probabilities(weak, {"lexical": expert})
    alone = fit_decision(weak, {}, truth, FREQUENCIES, Config())
    scores, scores_alone = (
        evaluate(truth, labels)["macro_f1"]
        for labels in (decision.labels(probabilities), alone.labels(alone.probabilities(weak, {})))
    )
    assert scores > scores_alone + 0.1
    assert (alone.calibration.temperatures > 1.5).all()  # takes the confidence back


def test_thresholds_are_fitted_to_calibrated_probabilities(validation):
    """The parts follow each other: labels are those of the probabilities that people see."""
    truth, weak, _ = validation
    decision = fit_decision(weak, {}, truth, FREQUENCIES, Config())
    probabilities = decision.probabilities(weak, {})
    np.testing.assert_array_equal(decision.labels(probabilities), probabilities >= decision.thresholds.values)
    plain = fit_decision(weak, {}, truth, FREQUENCIES, Config(calibrate=False))
    assert plain.calibration is None
    np.testing.assert_array_equal(plain.probabilities(weak, {}), expit(weak))
    assert not np.allclose(plain.thresholds.values, decision.thresholds.values)


def test_half_is_the_papers(validation):
    truth, weak, _ = validation
    decision = fit_decision(weak, {}, truth, FREQUENCIES, Config(thresholds="half", calibrate=False))
    np.testing.assert_array_equal(decision.labels(decision.probabilities(weak, {})), weak >= 0)


@pytest.mark.parametrize("objective", ["macro", "micro"])
def test_weights_and_thresholds_are_tuned_for_what_is_asked(objective, validation):
    truth, weak, expert = validation
    decision = fit_decision(weak, {"lexical": expert}, truth, FREQUENCIES, Config(thresholds=objective))
    assert decision.mixture == choose_weights(weak, {"lexical": expert}, truth, objective)
    probabilities = decision.probabilities(weak, {"lexical": expert})
    expected = fit_thresholds(probabilities, truth, objective=objective, calibrated=True)
    np.testing.assert_array_equal(decision.thresholds.values, expected.values)


def test_at_least_one_label(validation):
    truth, weak, _ = validation
    bare, full = (
        fit_decision(weak, {}, truth, FREQUENCIES, Config(at_least_one=wanted)).labels(expit(weak))
        for wanted in (False, True)
    )
    assert not bare.any(axis=1).all()
    assert full.any(axis=1).all()
    had_one = bare.any(axis=1)
    np.testing.assert_array_equal(full[had_one], bare[had_one])
    np.testing.assert_array_equal(full[~had_one].argmax(axis=1), weak[~had_one].argmax(axis=1))


@pytest.mark.parametrize(
    "decision",
    [
        Decision(Thresholds(np.array([0.1, 1 / 3]))),
        Decision(
            Thresholds(np.array([0.1, 1 / 3])),
            Mixture({"lexical": 0.15, "neighbours": 0.0}),
            TemperatureCalibration(np.array([1 / 3, 7.0]), np.array([1, 0])),
            at_least_one=True,
        ),
    ],
    ids=["plain", "with everything"],
)
def test_read_back_from_json_it_is_the_same_to_the_bit(decision):
    again = Decision.from_dict(json.loads(json.dumps(decision.to_dict())))
    rng = np.random.default_rng(0)
    logits, experts = rng.normal(size=(50, 2)), {"lexical": rng.normal(size=(50, 2))}
    probabilities = decision.probabilities(logits, experts)
    np.testing.assert_array_equal(again.probabilities(logits, experts), probabilities)
    np.testing.assert_array_equal(again.labels(probabilities), decision.labels(probabilities))
    assert again.to_dict() == decision.to_dict()


def test_no_documents_have_no_labels():
    decision = Decision(Thresholds(np.array([0.5, 0.5])), at_least_one=True)
    assert decision.labels(np.empty((0, 2))).shape == (0, 2)


def test_an_expert_that_is_missing_is_named():
    decision = Decision(Thresholds(np.array([0.5])), Mixture({"lexical": 0.5}))
    with pytest.raises(ValueError, match="the mixture needs the logits of 'lexical'"):
        decision.probabilities(np.zeros((1, 1)), {})


def test_validation_without_any_label_is_refused(validation):
    _, weak, _ = validation
    nothing = csr_array((DOCUMENTS, LABELS), dtype=np.int32)
    with pytest.raises(ValueError, match="hold no positive to choose thresholds by"):
        fit_decision(weak, {}, nothing, FREQUENCIES, Config())
    decision = fit_decision(weak, {}, nothing, FREQUENCIES, Config(thresholds="half"))
    assert decision.calibration.temperatures.tolist() == [1.0, 1.0, 1.0]
