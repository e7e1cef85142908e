import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import expit
from sklearn.metrics import log_loss

from abalone.evaluation.calibration import expected_calibration_error, fit_temperatures
from abalone.evaluation.decision import TemperatureCalibration
from abalone.evaluation.metrics import label_thirds


def cross_entropy(truth, probabilities):
    return log_loss(np.asarray(truth).ravel(), probabilities.ravel(), labels=[0, 1])


def planted(temperatures, documents=20_000, seed=0):
    """Logits that are too sure (T > 1) or too shy (T < 1) by a known factor for each label."""
    rng = np.random.default_rng(seed)
    honest = rng.normal(-1, 1.5, (documents, len(temperatures)))
    return honest * temperatures, rng.random(honest.shape) < expit(honest)


def test_planted_temperatures_are_found():
    groups = label_thirds(np.array([900, 20, 100, 800, 30, 90]))
    logits, truth = planted(np.array([2.0, 1.0, 0.5])[groups])
    calibration = fit_temperatures(logits, csr_array(truth.astype(int)), groups)
    assert calibration.temperatures == pytest.approx([2.0, 1.0, 0.5], rel=0.04)
    probabilities = calibration.apply(logits)
    assert expected_calibration_error(probabilities, truth) < 0.005
    assert expected_calibration_error(expit(logits), truth) > 0.03
    assert cross_entropy(truth, probabilities) < cross_entropy(truth, expit(logits))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    documents=st.integers(1, 30),
    labels=st.integers(1, 7),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    scale=st.sampled_from([0.01, 1.0, 30.0]),
)
def test_cross_entropy_is_never_raised(seed, documents, labels, share, scale):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, scale, (documents, labels))
    truth = rng.random(logits.shape) < share
    calibration = fit_temperatures(logits, truth, rng.integers(0, 3, labels))
    before = np.logaddexp(0, np.where(truth, -logits, logits)).sum()
    scaled = logits / calibration.temperatures[calibration.groups]
    assert np.logaddexp(0, np.where(truth, -scaled, scaled)).sum() <= before * (1 + 1e-12)
    assert np.isfinite(calibration.temperatures).all()


def test_a_group_without_positives_takes_the_temperature_of_all_labels():
    groups = np.array([0, 0, 1, 3])  # nobody is in group 2
    logits, truth = planted(np.array([2.0, 2.0, 3.0, 3.0]), documents=2000)
    truth[:, 2] = False
    truth[:, 3] = True
    together = fit_temperatures(logits, truth, np.zeros(4, dtype=int)).temperatures[0]
    calibration = fit_temperatures(logits, truth, groups)
    assert calibration.temperatures[1:] == pytest.approx([calibration.temperatures[1]] * 3)
    assert calibration.temperatures[1] == pytest.approx(together, rel=0.01)  # a group of its own has its own prior
    assert calibration.temperatures[0] == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize("documents", [1, 4, 40])
def test_a_split_that_is_told_apart_wholly_leaves_some_doubt(documents):
    truth = np.tile([[True, False]], (documents, 1))
    logits = np.where(truth, 2.0, -2.0)
    temperature = fit_temperatures(logits, truth, np.zeros(2, dtype=int)).temperatures[0]
    assert 0.2 < temperature < 1
    more = fit_temperatures(np.tile(logits, (2, 1)), np.tile(truth, (2, 1)), np.zeros(2, dtype=int)).temperatures[0]
    assert more < temperature  # the prior wanes with what there is to learn from


def test_nothing_to_learn_from_changes_nothing():
    logits = np.array([[1.0, -2.0]])
    calibration = fit_temperatures(logits, np.zeros((1, 2)), np.array([0, 1]))
    assert calibration.apply(logits) == pytest.approx(expit(logits))


def test_order_within_a_label_stays():
    logits, truth = planted(np.array([3.0, 0.5]), documents=300)
    probabilities = fit_temperatures(logits, truth, np.array([0, 1])).apply(logits)
    assert np.array_equal(np.argsort(logits, axis=0), np.argsort(probabilities, axis=0))


def test_json_round_trip_is_exact():
    logits, truth = planted(np.array([2.0, 0.7, 1.3]), documents=200)
    calibration = fit_temperatures(logits, truth, np.array([0, 1, 2]))
    again = TemperatureCalibration.from_dict(json.loads(json.dumps(calibration.to_dict(), allow_nan=False)))
    assert np.array_equal(again.apply(logits), calibration.apply(logits))


def test_expected_calibration_error_is_that_of_a_loop():
    rng = np.random.default_rng(0)
    probabilities, truth = rng.random((80, 6)), rng.random((80, 6)) < 0.4
    probabilities[0, :3] = [0.0, 1.0, 0.2]  # on the edges
    error = 0.0
    for low in np.arange(5) / 5:
        inside = (probabilities >= low) & ((probabilities < low + 0.2) | (low == 0.8))
        error += inside.mean() * abs(probabilities[inside].mean() - truth[inside].mean())
    assert expected_calibration_error(probabilities, truth, bins=5) == pytest.approx(error)
    assert expected_calibration_error(probabilities, csr_array(truth * 1), bins=5) == pytest.approx(error)


def test_expected_calibration_error_of_certainty():
    truth = np.eye(3)
    assert expected_calibration_error(truth, truth) == 0
    assert expected_calibration_error(1 - truth, truth) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((3, 2)), np.ones((3, 3)), [0, 0]), r"logits and labels .* \(3, 2\) and \(3, 3\)"),
        ((np.zeros(3), np.ones((3, 1)), [0]), r"logits must be \[documents, labels\].* \(3,\)"),
        ((np.array([[0.0, np.nan]]), np.ones((1, 2)), [0, 0]), "logits hold nan in row 0, column 1"),
        ((np.array([[0.0, np.inf]]), np.ones((1, 2)), [0, 0]), "logits hold inf in row 0, column 1"),
        ((np.zeros((3, 2)), np.full((3, 2), 3), [0, 0]), "labels must be 0 or 1"),
        ((np.zeros((3, 2)), np.ones((3, 2)), [0]), r"groups .* 2 labels, got shape \(1,\)"),
        ((np.zeros((3, 2)), np.ones((3, 2)), [0, -1]), "groups must be .* integers from 0"),
        ((np.zeros((3, 2)), np.ones((3, 2)), [0.0, 1.0]), "groups must be .* integers from 0, got float64"),
    ],
)
def test_bad_input_is_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_temperatures(*arguments)


def test_bad_calibrations_are_refused():
    with pytest.raises(ValueError, match="temperatures must be"):
        TemperatureCalibration(np.array([0.0]), np.array([0]))
    with pytest.raises(ValueError, match="group 1, but there are 1 temperatures"):
        TemperatureCalibration(np.array([1.0]), np.array([0, 1]))
    with pytest.raises(ValueError, match=r"groups of the calibration .* 3 labels"):
        TemperatureCalibration(np.array([1.0]), np.array([0, 0])).apply(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="'temperatures' and 'groups'"):
        TemperatureCalibration.from_dict({"temperatures": [1.0]})
    with pytest.raises(ValueError, match="probabilities must lie"):
        expected_calibration_error(np.array([[1.5]]), np.array([[1]]))
    with pytest.raises(ValueError, match="bins must be at least 1"):
        expected_calibration_error(np.array([[0.5]]), np.array([[1]]), bins=0)
