"""`abalone review` and `abalone train --corrections`: planted errors are suggested, decided, and gone afterwards."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import tiny
from abalone.cli import app

NAMES = ["a", "b", "c", "d", "e"]
TEXTS, LABELS = tiny.corpus(240)
TRUTH = LABELS.toarray().astype(bool)
ERRORS = 12


def lists(labels) -> list[list[str]]:
    return [[NAMES[j] for j in np.flatnonzero(row)] for row in labels]


@pytest.fixture(scope="module")
def planted():
    """Return the labels with errors, half of them missing, half wrong."""
    random, planted = np.random.default_rng(0), TRUTH.copy()
    for among in (np.argwhere(TRUTH), np.argwhere(~TRUTH)):
        for row, column in among[random.choice(len(among), ERRORS // 2, replace=False)]:
            planted[row, column] ^= True
    return planted


@pytest.fixture(scope="module")
def shop(planted, tmp_path_factory):
    """Return a folder with data, and a model that was trained on it."""
    folder = tmp_path_factory.mktemp("review")
    tiny.write_jsonl(folder / "data.jsonl", TEXTS, lists(planted), ["train"] * len(TEXTS))
    assert run("train", folder / "data.jsonl", "-o", folder / "model", "--recipe", "words").exit_code == 0
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def reviewed(shop, file, *options) -> list[dict[str, str]]:
    result = run("review", shop / "model", shop / "data.jsonl", "-o", file, *options)
    assert result.exit_code == 0, result.stderr
    with file.open(encoding="utf-8-sig", newline="") as stream:
        return list(csv.DictReader(stream))


def is_error(row, planted) -> bool:
    document, label = TEXTS.index(row["text"]), NAMES.index(row["label"])
    assert planted[document, label] == (row["suggestion"] == "remove")
    assert row["labels"].split("; ") == lists(planted)[document] or not planted[document].any()
    return bool(TRUTH[document, label] != planted[document, label])


def test_planted_errors_are_suggested_first(shop, planted, tmp_path):
    rows = reviewed(shop, tmp_path / "review.csv")
    assert [row["suggestion"] for row in rows[:4]] == ["remove", "add", "remove", "add"]
    assert sum(is_error(row, planted) for row in rows[:ERRORS]) >= ERRORS * 2 / 3
    assert all(row["decision"] == "" for row in rows)
    assert all(0.5 < float(row["doubt"]) <= 1 for row in rows)
    frequencies = json.loads((shop / "model" / "abalone.json").read_text())["story"]["statistics"]["frequencies"]
    assert all(int(row["documents"]) == frequencies[NAMES.index(row["label"])] for row in rows)


def test_decided_ones_are_trained_on(shop, planted, tmp_path):
    rows = reviewed(shop, tmp_path / "review.csv", "--top", ERRORS)
    assert len(rows) == ERRORS
    for row in rows:
        row["decision"] = "yes" if is_error(row, planted) else "no"
    with (tmp_path / "decided.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    options = "-o", tmp_path / "model", "--recipe", "words", "--corrections", tmp_path / "decided.csv"
    result = run("train", shop / "data.jsonl", *options)
    assert result.exit_code == 0, result.stderr
    fixed = sum(row["decision"] == "yes" for row in rows)
    (made,) = json.loads((tmp_path / "model" / "abalone.json").read_text())["story"]["provenance"]["corrections"]
    assert made["added"] + made["removed"] == fixed
    assert (
        f"note: Corrections of decided.csv: {made['added']} labels added, {made['removed']} removed." in result.stderr
    )
    again = reviewed_again = run("review", tmp_path / "model", shop / "data.jsonl", "-o", tmp_path / "again.csv")
    assert reviewed_again.exit_code == 0, again.stderr
    with (tmp_path / "again.csv").open(encoding="utf-8-sig", newline="") as stream:
        left = {(row["key"], row["label"], row["suggestion"]) for row in csv.DictReader(stream)}
    assert not left & {(row["key"], row["label"], row["suggestion"]) for row in rows if row["decision"] == "yes"}


def test_a_file_that_may_hold_decisions_is_not_overwritten(shop, tmp_path):
    (tmp_path / "review.csv").write_text("mine")
    result = run("review", shop / "model", shop / "data.jsonl", "-o", tmp_path / "review.csv")
    assert result.exit_code == 2
    assert "exists and may hold decisions" in result.stderr
    assert (tmp_path / "review.csv").read_text() == "mine"


def test_other_data_is_refused_and_nothing_is_written(shop, tmp_path):
    tiny.write_jsonl(tmp_path / "other.jsonl", ["another text", "and one more"], [["a"], ["b"]], ["train"] * 2)
    result = run("review", shop / "model", tmp_path / "other.jsonl", "-o", tmp_path / "review.csv")
    assert result.exit_code == 2
    assert "has none of the 216 documents" in result.stderr
    assert not (tmp_path / "review.csv").exists()


def test_corrections_that_do_not_fit_stop_training_before_it_begins(shop, tmp_path):
    (tmp_path / "review.csv").write_text("key,suggestion,label,decision\nt0000000000000000,add,a,yes\n")
    options = "-o", tmp_path / "model", "--recipe", "words", "--corrections", tmp_path / "review.csv"
    result = run("train", shop / "data.jsonl", *options)
    assert result.exit_code == 2
    assert "review.csv:2: no training or validation document has the key 't0000000000000000'" in result.stderr
    assert not (tmp_path / "model").exists()


def test_a_file_of_corrections_that_is_not_there_is_told_before_the_data_are_read(tmp_path):
    result = run("train", tmp_path / "data.csv", "-o", tmp_path / "model", "--corrections", tmp_path / "review.csv")
    assert result.exit_code == 2
    assert "review.csv: there is no such file" in result.stderr
