"""Intervals agree with the library's, and differences are taken draw by draw."""

import numpy as np
import pytest
import reported

from abalone.evaluation.metrics import bootstrap_interval, evaluate
from abalone.report.bootstrap import draw_scores


@pytest.fixture(scope="module")
def pair():
    return reported.run(seed=1), reported.run(seed=2)


def test_scores_and_intervals_are_those_of_the_library(pair):
    run = pair[0]
    drawn = draw_scores(run.scored.truth, run.scored.predictions, run.thirds, samples=200, seed=3)
    expected = evaluate(run.scored.truth, run.scored.predictions, frequencies=run.frequencies)
    assert set(drawn.scores) == {"micro_f1", "macro_f1", "macro_f1_head", "macro_f1_medium", "macro_f1_tail"}
    for name, interval in drawn.intervals().items():
        assert interval.value == pytest.approx(expected[name], abs=1e-12)
        low, high = bootstrap_interval(
            run.scored.truth, run.scored.predictions, name, samples=200, seed=3, frequencies=run.frequencies
        )
        assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-12)


def test_all_draws_are_made_however_few_are_held_at_once(pair, monkeypatch):
    run = pair[0]
    whole = draw_scores(run.scored.truth, run.scored.predictions, run.thirds, samples=50)
    monkeypatch.setattr("abalone.report.bootstrap.DRAWN_AT_ONCE", 60 * 7)
    parts = draw_scores(run.scored.truth, run.scored.predictions, run.thirds, samples=50)
    assert all(len(drawn) == 50 for drawn in parts.draws.values())
    assert parts.scores == whole.scores


def test_a_difference_is_taken_on_the_same_draws(pair):
    one, two = (draw_scores(r.scored.truth, r.scored.predictions, r.thirds, samples=300) for r in pair)
    difference = one.against(two)["macro_f1"]
    assert difference.value == pytest.approx(one.scores["macro_f1"] - two.scores["macro_f1"])
    assert difference.low < difference.value < difference.high
    back = two.against(one)["macro_f1"]
    assert (back.value, back.low, back.high) == pytest.approx((-difference.value, -difference.high, -difference.low))
    same = one.against(one)["macro_f1"]
    assert (same.low, same.high) == (0, 0)  # independent draws would leave a width


def test_paired_draws_are_narrower_than_independent_ones(pair):
    """The reason for pairing: documents that are hard for one run are hard for the other."""
    run = pair[0]
    nearly = run.scored.predictions.copy()
    nearly[0] = ~nearly[0]
    one = draw_scores(run.scored.truth, run.scored.predictions, run.thirds, samples=300)
    two = draw_scores(run.scored.truth, nearly, run.thirds, samples=300)
    paired = np.std(one.draws["micro_f1"] - two.draws["micro_f1"])
    assert paired < 0.5 * np.hypot(np.std(one.draws["micro_f1"]), np.std(two.draws["micro_f1"]))
