"""Texts without labels: tables, plain lines, JSON lines, and pipes."""

import gzip
import json
import os
import re
import threading

import pytest

from abalone.data.bad_rows import usable
from abalone.data.rows import Row, TextColumns
from abalone.data.unlabelled import USUAL, count_texts, read_unlabelled, row_of_line, rows_of_lines
from abalone.errors import DataError


def read_texts(path, columns=USUAL):
    return (row.text for row in usable(read_unlabelled(path, columns)))


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("a.csv", b'id,text\n1,one\n2,"two\nlines"\n', ["one", "two\nlines"]),
        ("a.tsv", b"Abstract\tid\none\t1\n", ["one"]),
        ("a.jsonl", b'{"text": "one", "labels": ["x"]}\n\n{"text": "two"}\n', ["one", "two"]),
        ("a.json", b'[{"body": "one"}, {"body": "two"}]', ["one", "two"]),
        ("a.txt", b"one\ntwo\n\n \r\n", ["one", "two"]),
        ("a.txt", b'one\r\n{"text": "two"}\r\n', ["one", "two"]),
        ("a.txt", b"\xef\xbb\xbfone\n", ["one"]),
        ("a.txt.gz", gzip.compress(b"one\ntwo\n", mtime=0), ["one", "two"]),
        ("no suffix", "Größe\u2028x\n".encode(), ["Größe\u2028x"]),
        ("a.csv", b"", []),
        ("a.csv", b"text\n", []),
        ("a.jsonl", b"", []),
        ("a.txt", b"", []),
    ],
)
def test_texts_of_files(name, content, texts, tmp_path):
    (tmp_path / name).write_bytes(content)
    assert list(read_texts(tmp_path / name)) == texts


def test_texts_of_a_folder(tmp_path):
    for split, text in (("train", "one"), ("val", None), ("test", "two")):
        row = "" if text is None else json.dumps({"text": text})
        (tmp_path / f"{split}.jsonl").write_text(row)
    assert list(read_texts(tmp_path)) == ["one", "two"]


def test_texts_of_a_pattern(tmp_path):
    for name, text in (("b-1.jsonl", "two"), ("b-0.jsonl", "one"), ("c-0.jsonl", "not asked for")):
        (tmp_path / name).write_text(json.dumps({"text": text}))
    assert list(read_texts(tmp_path / "b-*.jsonl")) == ["one", "two"]
    with pytest.raises(DataError, match=r"x-\*\.jsonl: there is no such file"):
        list(read_texts(tmp_path / "x-*.jsonl"))


def test_texts_come_as_they_are_read(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": 2}\n')
    texts = read_texts(tmp_path / "a.jsonl")
    assert next(texts) == "one"
    with pytest.raises(DataError, match=r"a\.jsonl:2: the text in column 'text' is not a string but int: 2"):
        next(texts)


@pytest.mark.skipif(os.name != "posix", reason="named pipes")
def test_texts_of_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("one\ntwo\n",))
    writer.start()
    assert list(read_texts(pipe)) == ["one", "two"]
    writer.join()


def test_columns_that_are_named(tmp_path):
    (tmp_path / "a.csv").write_text("head,main\nh,m\n")
    assert list(read_texts(tmp_path / "a.csv", TextColumns(["head", "main"]))) == ["h\nm"]
    (tmp_path / "a.txt").write_text('{"head": "h", "main": "m"}\nplain\n')
    assert list(read_texts(tmp_path / "a.txt", TextColumns(["head", "main"]))) == ["h\nm", "plain"]


def test_columns_of_training_go_before_usual_names_and_after_named_ones(tmp_path):
    (tmp_path / "a.csv").write_text("Head,text\nh,t\n")
    lines = tmp_path / "a.txt"
    lines.write_text('{"head": "h", "text": "t"}\n{"text": "alone"}\nplain\n')
    columns = TextColumns(trained=["head", "text"])
    assert list(read_texts(tmp_path / "a.csv", columns)) == ["h\nt"]
    with pytest.warns(UserWarning, match="trained on head and text, and a JSON object has no head: only text is read"):
        assert list(read_texts(lines, columns)) == ["h\nt", "alone", "plain"]
    assert list(read_texts(tmp_path / "a.csv", TextColumns(["head"], ["head", "text"]))) == ["h"]
    with pytest.warns(UserWarning, match=r"trained on head and gone, and .*a\.csv has no head and no gone: only text"):
        assert list(read_texts(tmp_path / "a.csv", TextColumns(trained=["head", "gone"]))) == ["t"]
    assert list(read_texts(tmp_path / "a.csv", TextColumns(trained=["abstract"]))) == ["t"]  # by another name


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        (
            "a.csv",
            b"id,words\n1,x\n",
            None,
            r"a\.csv: no column for the text \(looked for text, .*\n  Columns: id, words",
        ),
        ("a.csv", b"id,words\n1,x\n", ["wrods"], r"a\.csv: no column 'wrods' .*\n.*Did you mean 'words'"),
        ("a.csv", b"text,id\nx\n", None, r"a\.csv:2: 1 columns where the header has 2"),
        ("a.csv", b"text\n \n", None, r"a\.csv:2: no text in column 'text'"),
        ("a.jsonl", b'{"text": "x"}\nx\n', None, r"a\.jsonl:2: not JSON"),
        ("a.txt", b"x\n\xe9t\xe9\n", None, r"a\.txt:2: byte 0xe9 at position 1 of the row is not UTF-8"),
        ("a.txt", b'{"text": "\\udc00"}\n', None, r"a\.txt:1: the text has half a surrogate pair at position 1"),
        ("a.txt", b'x\n{"text": "x"}\n', ["body"], r"a\.txt:2: no text in column 'body'"),
        ("a.txt", b"x\ny\n \n\nx\n", None, r"a\.txt:3: the line is empty"),
        ("a.txt.gz", b"not compressed", None, r"a\.txt\.gz: cannot be read"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(name, content, columns, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read_texts(tmp_path / name, TextColumns(columns)))


def test_a_row_without_a_text_keeps_its_place(tmp_path):
    (tmp_path / "a.txt").write_text('one\n\n{"id": 2}\nfour\n\n')
    (tmp_path / "a.csv").write_text('text\none\n""\n"broken" quotes\nfour\n')
    for name, lines in (("a.txt", [2, 3]), ("a.csv", [3, 4])):
        first, *between, last = read_unlabelled(tmp_path / name)
        assert (first, last) == (Row("one"), Row("four"))
        assert [(error.path, error.line) for error in between] == [(tmp_path / name, line) for line in lines]


def test_lines_are_numbered_over_blocks_and_empty_ones_wait_for_what_follows():
    found = rows_of_lines([["one", ""], ["", "four"], [""], ["", ""]], "stream")
    assert next(found) == [Row("one")]
    *empty, four = next(found)
    assert (four, [(error.line, error.reason) for error in empty]) == (
        Row("four"),
        [(2, "the line is empty"), (3, "the line is empty")],
    )
    assert list(found) == [[], []]


def test_a_table_is_not_read_twice(tmp_path, monkeypatch):
    """A checksum of a large one would keep the first answer waiting."""
    monkeypatch.setattr("abalone.data.sources.sha256", lambda file: pytest.fail(f"all of {file} is read"))
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    assert list(read_texts(tmp_path / "a.jsonl")) == list(read_texts(tmp_path)) == ["one"]


def test_texts_are_counted_as_they_are_read(tmp_path):
    (tmp_path / "a.csv").write_bytes("Größe;main\nä;m\nö;\nü;m\n".encode("latin-1"))
    columns = TextColumns(["main"])
    assert count_texts(tmp_path / "a.csv", columns, "latin-1", skipping=True) == 2
    with pytest.raises(DataError, match=r"a\.csv:3: no text in column 'main'"):
        count_texts(tmp_path / "a.csv", columns, "latin-1")
    with pytest.raises(DataError, match="UTF-8"):
        count_texts(tmp_path / "a.csv", columns, skipping=True)


def test_texts_that_take_long_to_count_are_not_counted(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert count_texts(tmp_path / "a.txt") == 2
    monkeypatch.setattr("abalone.data.unlabelled.QUICK", 8)
    assert count_texts(tmp_path / "a.txt") == 2
    monkeypatch.setattr("abalone.data.unlabelled.QUICK", 7)
    assert count_texts(tmp_path / "a.txt") is None
    assert count_texts(tmp_path) is None  # a folder


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.csv: there is no such file"):
        list(read_texts(tmp_path / "nowhere.csv"))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("plain words", "plain words"),
        ('{"text": "inside", "id": 1}', "inside"),
        ('{"Body": "inside", "id": 1}', "inside"),
        (' {"body": "the other", "text": "inside"}', "inside"),
        ("{braces} in LaTeX", "{braces} in LaTeX"),
        ('["text"]', '["text"]'),
        ('{"n": ' + "9" * 5000 + "}", '{"n": ' + "9" * 5000 + "}"),  # more digits than Python reads
        ('{"a":' * 100_000, '{"a":' * 100_000),  # deeper than Python reads
    ],
    ids=lambda value: value[:20],
)
def test_a_line_is_a_text_or_a_json_object_with_one(line, text):
    assert row_of_line(line) == Row(text)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            '{"foo": "x", "n": 1}',
            r"no field for the text \(looked for text, .*; found foo, n\): name it with text_c",
        ),
        ("{}", "found none"),
        ('{"text": null, "body": "as in a table, a missing text is no reason to look elsewhere"}', "no text in column"),
        ('{"text": 3}', "the text in column 'text' is not a string but int: 3"),
        ('{"text": ["a list"]}', "the text in column 'text' is not a string but list"),
        ('{"text": " "}', "no text in column 'text'"),
    ],
)
def test_a_json_object_without_a_text_is_no_text(line, told):
    bad = row_of_line(line, USUAL, "a.txt", 3)
    assert (bad.path, bad.line) == ("a.txt", 3)
    assert re.search(told, bad.reason)
