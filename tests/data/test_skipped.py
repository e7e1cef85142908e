"""Rows put aside, and answers that keep their places."""

import json

from abalone.data.errors import DataError
from abalone.data.skipped import Skipped


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
