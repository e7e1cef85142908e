"""`abalone evaluate MODEL` without DATA: the out-of-fold scores that the folder holds."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import judged
import tiny
from abalone import AbaloneClassifier
from abalone.cli import app

NAMES = ["[a] topic", "b", "c", "d", "e"]
TEXTS, LABELS = tiny.corpus(130)


@pytest.fixture(scope="module")
def classifier():
    model = AbaloneClassifier("words").fit(TEXTS, lists(LABELS))
    model.predictor_.out_of_fold = judged.out_of_fold(TEXTS, LABELS)
    return model


@pytest.fixture(scope="module")
def model(classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged") / "model"
    classifier.save_pretrained(folder)
    return folder


def lists(labels) -> list[list[str]]:
    return [[NAMES[j] for j in np.flatnonzero(row)] for row in labels.toarray()]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


def test_tables_for_people(model):
    result = run(model)
    assert result.exit_code == 0, result.stderr
    assert "out of fold: each of 130 documents scored by a model not trained on it" in " ".join(result.stdout.split())
    assert re.search(r"^ +out of fold( +\d+\.\d){6} *$", result.stdout, re.MULTILINE)
    assert re.search(r"^ +95 %: from( +\d+\.\d){5} *$", result.stdout, re.MULTILINE)
    assert re.search(r"^ +to( +\d+\.\d){5} *$", result.stdout, re.MULTILINE)
    assert "The labels with the lowest F1" in result.stdout
    assert re.search(r"\[a\] topic( +\d+){3}( +\d+\.\d){3}", result.stdout)
    assert result.stderr == ""


def test_json_has_scores_intervals_and_labels(model, classifier):
    told = json.loads(run(model, "--json").stdout, parse_constant=pytest.fail)
    scores, by_label = classifier.evaluate_out_of_fold()
    assert {name: told[name] for name in scores} == scores
    low, high = told["intervals"]["macro_f1_tail"]
    assert low <= scores["macro_f1_tail"] <= high
    assert (told["documents"], told["folds"], told["absent_labels"], told["untaught_labels"]) == (130, 3, 0, 0)
    assert [label["name"] for label in told["labels"]] == [label.name for label in by_label]


def test_labels_that_cannot_be_judged_are_named(classifier, tmp_path):
    labels = LABELS.toarray()
    labels[:, 1] = 0
    labels[:, 2] = np.arange(130) == 7
    model = AbaloneClassifier("words").fit(TEXTS, lists(LABELS))
    statistics = model.predictor_.story["statistics"]
    statistics["frequencies"] = [*statistics["frequencies"][:2], 1, *statistics["frequencies"][3:]]
    model.predictor_.out_of_fold = judged.out_of_fold(TEXTS, labels)
    model.save_pretrained(tmp_path / "model")
    result = run(tmp_path / "model", "--json")
    assert result.stderr.splitlines() == [
        "note: 1 of the 5 labels occur in no held-out document. Each counts as F1 0 in macro-F1: b.",
        "note: 1 of the 5 labels have all their documents in one fold, so the model that scored that fold could not "
        "learn the label: c.",
    ]
    told = json.loads(result.stdout)
    assert (told["absent_labels"], told["untaught_labels"]) == (1, 1)


def test_a_model_without_them_says_to_give_data(classifier, tmp_path):
    AbaloneClassifier("words", folds=0).fit(TEXTS, lists(LABELS)).save_pretrained(tmp_path / "bare")
    result = run(tmp_path / "bare")
    assert result.exit_code == 2
    assert "bare: this model has no out-of-fold scores" in result.stderr
    assert "give labelled documents (DATA) to score it on" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere",), "nowhere is not a model folder"),
        (("{model}", "--split", "test"), "--split needs DATA"),
        (("{model}", "--text-column", "body"), "--text-column needs DATA"),
        (("{model}", "--drop-duplicates"), "--drop-duplicates needs DATA"),
        (("{model}/abalone.json",), "is a file, which has no out-of-fold scores: give its model folder"),
    ],
)
def test_mistakes_end_in_status_2(arguments, told, model):
    result = run(*(argument.format(model=model) for argument in arguments))
    assert result.exit_code == 2
    assert told in result.stderr


def test_documents_that_are_all_known_are_answered_with_the_way_to_these_scores(model, tmp_path):
    tiny.write_jsonl(tmp_path / "same.jsonl", TEXTS, lists(LABELS), [None] * 130)
    result = run(model, tmp_path / "same.jsonl")
    assert result.exit_code == 2
    assert "add --split all" in result.stderr
    assert f"run `abalone evaluate {model}` without DATA for its out-of-fold scores" in result.stderr
    assert run(model, tmp_path / "same.jsonl", "--split", "all").exit_code == 0


def test_neither_torch_nor_transformers_are_needed(model):
    script = f"import sys; from abalone.cli import app; app(['evaluate', {str(model)!r}], standalone_mode=False); " + (
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("[]")
