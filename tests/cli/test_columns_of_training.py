"""A model knows the columns it was trained on, so that nobody has to say them twice, and none is missed in silence."""

import json
import warnings
from pathlib import Path

import pytest

import tiny
from abalone.cli.serve import read_model
from abalone.data.leakage import options_of_training
from train_command import run

NAMED = ("--text-column", "head", "--text-column", "body", "--label-column", "kinds", "--label-separator", "/")
TEXTS, MATRIX = tiny.corpus(160)


def rows(header: str) -> str:
    """Half of a text in each of two columns; `body`, a usual name for a text, has the half that says less."""
    lines = [header]
    for text, row in zip(TEXTS, MATRIX.toarray(), strict=True):
        words = sorted(text.split(), key=lambda word: int(word[1:]))
        kinds = "/".join(f"a; {j}" for j in row.nonzero()[0])
        lines.append(f"{' '.join(words[:4])},{' '.join(words[4:]) or 'w59'},{kinds or 'none'}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A table whose columns have to be named, and a model trained on it."""
    folder = tmp_path_factory.mktemp("workshop")
    (folder / "tickets.csv").write_text(rows("head,body,kinds"))
    settings = ("--encoder", tiny.save_encoder(folder / "encoder"), "--max-length", "20", "--device", "cpu")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that words alone would do
        patch.setenv("ABALONE_CACHE", str(folder / "cache"))
        made = run("train", folder / "tickets.csv", "-o", folder / "model", "--recipe", "fast", *settings, *NAMED)
    assert made.exit_code == 0, made.stderr
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))


def scores(workshop: Path, *options: str) -> object:
    done = run("evaluate", workshop / "model", workshop / "tickets.csv", "--json", *options)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_evaluate_reads_what_was_trained_on(workshop):
    assert scores(workshop) == scores(workshop, *NAMED)


def test_a_column_that_is_named_goes_first(workshop):
    assert scores(workshop, "--text-column", "body") == scores(workshop, *NAMED[4:], "--text-column", "body")
    assert scores(workshop, "--text-column", "body") != scores(workshop)


def test_predict_reads_what_was_trained_on(workshop, tmp_path):
    command = ("predict", workshop / "model", workshop / "tickets.csv", "--probabilities")
    given = run(*command)
    assert given.exit_code == 0, given.stderr
    assert given.stdout == run(*command, *NAMED[:4]).stdout
    assert given.stdout != run(*command, "--text-column", "body").stdout
    done = run(*command[:3], "-o", tmp_path / "answers")
    assert done.exit_code == 0, done.stderr
    labels = [json.loads(line)["labels"] for line in given.stdout.splitlines()]
    written = (tmp_path / "answers" / "part-00000.jsonl").read_text().splitlines()
    assert [json.loads(line)["labels"] for line in written] == labels


def test_evidence_is_what_was_trained_on(workshop, capsys):
    served = read_model(workshop / "model", str(workshop / "tickets.csv"), None, "cpu")
    assert served.evidence is not None
    assert "was not trained on" not in capsys.readouterr().err


def test_other_data_is_read_by_its_own_columns(workshop, tmp_path):
    (tmp_path / "others.csv").write_text(rows("title,text,labels").replace("/", ";"))
    trained = json.loads((workshop / "model" / "abalone.json").read_text())["story"]["provenance"]
    assert options_of_training(str(tmp_path / "others.csv"), {"text_column": None}, [trained]) == {"text_column": None}
    half = options_of_training(str(workshop / "tickets.csv"), {"label_column": ["body"]}, [trained])
    assert half == {"label_column": ["body"], "text_column": ["head", "body"]}


def test_models_that_were_trained_on_other_columns_leave_it_open(workshop):
    trained = json.loads((workshop / "model" / "abalone.json").read_text())["story"]["provenance"]
    other = {**trained, "columns": {**trained["columns"], "text": ["body"]}}
    data = str(workshop / "tickets.csv")
    assert options_of_training(data, {}, [trained, trained])["label_separator"] == "/"
    assert options_of_training(data, {}, [trained, other]) == {}
    for unknown in ({}, {"columns": 3}, {"columns": {"text": [3], "labels": "kinds"}}):
        assert options_of_training(data, {}, [unknown]) == {}
