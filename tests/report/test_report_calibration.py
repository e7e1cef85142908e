"""Reliability and the worth of thresholds, against the library's own figures."""

import numpy as np
import pytest
import reported

from abalone.evaluation.calibration import expected_calibration_error
from abalone.evaluation.metrics import evaluate
from abalone.report.calibration import reliability, reliability_by_third, threshold_worth


def test_the_bins_sum_to_the_calibration_error():
    answers = reported.run().scored
    found = reliability("all", answers.probabilities, answers.truth)
    gap = np.abs(np.array(found.said) - np.array(found.true)) @ np.array(found.pairs) / sum(found.pairs)
    assert gap == pytest.approx(expected_calibration_error(answers.probabilities, answers.truth))
    assert found.error == pytest.approx(gap)
    assert sum(found.pairs) == answers.probabilities.size


def test_probabilities_that_mean_what_they_say_lie_on_the_diagonal():
    rng = np.random.default_rng(0)
    probabilities = rng.random((20000, 1))
    from scipy.sparse import csr_array

    truth = csr_array((rng.random((20000, 1)) < probabilities).astype(int))
    found = reliability("all", probabilities, truth)
    assert np.allclose(found.said, found.true, atol=0.05)


def test_thirds_are_apart_and_an_empty_one_is_left_out():
    answers = reported.run(labels=7).scored
    found = reliability_by_third(answers.probabilities, answers.truth, reported.run(labels=7).thirds)
    assert [part.group for part in found] == ["all", "head", "medium", "tail"]
    assert sum(sum(part.pairs) for part in found[1:]) == sum(found[0].pairs)
    two = reported.run(labels=2)
    found = reliability_by_third(two.scored.probabilities, two.scored.truth, two.thirds)
    assert [part.group for part in found] == ["all", "head", "medium"]


def test_hindsight_is_the_best_and_the_chosen_is_the_runs_own():
    run = reported.run()
    worth = threshold_worth(run)
    own = evaluate(run.scored.truth, run.scored.predictions, frequencies=run.frequencies)
    assert worth["chosen"] == own
    half = evaluate(run.scored.truth, run.scored.probabilities >= 0.5, frequencies=run.frequencies)
    assert worth["half"] == half
    assert worth["hindsight"]["macro_f1"] >= max(worth["chosen"]["macro_f1"], half["macro_f1"])


def test_without_a_positive_there_is_no_hindsight():
    run = reported.run(truth=np.zeros((10, 4)))
    assert list(threshold_worth(run)) == ["half", "chosen"]
