"""Rows put aside, and answers that keep their places."""

import json

from abalone.data.bad_rows import Skipped
from abalone.data.rows import Row, TextColumns, with_ids
from abalone.data.tables import BadRow
from abalone.data.unlabelled import read_unlabelled, rows_of_lines


def bad(line: int) -> BadRow:
    return BadRow("a.csv", line, f"reason {line}", hint="not repeated in every answer")


def answered(rows: list[Row]) -> list[dict[str, object]]:
    return [{"labels": [row.text]} for row in rows]


def test_every_row_has_an_answer_whatever_the_blocks():
    rows = [bad(1), Row("b"), Row("c"), bad(4), bad(5), Row("f"), bad(7)]
    expected = [["b"], ["c"], ["f"]]
    for size in range(1, len(rows) + 1):
        skipped = Skipped()
        given: list[dict[str, object]] = []
        for start in range(0, len(rows), size):
            usable = list(skipped.usable(rows[start : start + size]))
            given += skipped.in_place(answered(usable))
            assert len(given) == min(start + size, len(rows)), "an answer waits for a later block"
        assert [answer["labels"] for answer in given if answer["labels"]] == expected
        assert [given[place] for place in (0, 3, 4, 6)] == [
            {"labels": None, "skipped": f"a.csv:{line}: reason {line}"} for line in (1, 4, 5, 7)
        ]


def test_the_list_has_the_number_of_the_row_as_well_as_its_line(tmp_path):
    skipped = Skipped()
    assert list(skipped.usable([Row("a"), bad(9), Row("c")])) == [Row("a"), Row("c")]
    skipped.write(tmp_path / "list.jsonl")
    (entry,) = map(json.loads, (tmp_path / "list.jsonl").read_text().splitlines())
    assert entry == {"number": 2, "file": "a.csv", "line": 9, "reason": "reason 9"}


def test_row_that_was_put_aside_keeps_its_id_in_its_answer_and_in_the_list(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\nk1,one\nk2,\n,three\n")
    columns, skipped = TextColumns(id="id"), Skipped()
    usable = list(skipped.usable(read_unlabelled(tmp_path / "a.csv", columns)))
    assert [answer.get("id") for answer in skipped.in_place(with_ids(usable, answered(usable)))] == ["k1", "k2", None]
    skipped.write(tmp_path / "list.jsonl")
    entries = map(json.loads, (tmp_path / "list.jsonl").read_text().splitlines())
    assert [entry.get("id") for entry in entries] == ["k2", None]

    lines = ['{"id": 7, "text": ""}', '{"text": "no id"}', "plain"]
    (rows,) = rows_of_lines([lines], "standard input", columns)
    assert [row.id for row in rows] == [7, None, None]
