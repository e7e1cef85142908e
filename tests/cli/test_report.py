"""`abalone report`: pages from model folders and data, and refusals."""

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import judged
import tiny
from abalone import AbaloneClassifier
from abalone.cli import app
from abalone.cli.report import short_names

NAMES = ["[a] topic", "b </script>", "c", "d", "e"]
TEXTS, LABELS = tiny.corpus(160)
SPLITS = ["train"] * 100 + ["val"] * 30 + ["test"] * 30


def lists(labels) -> list[list[str]]:
    return [[NAMES[j] for j in np.flatnonzero(row)] for row in labels.toarray()]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """One with a history and one without."""
    folder = tmp_path_factory.mktemp("report")
    encoder = tiny.save_encoder(folder / "encoder")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setenv("ABALONE_CACHE", str(folder / "cache"))
        for name, epochs in (("frozen", 0), ("trained", 1)):
            model = AbaloneClassifier(
                "paper", encoder=encoder, max_length=20, epochs=epochs, queue_size=16, thresholds="macro", device="cpu"
            )
            model.fit(TEXTS[:100], lists(LABELS[:100]), validation=(TEXTS[100:130], lists(LABELS[100:130])))
            model.save_pretrained(folder / name)
    return folder / "frozen", folder / "trained"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    file = tmp_path_factory.mktemp("report") / "papers.jsonl"
    tiny.write_jsonl(file, TEXTS, lists(LABELS), SPLITS)
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def payload(page: Path) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    return json.loads(found.group(1), parse_constant=pytest.fail)


def test_one_run_on_the_test_split(models, data, tmp_path):
    output = tmp_path / "new" / "report.html"
    result = run(models[1], "--data", data, "--output", output, "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"report: {output}\n"
    assert list(output.parent.iterdir()) == [output]  # nothing half-written is left
    shown = payload(output)
    assert shown["documents"]["count"] == 30
    assert (shown["documents"]["name"], shown["documents"]["split"]) == ("papers", "test")
    model = AbaloneClassifier.from_pretrained(models[1], device="cpu")
    expected = model.evaluate(TEXTS[130:], lists(LABELS[130:]))
    assert shown["runs"][0]["scores"] == pytest.approx(expected, abs=1e-6)
    assert shown["runs"][0]["name"] == "trained"
    assert shown["runs"][0]["history"][0]["stage"] == "pretraining"
    assert list(shown["runs"][0]["map"]["layouts"]) == ["pca", "tsne"]
    assert shown["labels"][1] == NAMES[1]
    assert shown["comparison"] is None


def test_runs_side_by_side_in_the_order_given(models, data, tmp_path):
    words = ["--data", data, "--split", "validation", "-o", tmp_path / "r.html"]
    assert run(models[1], models[0], *words).exit_code == 0
    shown = payload(tmp_path / "r.html")
    assert [of["name"] for of in shown["runs"]] == ["trained", "frozen"]
    assert shown["runs"][1]["history"] == []
    assert shown["documents"]["split"] == "validation"
    assert len(shown["comparison"]["differences"]) == 2


def test_without_data_metadata_of_the_folder_is_shown(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(models[1])
    assert result.exit_code == 0, result.stderr
    assert "add --data to score documents" in result.stderr
    shown = payload(tmp_path / "report.html")
    assert shown["documents"] is None
    assert shown["runs"][0]["stored_scores"]["validation"]["macro_f1"] >= 0
    assert shown["runs"][0]["history"]


def test_without_data_out_of_fold_scores_are_shown_where_the_folder_has_them(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = AbaloneClassifier.from_pretrained(models[1], device="cpu")
    model.predictor_.out_of_fold = judged.out_of_fold(TEXTS[:130], LABELS[:130])
    model.save_pretrained(tmp_path / "judged")
    result = run(tmp_path / "judged")
    assert result.exit_code == 0, result.stderr
    assert "note: the page shows out-of-fold scores without texts; add --data to score documents." in result.stderr
    (shown,) = payload(tmp_path / "report.html")["runs"]
    assert shown["scores"] == pytest.approx(model.evaluate_out_of_fold()[0], abs=1e-6)
    assert shown["out_of_fold"]["documents"] == 130
    assert shown["history"]
    assert TEXTS[0] not in (tmp_path / "report.html").read_text(encoding="utf-8")
    tiny.write_jsonl(tmp_path / "same.jsonl", TEXTS[:130], lists(LABELS[:130]), [None] * 130)
    known = run(tmp_path / "judged", "--data", tmp_path / "same.jsonl")
    assert known.exit_code == 0, known.stderr
    assert "note: every document was used in training: the page shows out-of-fold predictions." in known.stderr
    again = payload(tmp_path / "report.html")
    assert (again["documents"]["split"], again["documents"]["count"]) == ("out of fold", 130)
    assert again["documents"]["out_of_fold"]
    assert again["runs"][0]["scores"]["macro_f1"] == pytest.approx(shown["scores"]["macro_f1"], abs=1e-6)
    assert again["runs"][0]["worst"][0]["text"] in TEXTS
    assert again["runs"][0]["clustering"] is None  # the embeddings know the documents
    assert "ranking_loss" not in again["runs"][0]["scores"]
    tiny.write_jsonl(tmp_path / "splits.jsonl", TEXTS[:130], lists(LABELS[:130]), SPLITS[:130])
    assert run(tmp_path / "judged", "--data", tmp_path / "splits.jsonl").exit_code == 0
    assert payload(tmp_path / "report.html")["documents"]["split"] == "out of fold"
    other = run(tmp_path / "judged", models[0], "--data", tmp_path / "same.jsonl")  # which has no such answers
    assert other.exit_code == 2
    assert "was trained or tuned on every document of same" in other.stderr
    new = run(tmp_path / "judged", "--data", tmp_path / "same.jsonl", "--split", "all")
    assert new.exit_code == 0
    assert payload(tmp_path / "report.html")["documents"]["split"] == "all"  # who asks for all knows


def test_a_file_without_splits_is_scored_as_a_whole(models, tmp_path):
    tiny.write_jsonl(tmp_path / "new.jsonl", TEXTS[130:], lists(LABELS[130:]), [None] * 30)
    assert run(models[0], "--data", tmp_path / "new.jsonl", "-o", tmp_path / "r.html").exit_code == 0
    assert payload(tmp_path / "r.html")["documents"]["split"] == "all"


def test_an_old_report_stays_when_the_new_one_fails(models, tmp_path):
    output = tmp_path / "report.html"
    output.write_text("the old one")
    assert run(models[0], "--data", tmp_path / "nowhere.jsonl", "-o", output).exit_code == 2
    assert output.read_text() == "the old one"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere",), "nowhere is not a model folder"),
        (("{data}",), "papers.jsonl is a file, and a report needs the settings"),
        (("{0}", "{0}"), "the same model folder is given twice"),
        (("{0}", "--split", "tset"), "no split is called 'tset'"),
        (("{0}", "-o", "{0}"), "is a folder: name an HTML file with --output"),
        (("{0}", "--data", "nowhere.jsonl"), "'nowhere.jsonl' is neither a file or folder nor a benchmark"),
        (("{0}", "--data", "{data}", "--text-column", "body"), "no column 'body' (--text-column)"),
    ],
)
def test_mistakes_end_in_status_2(arguments, told, models, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*(argument.format(models[0], data=data) for argument in arguments))
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert told in result.stderr
    assert not list(tmp_path.iterdir())


def test_labels_without_a_scored_document_are_named_for_each_model(models, tmp_path):
    carried = [[name for name in row if name != "d"] for row in lists(LABELS[130:])]
    tiny.write_jsonl(tmp_path / "new.jsonl", TEXTS[130:], carried, [None] * 30)
    result = run(*models, "--data", tmp_path / "new.jsonl", "-o", tmp_path / "r.html")
    assert result.exit_code == 0, result.stderr
    for name in ("frozen", "trained"):
        note = f"1 of the 5 labels of {name} occurs in no scored document of new. It counts as F1 0 in macro-F1: d."
        assert f"note: {note}" in result.stderr.splitlines()
    for shown in payload(tmp_path / "r.html")["runs"]:
        f1 = shown["by_label"]["f1"]
        assert f1[NAMES.index("d")] == 0
        assert shown["scores"]["macro_f1"] == pytest.approx(sum(f1) / 5, abs=1e-5)


def test_an_empty_split_is_refused(models, tmp_path):
    tiny.write_jsonl(tmp_path / "papers.jsonl", TEXTS[:130], lists(LABELS[:130]), SPLITS[:130])
    result = run(models[0], "--data", tmp_path / "papers.jsonl", "-o", tmp_path / "r.html")
    assert result.exit_code == 2
    assert "the test split of papers is empty; choose another with --split" in result.stderr


def test_names_are_the_shortest_different_ends_of_paths(tmp_path):
    assert short_names([tmp_path / "model"]) == ["model"]
    assert short_names([tmp_path / "a", tmp_path / "b"]) == ["a", "b"]
    assert short_names([tmp_path / "x" / "model", tmp_path / "y" / "model"]) == ["x/model", "y/model"]
