"""Answers in parts: whole or absent, in order, and only ever those of one job."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from abalone.evaluation.decision import Decision, Thresholds
from abalone.files.atomic import InUseError
from abalone.inference import answers as answers_module
from abalone.inference.answers import Wanted
from abalone.inference.bulk import Parts, model_checksum, predict_in_parts

TEXTS = [f"text {number}" for number in range(25)]


class Counting:
    """A model that gives a text its number, in binary, and remembers what it was asked."""

    label_names = tuple(f"bit {bit}" for bit in range(5))
    decision = Decision(Thresholds(np.full(5, 0.5)))

    def __init__(self) -> None:
        self.asked: list[str] = []

    def scores(self, texts):
        self.asked += texts
        numbers = np.array([int(text.split()[1]) for text in texts])
        return (numbers[:, None] >> np.arange(5) & 1) * 0.9

    probabilities = embed = None


def labels_in(folder: Path) -> list[list[str]]:
    lines = [line for part in sorted(folder.glob("part-*.jsonl")) for line in part.read_text().splitlines()]
    return [json.loads(line)["labels"] for line in lines]


def expected(number: int) -> list[list[str]]:
    return [[f"bit {bit}" for bit in range(5) if n >> bit & 1] for n in range(number)]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def stopping_at(number: int):
    """The texts up to a moment in which something goes wrong."""
    yield from TEXTS[:number]
    raise KeyboardInterrupt


def test_parts_hold_all_answers_in_order(tmp_path):
    folder = tmp_path / "new" / "answers"
    assert predict_in_parts(Counting(), TEXTS, folder, part_size=10) == 25
    assert sorted(contents(folder)) == ["manifest.json", *(f"part-0000{n}.jsonl" for n in range(3))]
    assert labels_in(folder) == expected(25)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["complete"], manifest["documents"]) == (True, 25)
    assert [part["documents"] for part in manifest["parts"]] == [10, 10, 5]


def test_windows_do_not_matter(tmp_path, monkeypatch):
    predict_in_parts(Counting(), TEXTS, tmp_path / "wide", part_size=10)
    monkeypatch.setattr(answers_module, "WINDOW_TEXTS", 3)
    predict_in_parts(Counting(), TEXTS, tmp_path / "narrow", part_size=10)
    assert contents(tmp_path / "wide") == contents(tmp_path / "narrow")


def test_texts_are_read_as_they_are_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(answers_module, "WINDOW_TEXTS", 5)
    model = Counting()

    def texts():
        for number, text in enumerate(TEXTS):
            assert number - len(model.asked) <= 5
            yield text

    predict_in_parts(model, texts(), tmp_path / "answers", part_size=10)


@pytest.mark.parametrize("stop", [0, 1, 9, 10, 11, 20, 24, 25])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_run_that_goes_on_ends_the_same(stop, form, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    predict_in_parts(Counting(), TEXTS, whole, part_size=10, form=form)
    with pytest.raises(KeyboardInterrupt):
        predict_in_parts(Counting(), stopping_at(stop), broken, part_size=10, form=form)
    assert not [path for path in broken.iterdir() if path.name.startswith(".")]
    model = Counting()
    assert predict_in_parts(model, TEXTS, broken, part_size=10, form=form, resume=True) == 25
    assert model.asked == TEXTS[stop // 10 * 10 :]
    assert contents(broken) == contents(whole)


def test_going_on_with_what_is_complete_changes_nothing(tmp_path):
    for number in (0, 20, 25):
        folder = tmp_path / str(number)
        predict_in_parts(Counting(), TEXTS[:number], folder, part_size=10)
        before, model = contents(folder), Counting()
        assert predict_in_parts(model, TEXTS[:number], folder, part_size=10, resume=True) == number
        assert model.asked == []
        assert contents(folder) == before


def test_what_a_killed_run_left_is_cleared_away(tmp_path):
    folder = tmp_path / "answers"
    with pytest.raises(KeyboardInterrupt):
        predict_in_parts(Counting(), stopping_at(15), folder, part_size=10)
    (folder / ".part-00001.jsonl.0123.abalone-partial").write_text('{"labels": [')
    (folder / "part-00001.jsonl").write_text("whole, but killed before the manifest said so\n")
    predict_in_parts(Counting(), TEXTS, folder, part_size=10, resume=True)
    assert labels_in(folder) == expected(25)
    assert not list(folder.glob(".*"))


def test_resume_begins_where_there_is_nothing(tmp_path):
    assert predict_in_parts(Counting(), TEXTS, tmp_path / "answers", resume=True) == 25


def test_a_damaged_part_is_made_again(tmp_path):
    folder = tmp_path / "answers"
    predict_in_parts(Counting(), TEXTS, folder, part_size=10)
    before, model = contents(folder), Counting()
    (folder / "part-00001.jsonl").write_text("cut")
    with pytest.warns(UserWarning, match=r"part-00001.jsonl is missing or damaged: this part and all that follow"):
        predict_in_parts(model, TEXTS, folder, part_size=10, resume=True)
    assert model.asked == TEXTS[10:]
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"part_size": 5}, "part_size was 10 and is 5"),
        ({"form": "parquet"}, "form was 'jsonl' and is 'parquet'"),
        ({"wanted": Wanted(top=2)}, "top was None and is 2"),
        ({"identity": {"model": "b" * 64}}, "model was aaaaaaaa… and is bbbbbbbb…"),
        ({"texts": ["text 7", *TEXTS[1:]]}, "holds answers to other texts than these: part-00000.jsonl differs"),
        ({"texts": TEXTS[:7]}, "holds answers to other texts than these: part-00000.jsonl differs"),
    ],
)
def test_another_job_is_refused(changes, message, tmp_path):
    same = {"texts": TEXTS, "part_size": 10, "identity": {"model": "a" * 64}, "resume": True}
    with pytest.raises(KeyboardInterrupt):
        predict_in_parts(Counting(), folder=tmp_path / "answers", **{**same, "texts": stopping_at(15)})
    before = contents(tmp_path / "answers")
    with pytest.raises(ValueError, match=message):
        predict_in_parts(Counting(), folder=tmp_path / "answers", **{**same, **changes})
    assert contents(tmp_path / "answers") == before
    assert predict_in_parts(Counting(), folder=tmp_path / "answers", **same) == 25


@pytest.mark.parametrize("number", [20, 15])
def test_texts_that_have_grown_are_refused(number, tmp_path):
    predict_in_parts(Counting(), TEXTS[:number], tmp_path / "answers", part_size=10)
    with pytest.raises(ValueError, match=f"it ends after {number}, and here are more"):
        predict_in_parts(Counting(), TEXTS, tmp_path / "answers", part_size=10, resume=True)


@pytest.mark.skipif(os.name == "nt", reason="it has no such locks")
def test_second_process_in_the_same_folder_is_refused_and_the_first_finishes(tmp_path):
    folder = tmp_path / "answers"

    def texts_while_another_tries():
        for number, text in enumerate(TEXTS):
            if number in (5, 15):
                with pytest.raises(InUseError, match=r"another process is using .*answers: wait for it to finish"):
                    predict_in_parts(Counting(), ["text 1"], folder, part_size=10, resume=True)
            yield text

    assert predict_in_parts(Counting(), texts_while_another_tries(), folder, part_size=10) == 25
    assert labels_in(folder) == expected(25)
    assert sorted(contents(folder)) == ["manifest.json", *(f"part-0000{n}.jsonl" for n in range(3))]  # and no lock
    predict_in_parts(Counting(), TEXTS, folder, part_size=10, resume=True)


@pytest.mark.parametrize("number", [15, 20])
def test_killed_between_its_last_part_and_its_end_a_job_ends_after_a_short_part_only(number, tmp_path, monkeypatch):
    folder = tmp_path / "answers"
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "finish", lambda _: next(stopping_at(0)))
        with pytest.raises(KeyboardInterrupt):
            predict_in_parts(Counting(), TEXTS[:number], folder, part_size=10)
    before = contents(folder)
    if number % 10:  # a part is short where there are no more texts
        with pytest.raises(ValueError, match=f"it ends after {number}, and here are more"):
            predict_in_parts(Counting(), TEXTS, folder, part_size=10, resume=True)
        assert contents(folder) == before
    assert predict_in_parts(Counting(), TEXTS[:number], folder, part_size=10, resume=True) == number
    assert json.loads((folder / "manifest.json").read_text())["complete"]


def test_a_process_beside_the_main_one_reads_the_same_texts_and_writes_nothing(tmp_path):
    beside = SimpleNamespace(from_main=lambda _: 10)  # so many are answered, says the main one
    model, folder = Counting(), tmp_path / "answers"
    assert predict_in_parts(model, TEXTS, folder, part_size=10, resume=True, ranks=beside) == 25
    assert model.asked == TEXTS[10:]
    assert not folder.exists()


def test_what_is_there_is_not_overwritten(tmp_path):
    predict_in_parts(Counting(), TEXTS, tmp_path / "answers")
    with pytest.raises(FileExistsError, match="holds predictions: continue with resume=True, or give another folder"):
        predict_in_parts(Counting(), TEXTS, tmp_path / "answers")
    (tmp_path / "answers.txt").write_text("mine")
    for foreign in (tmp_path, tmp_path / "answers.txt"):
        with pytest.raises(FileExistsError, match="exists and holds no predictions"):
            predict_in_parts(Counting(), TEXTS, foreign, resume=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r"manifest\.json is damaged"),
        (b"[]", r"manifest\.json is damaged"),
        (b"[" * 9000, r"manifest\.json is damaged"),
        (b'{"format": "abalone-predictions-1", "job": {}, "complete": true, "parts": [3]}', "is damaged"),
        (b'{"format": "abalone-predictions-9"}', "has format abalone-predictions-9, and this version reads"),
        (b"\xff", "is damaged"),
    ],
)
def test_a_manifest_that_cannot_be_read(content, message, tmp_path):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        predict_in_parts(Counting(), TEXTS, tmp_path, resume=True)
    assert (tmp_path / "manifest.json").read_bytes() == content


def test_parquet_has_the_same_answers(tmp_path):
    from pyarrow.parquet import read_table

    wanted = Wanted(probabilities=True)
    for form in ("jsonl", "parquet"):
        predict_in_parts(Counting(), TEXTS, tmp_path / form, form=form, wanted=wanted)
    lines = [json.loads(line) for line in (tmp_path / "jsonl" / "part-00000.jsonl").read_text().splitlines()]
    rows = read_table(tmp_path / "parquet" / "part-00000.parquet").to_pylist()
    assert [{"labels": row["labels"], "probabilities": dict(row["probabilities"])} for row in rows] == lines


def test_a_part_needs_a_text():
    with pytest.raises(ValueError, match="part_size must be at least 1, got 0"):
        predict_in_parts(Counting(), TEXTS, "nowhere", part_size=0)
    assert not Path("nowhere").exists()


def test_the_checksum_of_a_model_follows_names_and_content(tmp_path):
    for name, content in (("one", "x"), ("two", "x"), ("three", "y")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_text(content)
    (tmp_path / "two" / "inner").mkdir()
    assert model_checksum(tmp_path / "one") == model_checksum(tmp_path / "two")
    assert model_checksum(tmp_path / "one") != model_checksum(tmp_path / "three")
    (tmp_path / "two" / "inner" / "more").write_text("")
    assert model_checksum(tmp_path / "one") != model_checksum(tmp_path / "two")
    assert model_checksum(tmp_path / "one" / "weights") == model_checksum(tmp_path / "two" / "weights")
