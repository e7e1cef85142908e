"""`abalone evaluate`: scores of a split, and what is said of splits and labels that do not fit."""

import json
import re
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import tiny
from abalone import AbaloneClassifier, load_corpus
from abalone.cli import app

NAMES = ["[a] topic", "b", "c", "d", "e_" + "and_other_long_names_" * 4]
TEXTS, LABELS = tiny.corpus(200)
SPLITS = ["train"] * 120 + ["val"] * 30 + ["test"] * 50


def lists(labels) -> list[list[str]]:
    return [[NAMES[j] for j in np.flatnonzero(row)] for row in labels.toarray()]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """Mostly a lexical model, which sees the very words that decide; the encoder is as it was made, at random."""
    folder = tmp_path_factory.mktemp("evaluate")
    encoder = tiny.save_encoder(folder / "encoder")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "on validation the model .* does not beat tf-idf")
        patch.setenv("ABALONE_CACHE", str(folder / "cache"))
        classifier = AbaloneClassifier(
            encoder=encoder, pooling="mean", max_length=20, epochs=0, lexical=True, device="cpu"
        )
        return classifier.fit(TEXTS[:120], lists(LABELS[:120]), validation=(TEXTS[120:150], lists(LABELS[120:150])))


@pytest.fixture(scope="module")
def model(classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate") / "model"
    classifier.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    file = tmp_path_factory.mktemp("evaluate") / "[own] papers.jsonl"
    tiny.write_jsonl(file, TEXTS, lists(LABELS), SPLITS)
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


def scores_of(result: Result) -> dict[str, object]:
    """Strictly JSON: NaN, which Python would write and read, is none."""
    assert result.exit_code == 0, result.stderr
    scores = json.loads(result.stdout, parse_constant=pytest.fail)
    assert scores.pop("absent_labels") == sum(label["support"] == 0 for label in scores["labels"])
    return scores


@pytest.mark.parametrize(
    ("split", "rows"), [("train", slice(120)), ("validation", slice(120, 150)), ("test", slice(150, 200))]
)
def test_the_scores_are_those_of_the_model(split, rows, model, data, classifier):
    scores = scores_of(run(model, data, "--split", split, "--json"))
    by_label = scores.pop("labels")
    assert scores == classifier.evaluate(TEXTS[rows], lists(LABELS[rows]))
    assert [label["name"] for label in by_label] == list(classifier.label_names)
    support = dict(zip(NAMES, LABELS[rows].sum(axis=0), strict=True))
    assert {label["name"]: label["support"] for label in by_label} == support
    assert scores["micro_f1"] > 0.9  # the lexical expert sees the very words


def test_tables_for_people(model, data):
    result = run(model, data)
    assert result.exit_code == 0, result.stderr
    assert "[own] papers, 50 documents" in result.stdout  # brackets are no markup
    assert re.search(r"test( +\d+\.\d){6} +$", result.stdout, re.MULTILINE)  # all labels occur: no seventh number
    assert "The labels with the lowest F1" in result.stdout
    assert re.search(r"\[a\] topic( +\d+){3}( +\d+\.\d){3}", result.stdout)
    assert "…" not in result.stdout  # a name that is cut short cannot be looked up


def test_unknown_splits_are_refused_before_reading(model, tmp_path):
    result = run(model, tmp_path / "nowhere.jsonl", "--split", "tset")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: no split is called 'tset'; there are train, validation, test, and all\n",
    )


def test_an_empty_split_is_refused(model, tmp_path):
    tiny.write_jsonl(tmp_path / "papers.jsonl", TEXTS[:150], lists(LABELS[:150]), SPLITS[:150])
    result = run(model, tmp_path / "papers.jsonl")
    assert result.exit_code == 2
    assert "error: the test split of papers is empty; choose another with --split" in result.stderr
    assert run(model, tmp_path / "papers.jsonl", "--split", "validation").exit_code == 0


def test_a_file_without_splits_is_scored_as_a_whole(model, tmp_path, classifier):
    tiny.write_jsonl(tmp_path / "new.jsonl", TEXTS[150:], lists(LABELS[150:]), [None] * 50)
    scores = scores_of(run(model, tmp_path / "new.jsonl", "--json"))
    assert scores.pop("labels")
    assert scores == classifier.evaluate(TEXTS[150:], lists(LABELS[150:]))


def test_the_file_it_was_trained_on_is_split_as_it_was_then(tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    encoder = tiny.save_encoder(tmp_path / "encoder")
    file, folder = tmp_path / "papers.jsonl", tmp_path / "model"
    tiny.write_jsonl(file, TEXTS, lists(LABELS), [None] * 200)
    words = ["train", file, "-o", folder, "--encoder", encoder, "--epochs", 0, "--max-length", 20, "--device", "cpu"]
    trained = CliRunner().invoke(app, [str(word) for word in words])
    assert trained.exit_code == 0, trained.stderr
    result = run(folder, file)
    assert "note: " not in result.stderr  # training has told the notes of this file
    assert re.search(r"papers, (1|2)\d documents", result.stdout)  # the tenth that was held out
    assert "papers, 200 documents" in run(folder, file, "--split", "all").stdout


def test_the_corpus_of_another_seed_is_split_as_it_was_then(tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    tiny.write_jsonl(tmp_path / "papers.jsonl", TEXTS, lists(LABELS), [None] * 200)
    corpus = load_corpus(tmp_path / "papers.jsonl", seed=7)
    settings = {"encoder": tiny.save_encoder(tmp_path / "encoder"), "max_length": 20, "epochs": 0, "device": "cpu"}
    classifier = AbaloneClassifier(**settings, lexical=False).fit_corpus(corpus)
    classifier.save_pretrained(tmp_path / "model")
    scores = scores_of(run(tmp_path / "model", tmp_path / "papers.jsonl", "--json"))
    assert scores.pop("labels")
    assert scores == classifier.evaluate(corpus.test.texts, corpus.test.labels)


def test_a_label_that_only_the_model_was_trained_on_counts(model, tmp_path, classifier):
    """Documents of a split whose own training part lacks a label that the model knows."""
    without = [[name for name in carried if name != "b"] for carried in lists(LABELS[:120])]
    tiny.write_jsonl(tmp_path / "papers.jsonl", TEXTS, without + lists(LABELS[120:]), SPLITS)
    scores = scores_of(run(model, tmp_path / "papers.jsonl", "--json"))
    assert scores.pop("labels")
    assert scores == classifier.evaluate(TEXTS[150:], lists(LABELS[150:]))


@pytest.mark.filterwarnings("always")
def test_labels_that_the_model_does_not_know_are_named(model, tmp_path, classifier):
    new = [[*carried, "weather"] for carried in lists(LABELS)]
    tiny.write_jsonl(tmp_path / "papers.jsonl", TEXTS, new, SPLITS)
    result = run(model, tmp_path / "papers.jsonl", "--json")
    assert "warning: no training document carries weather: left out of the scores" in result.stderr
    scores = scores_of(result)
    assert scores.pop("labels")
    assert scores == classifier.evaluate(TEXTS[150:], lists(LABELS[150:]))


def test_labels_that_no_scored_document_carries_are_told_and_count_as_0(model, tmp_path):
    """Whether the model gives them or not: without b the texts still hold its word, without d they do not."""
    kept = [row for row, carried in enumerate(lists(LABELS)) if "d" not in carried]
    carried = [[name for name in lists(LABELS[[row]])[0] if name != "b"] for row in kept]
    tiny.write_jsonl(tmp_path / "new.jsonl", [TEXTS[row] for row in kept], carried, [None] * len(kept))
    result = run(model, tmp_path / "new.jsonl", "--json")
    assert (
        f"note: 2 of the 5 labels of {model} occur in no scored document of new. Each counts as F1 0 in macro-F1: b, d."
    ) in result.stderr.splitlines()
    assert json.loads(result.stdout)["absent_labels"] == 2
    scores = scores_of(result)
    by_name = {label["name"]: label for label in scores["labels"]}
    assert [(by_name[name]["support"], by_name[name]["f1"]) for name in "bd"] == [(0, 0), (0, 0)]
    assert by_name["b"]["predicted"] > 0
    assert by_name["d"]["predicted"] == 0
    assert scores["macro_f1"] == pytest.approx(sum(label["f1"] for label in scores["labels"]) / 5)
    assert scores["macro_f1"] > 0
    assert scores["macro_f1_present"] == pytest.approx(sum(label["f1"] for label in scores["labels"]) / 3)
    shown = run(model, tmp_path / "new.jsonl").stdout
    assert "here" in shown.partition("The labels it knows least")[0]
    assert f"{100 * scores['macro_f1_present']:.1f}" in shown
    assert not re.search("^  [bd] ", shown, re.MULTILINE)  # what does not occur cannot be known badly


def test_nothing_is_told_of_labels_that_all_occur(model, data):
    result = run(model, data)
    assert "in no scored document" not in result.stderr
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere", "{data}"), "nowhere is not a model folder"),
        (("{model}", "nowhere.jsonl"), "'nowhere.jsonl' is neither a file or folder nor a benchmark"),
        (("{model}", "{data}", "--device", "gpu"), "no device is called 'gpu'"),
        (("{model}", "{data}", "--text-column", "body"), "no column 'body' (--text-column)"),
    ],
)
def test_mistakes_end_in_status_2(arguments, told, model, data):
    result = run(*(argument.format(model=model, data=data) for argument in arguments))
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert told in result.stderr
