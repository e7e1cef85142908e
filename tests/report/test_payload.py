"""The data of the page against the library's own numbers."""

from dataclasses import replace

import numpy as np
import pytest
import reported

from abalone.evaluation.metrics import LabelScore, evaluate, per_label
from abalone.report.payload import needs_examples, report_payload
from abalone.report.runs import LIMIT_OF_MAP, sample


def payload_of(*runs, texts=None):
    return report_payload(runs, reported.documents_of(runs[0], texts))


def test_scores_equal_evaluate_and_per_label():
    run = reported.run()
    shown = payload_of(run)["runs"][0]
    answers = run.scored
    assert shown["scores"] == evaluate(
        answers.truth, answers.predictions, probabilities=answers.probabilities, frequencies=run.frequencies
    )
    table = per_label(answers.truth, answers.predictions, run.label_names, run.frequencies)
    assert shown["by_label"]["f1"] == [row.f1 for row in table]
    assert shown["by_label"]["support"] == [row.support for row in table]
    assert shown["intervals"]["macro_f1"][0] == pytest.approx(shown["scores"]["macro_f1"])
    assert shown["labels"]["third"].tolist() == run.thirds.tolist()
    assert shown["labels"]["threshold"] == run.decision.thresholds.values.tolist()


def test_labels_that_need_examples_are_rare_and_found_badly_the_worst_first():
    def label(frequency, support, f1):
        return LabelScore("a label", frequency, support, 1, f1, f1, f1)

    table = [
        label(5, 4, 0.4),
        label(500, 9, 0.1),  # has examples
        label(20, 3, 0.0),
        label(8, 0, 0.0),  # nothing is known of it
        label(8, 3, 0.9),  # is found well
        label(10, 3, 0.0),
    ]
    assert needs_examples(table) == [5, 2, 0]


def test_baseline_scores_are_shown():
    run = reported.run()
    assert payload_of(run)["runs"][0]["baseline"] is None
    with_tfidf = replace(run, answers=replace(run.scored, baseline={"macro_f1": 0.25}))
    assert payload_of(with_tfidf)["runs"][0]["baseline"] == {"macro_f1": 0.25}


def test_map_has_true_and_predicted_labels():
    run = reported.run()
    payload = payload_of(run)
    truth, given = run.scored.truth.toarray(), run.scored.predictions
    assert payload["documents"]["truth"] == [np.flatnonzero(row).tolist() for row in truth]
    shown = payload["runs"][0]["map"]
    assert [row.tolist() for row in shown["given"]] == [np.flatnonzero(row).tolist() for row in given]
    assert shown["layouts"]["tsne"].shape == (60, 2)
    assert len(shown["loss"]) == len(payload["documents"]["texts"]) == 60


def test_worst_documents_have_true_predicted_and_likely_labels():
    run = reported.run(labels=9)
    worst = payload_of(run)["runs"][0]["worst"][0]
    row = worst["row"]
    assert worst["text"] == f"document {row}"
    of = {entry["label"]: entry for entry in worst["labels"]}
    truth, given = run.scored.truth.toarray()[row], run.scored.predictions[row]
    assert {label for label, entry in of.items() if entry["meant"]} == set(np.flatnonzero(truth).tolist())
    assert {label for label, entry in of.items() if entry["given"]} == set(np.flatnonzero(given).tolist())
    probabilities = [entry["probability"] for entry in worst["labels"]]
    assert probabilities == sorted(probabilities, reverse=True)
    assert probabilities[0] == run.scored.probabilities[row].max()


def test_runs_are_compared_in_both_directions():
    runs = [reported.run(name, seed=seed) for seed, name in enumerate("abc")]
    comparison = payload_of(*runs)["comparison"]
    assert comparison["shared"] == 7
    macro = [scores["macro_f1"][0] for scores in comparison["scores"]]
    for a in range(3):
        for b in range(3):
            value, low, high = comparison["differences"][a][b]["macro_f1"]
            assert value == pytest.approx(macro[a] - macro[b])
            assert low <= value <= high


def test_runs_with_different_labels_are_compared_on_shared_ones():
    truth = np.random.default_rng(3).random((50, 3)) < 0.5
    one = reported.run("one", truth=truth, names=["a", "b", "c"])
    two = reported.run("two", truth=truth[:, [2, 0]], names=["c", "a"])
    payload = payload_of(one, two)
    assert payload["labels"] == ("a", "b", "c")
    assert payload["runs"][1]["labels"]["index"].tolist() == [2, 0]
    assert payload["comparison"]["shared"] == 2
    given = np.array([2, 0])[two.scored.predictions[0]]
    assert payload["runs"][1]["map"]["given"][0].tolist() == given.tolist()
    columns = [0, 2]
    expected = evaluate(one.scored.truth[:, columns], one.scored.predictions[:, columns])["macro_f1"]
    assert payload["comparison"]["scores"][0]["macro_f1"][0] == pytest.approx(expected)
    assert payload["comparison"]["scores"][1]["macro_f1"][0] == pytest.approx(
        evaluate(two.scored.truth, two.scored.predictions)["macro_f1"]
    )


def test_runs_without_a_label_in_common_are_refused():
    truth = np.ones((8, 2))
    runs = reported.run("one", truth=truth, names=["a", "b"]), reported.run("two", truth=truth, names=["c", "d"])
    with pytest.raises(ValueError, match="the runs one, two have no label in common"):
        payload_of(*runs)


def test_payload_without_positives_and_with_a_single_label():
    payload = payload_of(reported.run(truth=np.zeros((12, 4))))
    assert payload["documents"]["unlabelled"] == 12
    assert payload["runs"][0]["clustering"] is None
    payload = payload_of(reported.run(truth=np.ones((12, 1))))
    assert payload["runs"][0]["by_label"]["support"] == [12]


def test_threshold_above_one_is_none():
    from dataclasses import replace

    from abalone.evaluation.decision import NEVER, Decision, Thresholds

    run = reported.run(labels=3)
    never = replace(run, decision=Decision(Thresholds(np.array([0.5, NEVER, 1.0]))))
    assert payload_of(never)["runs"][0]["labels"]["threshold"] == [0.5, None, 1.0]


def test_payload_without_documents_has_the_folders_metadata():
    payload = report_payload([reported.run()], None)
    assert payload["documents"] is None
    assert payload["comparison"] is None
    assert "scores" not in payload["runs"][0]
    assert payload["runs"][0]["statistics"]["train"] == 900


def test_sample_is_fixed():
    rows = sample(LIMIT_OF_MAP + 500)
    assert len(set(rows.tolist())) == LIMIT_OF_MAP
    assert np.array_equal(rows, np.sort(rows))
    assert np.array_equal(rows, sample(LIMIT_OF_MAP + 500))
    assert sample(7).tolist() == list(range(7))
