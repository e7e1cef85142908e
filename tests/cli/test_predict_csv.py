"""`abalone predict` to CSV: the answers of the JSON lines, whole or absent, readable by our own readers."""

import csv
import json
from io import StringIO

import pytest
from test_predict import TEXTS, from_stdin, model, run

from abalone import progress
from abalone.data.labels import find_separators, read_cell, split_cell
from abalone.inference.answers import CsvAnswers

__all__ = ["model"]  # the fixture


@pytest.fixture
def table(tmp_path):
    rows = [["key", "text"], *([f"T-{n}", text] for n, text in enumerate(TEXTS[:6])), ["=1+1", TEXTS[6]]]
    with (tmp_path / "new.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return tmp_path / "new.csv"


@pytest.mark.filterwarnings("always")
def test_rows_are_the_answers_of_the_json_lines(model, table):
    options = (model, table, "--id-column", "key", "--probabilities")
    lines = [json.loads(line) for line in run(*options).stdout.splitlines()]
    result = run(*options, "--format", "csv")
    rows = list(csv.DictReader(StringIO(result.stdout)))
    assert [row["id"] for row in rows] == [line["id"] for line in lines]
    assert [list(filter(None, row["labels"].split("; "))) for row in rows] == [line["labels"] for line in lines]
    for row, line in zip(rows, lines, strict=True):
        assert {name: float(row[f"probability of {name}"]) for name in line["probabilities"]} == line["probabilities"]
    assert result.stderr.startswith(
        "warning: 1 of the ids begin with =, +, - or @, which spreadsheets take for formulas"
    )


def test_a_name_that_ends_in_csv_is_one_whole_file(model, table, tmp_path):
    answers = tmp_path / "answers.csv"
    result = run(model, table, "-o", answers)
    assert (result.exit_code, result.stdout) == (0, "")
    content = answers.read_bytes().decode()
    assert content == "\ufeff" + run(model, table, "--format", "csv").stdout  # by the mark Excel knows that it is UTF-8
    table.write_text('text\nw1\n""\n')
    assert run(model, table, "-o", answers).exit_code == 2
    assert answers.read_bytes().decode() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.csv", "new.csv"]


def test_skipped_rows_say_why_in_a_column_of_their_own(model, tmp_path, monkeypatch):
    result = from_stdin(b"w1\n\nw2\n", tmp_path, monkeypatch, model, "-", "--format", "csv", "--skip-bad-rows")
    rows = list(csv.DictReader(StringIO(result.stdout)))
    assert [row["skipped"] for row in rows] == ["", "standard input:2: the line is empty", ""]
    assert rows[1]["labels"] == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("-o", "{folder}/new.csv"), "new.csv is the input file: give --output another name"),
        (("-o", "{folder}/a.csv", "--format", "parquet"), "--format parquet writes to a folder"),
        (("-o", "{folder}/a", "--format", "csv"), "--format csv writes one file: --output must end in .csv"),
        (("-o", "{folder}/a.csv", "--resume"), "need --output DIR, a folder"),
    ],
)
def test_what_does_not_go_together_is_told(options, told, model, table, tmp_path):
    result = run(model, table, *(option.format(folder=tmp_path) for option in options))
    assert result.exit_code == 2
    assert told in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


@pytest.mark.parametrize(
    "names",
    [
        ["a", "b c", "Größe"],
        ["a; b", "c"],
        ["a; b", "c|d", "e"],
        ["a;b", "c|d", "e, f"],
        ["[d]", "e"],
        ["=1+1", "e"],
        [" a", "b"],
        ['say "no"', "new\nline"],
    ],
)
def test_labels_are_read_back_as_they_were(names):
    written = CsvAnswers(names)
    wanted = [names[:1], names, []]
    text = written.header() + written.lines({"labels": labels} for labels in wanted)
    cells = [read_cell(row["labels"]) for row in csv.DictReader(StringIO(text, newline=""))]
    read = [list(split_cell(cell, (written.separator or "").strip() or None)) for cell in cells]
    assert [[name.strip() for name in labels] for labels in wanted] == read
    assert not any(row.startswith(("=", "+", "-", "@")) for row in text.splitlines())


def test_labels_of_plain_names_are_read_back_without_naming_the_separator():
    written = CsvAnswers(["a", "b", "c"])
    text = written.header() + written.lines([{"labels": ["a", "c"]}, {"labels": ["b"]}])
    assert find_separators([row["labels"] for row in csv.DictReader(StringIO(text))]) == [";"]


def test_ids_of_any_kind_stay_in_their_cell():
    rows, ids = CsvAnswers(["a"], ids=True), [7, "x,y", 'say "no"', "two\nlines", "re\rturn", "007"]
    text = rows.header() + rows.lines({"id": key, "labels": ["a"]} for key in ids)
    assert [row["id"] for row in csv.DictReader(StringIO(text, newline=""))] == [str(key) for key in ids]


def test_there_is_one_bar_with_the_number_of_texts_as_its_total(model, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    monkeypatch.setattr("abalone.inference.answers.WINDOW_TEXTS", 10)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:30]))
    for output in ("answers.csv", "folder"):
        shown = run(model, tmp_path / "texts.txt", "-o", tmp_path / output).stderr
        assert "Predicting" in shown
        assert "30/30" in shown
        assert "Encoding" not in shown
        assert "/10" not in shown
