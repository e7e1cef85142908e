"""Rows with ids: beside their texts, and told from the same texts under other ids."""

import json

import pytest

from abalone.data.bad_rows import usable
from abalone.data.rows import Row, TextColumns, texts_and_ids, with_ids
from abalone.data.unlabelled import read_unlabelled, row_of_line
from abalone.errors import DataError


def ids(rows):
    return [(row.text, row.id) for row in usable(rows)]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt", "a.parquet"])
def test_every_kind_of_rows_has_ids(name, tmp_path):
    rows = [{"Key": "a-1", "text": "one"}, {"Key": "a-2", "text": "two"}]
    if name == "a.parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), tmp_path / name)
    elif name == "a.csv":
        (tmp_path / name).write_text("Key,text,more\na-1,one,x\na-2,two,y\n")
    else:
        (tmp_path / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert ids(read_unlabelled(tmp_path / name, TextColumns(id="Key"))) == [("one", "a-1"), ("two", "a-2")]
    assert not any(row.id for row in read_unlabelled(tmp_path / name))


def test_numbers_stay_numbers_and_a_text_may_be_its_own_id():
    assert ids([row_of_line('{"id": 7, "text": "one"}', TextColumns(id="id"))]) == [("one", 7)]
    assert ids([row_of_line('{"text": "one"}', TextColumns(id="text"))]) == [("one", "one")]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("plain words", "a line of plain text has no id: expected a JSON object with a field 'id'"),
        ('{"text": "x"}', "no id in column 'id'"),
        ('{"text": "x", "id": " "}', "no id in column 'id'"),
        ('{"text": "x", "id": 1.5}', "the id in column 'id' is not a string or integer but float: 1.5"),
        ('{"text": "x", "id": true}', "but bool: True"),
        ('{"text": "x", "id": ["a"]}', "but list"),
        ('{"text": "x", "id": "\\ud800"}', "the id has half a surrogate pair at position 1"),
    ],
)
def test_what_is_no_id_is_told(line, told):
    assert told in row_of_line(line, TextColumns(id="id")).reason


def test_a_column_that_is_not_there(tmp_path):
    (tmp_path / "a.csv").write_text("number,text\n1,one\n")
    with pytest.raises(DataError, match=r"a\.csv: no column 'nummer' \(id_column=\)\n.*Did you mean 'number'"):
        list(read_unlabelled(tmp_path / "a.csv", TextColumns(id="nummer")))


def test_a_row_without_an_id_keeps_its_place(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,one\n,two\n3,three\n")
    first, second, third = read_unlabelled(tmp_path / "a.csv", TextColumns(id="id"))
    assert ids([first, third]) == [("one", "1"), ("three", "3")]
    assert (second.line, second.reason) == (3, "no id in column 'id'")


def test_answers_and_texts_must_be_as_many():
    with pytest.raises(ValueError, match="shorter"):
        list(with_ids([Row("one", 1), Row("two", 2)], [{"labels": []}]))


def test_the_same_texts_under_other_ids_are_others():
    one, other = ([Row("one", row_id)] for row_id in (1, "1"))
    assert one[0].text == other[0].text == "one"
    assert len({tuple(texts_and_ids(rows)) for rows in (one, other, [Row("one")])}) == 3
