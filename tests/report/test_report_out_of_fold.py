"""The page with out-of-fold predictions."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import reported

import judged
from abalone.evaluation.calibration import expected_calibration_error
from abalone.evaluation.matrices import EVERY
from abalone.evaluation.metrics import evaluate
from abalone.report.analysis import reliability, threshold_worth
from abalone.report.page import as_script_data
from abalone.report.payload import report_payload
from abalone.report.runs import Answers, Documents
from abalone.report.runs import _answers as run_answers


def test_out_of_fold_scores_equal_those_of_the_folder():
    run = reported.judged_run()
    payload = report_payload([run], None)
    (shown,) = payload["runs"]
    answers = run.out_of_fold
    assert payload["documents"] is None
    assert shown["scores"] == answers.scores(run.frequencies)
    assert shown["by_label"]["f1"] == [row.f1 for row in answers.by_label(run.label_names)]
    assert shown["intervals"]["macro_f1_tail"][1:] == [
        getattr(answers.intervals(run.frequencies)["macro_f1_tail"], end) for end in ("low", "high")
    ]
    assert shown["thresholds"]["chosen"] == evaluate(answers.labels, answers.given, frequencies=run.frequencies)
    assert [part["group"] for part in shown["reliability"]] == ["all", "head", "medium", "tail"]
    assert shown["confusion"]["pairs"]
    assert shown["out_of_fold"]["documents"] == 60
    assert shown["out_of_fold"]["folds"] == 3
    assert shown["cross_fitted"]
    assert not {"map", "worst", "clustering"} & set(shown)  # there are no texts and no embeddings
    assert "document 1" not in as_script_data(payload)


def test_tf_idf_alone_out_of_fold_is_the_baseline():
    run = reported.judged_run()
    stored = {"out of fold": {"macro_f1": 0.5}, "out of fold, tf-idf alone": {"macro_f1": 0.25}}
    assert report_payload([run], None)["runs"][0]["baseline"] is None
    told = replace(run, story={**run.story, "scores": stored})
    assert report_payload([told], None)["runs"][0]["baseline"] == {"macro_f1": 0.25}


def test_documents_take_precedence_over_out_of_fold_predictions():
    run = replace(reported.judged_run(), answers=reported.run().scored)
    (shown,) = report_payload([run], reported.documents_of(run))["runs"]
    assert "out_of_fold" not in shown
    assert shown["cross_fitted"]
    assert shown["scores"] != run.out_of_fold.scores(run.frequencies)


def test_runs_on_the_same_documents_in_another_order_are_compared():
    one = reported.judged_run("one")
    two = reported.judged_run("two", seed=1, order=np.random.default_rng(0).permutation(60))
    comparison = report_payload([one, two], None)["comparison"]
    assert comparison["documents"] == 60
    for place, run in enumerate((one, two)):
        expected = run.out_of_fold.scores(run.frequencies)["macro_f1"]
        assert comparison["scores"][place]["macro_f1"][0] == pytest.approx(expected)
    same = report_payload([one, reported.judged_run("two")], None)["comparison"]
    assert same["differences"][0][1]["macro_f1"] == [0, 0, 0]  # draw by draw


def test_runs_on_different_documents_are_not_compared():
    runs = [reported.judged_run("one"), reported.judged_run("two", order=np.arange(40))]
    payload = report_payload(runs, None)
    assert payload["comparison"] is None
    assert [run["out_of_fold"]["documents"] for run in payload["runs"]] == [60, 40]
    other = replace(runs[0], label_names=tuple("abcdefg"))
    assert report_payload([runs[0], other], None)["comparison"] is None  # no label in common


def test_documents_without_out_of_fold_prediction_are_refused():
    class Model:
        label_names = tuple("abcde")
        predictor_ = SimpleNamespace(backend=None, out_of_fold=None, story={})

    texts = ["one", "two"]
    documents = Documents("made up", "out of fold", texts, [["a"], []])
    with pytest.raises(ValueError, match="this model has no out-of-fold scores"):
        run_answers(Model, documents)
    Model.predictor_.out_of_fold = judged.out_of_fold(texts[:1], np.eye(1, 5))
    with pytest.raises(ValueError, match="1 of 2 documents have no out-of-fold prediction"):
        run_answers(Model, documents)
    Model.predictor_.out_of_fold = judged.out_of_fold([*texts, "three"], np.eye(3, 5))
    found = run_answers(Model, documents)
    assert found.truth.toarray().tolist() == [[1, 0, 0, 0, 0], [0] * 5]  # as the data has it now
    np.testing.assert_array_equal(found.predictions, Model.predictor_.out_of_fold.given.toarray()[:2])


def test_no_scores_are_shown_where_one_run_has_no_out_of_fold_predictions():
    payload = report_payload([reported.judged_run("one"), replace(reported.run("two"), answers=None)], None)
    assert [("scores" in run, run["cross_fitted"]) for run in payload["runs"]] == [(False, True), (False, False)]


def test_calibration_by_blocks_equals_that_of_the_whole(monkeypatch):
    from abalone.evaluation import matrices

    run = reported.judged_run()
    truth, probabilities = run.out_of_fold.labels, run.out_of_fold.said()
    whole = reliability("all", probabilities[EVERY, EVERY], truth)
    assert whole.error == pytest.approx(expected_calibration_error(probabilities[EVERY, EVERY], truth))
    worth = threshold_worth(replace(run, answers=Answers.out_of_fold(run.out_of_fold)))
    monkeypatch.setattr(matrices, "AT_ONCE", 50)
    by_blocks = reliability("all", probabilities, truth)
    assert by_blocks.pairs == whole.pairs
    assert by_blocks.said == pytest.approx(whole.said)
    assert by_blocks.error == pytest.approx(whole.error)
    assert threshold_worth(replace(run, answers=Answers.out_of_fold(run.out_of_fold))) == worth
    assert worth["hindsight"]["macro_f1"] >= worth["chosen"]["macro_f1"]
