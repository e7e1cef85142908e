"""Rows put aside, and answers that keep their places."""

import json

from abalone.data.columns import TextColumns
from abalone.data.identified import with_ids
from abalone.data.skipped import Skipped
from abalone.data.unlabelled import read_rows, rows_of_lines
from abalone.files.errors import DataError


def error(line: int) -> DataError:
    return DataError(f"reason {line}", path="a.csv", line=line, hint="not repeated in every answer")


def answered(texts: list[str]) -> list[dict[str, object]]:
    return [{"labels": [text]} for text in texts]


def test_every_row_has_an_answer_whatever_the_blocks():
    rows = [error(1), "b", "c", error(4), error(5), "f", error(7)]
    expected = [["b"], ["c"], ["f"]]
    for size in range(1, len(rows) + 1):
        skipped = Skipped()
        given: list[dict[str, object]] = []
        for start in range(0, len(rows), size):
            texts = list(skipped.texts(rows[start : start + size]))
            given += skipped.in_place(answered(texts))
            assert len(given) == min(start + size, len(rows)), "an answer waits for a later block"
        assert [answer["labels"] for answer in given if answer["labels"]] == expected
        assert [given[place] for place in (0, 3, 4, 6)] == [
            {"labels": None, "skipped": f"a.csv:{line}: reason {line}"} for line in (1, 4, 5, 7)
        ]


def test_the_list_has_the_number_of_the_row_as_well_as_its_line(tmp_path):
    skipped = Skipped()
    assert list(skipped.texts(["a", error(9), "c"])) == ["a", "c"]
    skipped.write(tmp_path / "list.jsonl")
    (entry,) = map(json.loads, (tmp_path / "list.jsonl").read_text().splitlines())
    assert entry == {"number": 2, "file": "a.csv", "line": 9, "reason": "reason 9"}


def test_row_that_was_put_aside_keeps_its_id_in_its_answer_and_in_the_list(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\nk1,one\nk2,\n,three\n")
    columns, skipped = TextColumns(ids="id"), Skipped()
    texts = list(skipped.texts(read_rows(tmp_path / "a.csv", columns)))
    assert [answer.get("id") for answer in skipped.in_place(with_ids(texts, answered(texts)))] == ["k1", "k2", None]
    skipped.write(tmp_path / "list.jsonl")
    entries = map(json.loads, (tmp_path / "list.jsonl").read_text().splitlines())
    assert [entry.get("id") for entry in entries] == ["k2", None]

    lines = ['{"id": 7, "text": ""}', '{"text": "no id"}', "plain"]
    (rows,) = rows_of_lines([lines], "standard input", columns)
    assert [row.row_id for row in rows] == [7, None, None]
