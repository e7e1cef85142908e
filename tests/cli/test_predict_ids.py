"""`abalone predict --id-column`: every answer says whose it is, on the screen and in files, whatever is left out."""

import json
import warnings
from pathlib import Path

import pytest

import tiny
from abalone import AbaloneClassifier
from train_command import assert_refused, run

TEXTS, LABELS = tiny.corpus(60)
IDS = [f"T-{number}" for number in range(len(TEXTS))]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model folder that mixes in all experts, so that each reads the texts."""
    folder = tmp_path_factory.mktemp("ids")
    encoder = tiny.save_encoder(folder / "encoder")
    with pytest.MonkeyPatch.context() as patch, tiny.every_expert_heard(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that words alone would do
        patch.setenv("ABALONE_CACHE", str(folder / "cache"))
        classifier = AbaloneClassifier(encoder=encoder, max_length=20, epochs=0, device="cpu", neighbours=True)
        classifier.fit(TEXTS, LABELS, label_names=[f"topic {j}" for j in range(5)]).save_pretrained(folder / "model")
    return folder / "model"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("number,text\n" + "".join(f"{i},{text}\n" for i, text in zip(IDS, TEXTS, strict=True)))
    return path


def in_parts(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for part in sorted(folder.glob("part-*")) for line in part.read_text().splitlines()]


def test_answers_have_the_ids_and_are_the_same_otherwise(model, table, tmp_path):
    plain, with_ids = (run("predict", model, table, *option) for option in ((), ("--id-column", "number")))
    assert with_ids.exit_code == 0, with_ids.stderr
    given = [json.loads(line) for line in with_ids.stdout.splitlines()]
    assert [answer.pop("id") for answer in given] == IDS
    assert given == [json.loads(line) for line in plain.stdout.splitlines()]
    done = run("predict", model, table, "--id-column", "number", "-o", tmp_path / "answers", "--part-size", 25)
    assert done.exit_code == 0, done.stderr
    assert [answer.pop("id") for answer in in_parts(tmp_path / "answers")] == IDS


def test_ids_stay_with_their_texts_where_rows_are_skipped(model, tmp_path):
    (tmp_path / "texts.csv").write_text("id,text\n1,w1\n2,\n3,w3\n,w4\n5,w5\n")
    command = ("predict", model, tmp_path / "texts.csv", "--id-column", "id")
    assert_refused(run(*command), "texts.csv:3: no text in column 'text'")
    given = [json.loads(line) for line in run(*command, "--skip-bad-rows").stdout.splitlines()]
    assert [answer.get("id") for answer in given] == ["1", "2", "3", None, "5"]
    assert given[3] == {"labels": None, "skipped": f"{tmp_path / 'texts.csv'}:5: no id in column 'id'"}
    assert run(*command, "--skip-bad-rows", "-o", tmp_path / "answers").exit_code == 0
    assert [answer["id"] for answer in in_parts(tmp_path / "answers")] == ["1", "3", "5"]


def test_lines_of_text_have_no_ids(model, tmp_path):
    (tmp_path / "texts.txt").write_text("w1\nw2\n")
    refused = run("predict", model, tmp_path / "texts.txt", "--id-column", "id")
    assert_refused(refused, "texts.txt:1: a line of plain text has no id: expected a JSON object with a field 'id'")


@pytest.mark.filterwarnings("always")
def test_going_on_takes_the_same_ids(model, table, tmp_path):
    command = ("predict", model, table, "--id-column", "number", "-o", tmp_path / "answers", "--part-size", 25)
    assert run(*command).exit_code == 0
    before = in_parts(tmp_path / "answers")
    (tmp_path / "answers" / "part-00001.jsonl").unlink()
    refused = run(*command[:3], *command[5:], "--resume")
    assert_refused(refused, "was started with other settings: id_column was 'number' and is None")
    assert run(*command, "--resume").exit_code == 0
    assert in_parts(tmp_path / "answers") == before
    table.write_text(table.read_text().replace("T-3,", "T-three,"))
    assert_refused(run(*command, "--resume"), "holds answers to other texts than these: part-00000.jsonl differs")


def test_parquet_has_ids_as_strings(model, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "texts.jsonl").write_text('{"id": 7, "text": "w1"}\n{"id": "T-8", "text": "w2"}\n')
    options = ("--id-column", "id", "--format", "parquet", "--probabilities", "-o", tmp_path / "answers")
    done = run("predict", model, tmp_path / "texts.jsonl", *options)
    assert done.exit_code == 0, done.stderr
    answers = parquet.read_table(tmp_path / "answers" / "part-00000.parquet")
    assert answers.column_names == ["id", "labels", "probabilities"]
    assert answers["id"].to_pylist() == ["7", "T-8"]
