"""Draws are those of documents drawn one by one, and differences are taken draw by draw."""

import numpy as np
import pytest
import reported

from abalone.evaluation.bootstrap import draw_scores
from abalone.evaluation.metrics import evaluate


@pytest.fixture(scope="module")
def pair():
    return reported.run(seed=1), reported.run(seed=2)


@pytest.mark.parametrize("held", [2**22, 300])
def test_draws_are_those_of_documents_drawn_one_by_one(held, pair, monkeypatch):
    """All at once, or several blocks of them."""
    monkeypatch.setattr("abalone.evaluation.bootstrap.DRAWN_AT_ONCE", held)
    run = pair[0]
    truth, predictions = run.scored.truth.toarray(), run.scored.predictions
    drawn = draw_scores(run.scored.truth, predictions, run.thirds, samples=40, seed=3)
    expected = evaluate(truth, predictions, frequencies=run.frequencies)
    assert set(drawn.scores) == {"micro_f1", "macro_f1", "macro_f1_head", "macro_f1_medium", "macro_f1_tail"}
    assert drawn.scores == pytest.approx({name: expected[name] for name in drawn.scores}, abs=1e-12)
    rows = np.random.default_rng(3).integers(len(truth), size=(40, len(truth)))
    each = [evaluate(truth[draw], predictions[draw], frequencies=run.frequencies) for draw in rows]
    for name, interval in drawn.intervals().items():
        values = [scores[name] for scores in each]
        np.testing.assert_allclose(drawn.draws[name], values, atol=1e-12)
        assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])))


def test_an_interval_holds_the_value_and_narrows_with_documents():
    widths = []
    for documents in (200, 3200):
        run = reported.run(documents=documents)
        drawn = draw_scores(run.scored.truth, run.scored.predictions, run.thirds, samples=300)
        interval = drawn.intervals()["macro_f1"]
        assert interval.low < interval.value < interval.high
        widths.append(interval.high - interval.low)
    assert widths[0] / widths[1] == pytest.approx(4, rel=0.35)  # 1/√n


def test_predictions_of_other_documents_are_refused(pair):
    run = pair[0]
    with pytest.raises(ValueError, match="truth and predictions"):
        draw_scores(run.scored.truth, run.scored.predictions[1:], run.thirds)


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
