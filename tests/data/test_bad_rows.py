import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from handmade import ROWS, as_dataset, as_jsonl, assert_is_rows, write

from abalone import load_corpus
from abalone.errors import DataError

GOOD = {"text": "x", "labels": ["a"], "split": "train"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "", "labels": ["a"], "split": "train"}', "no text in column 'text'"),
        ('{"text": " \\n", "labels": ["a"], "split": "train"}', "no text in column 'text'"),
        ('{"labels": ["a"], "split": "train"}', "no text in column 'text'"),
        ('{"text": null, "labels": ["a"], "split": "train"}', "no text in column 'text'"),
        ('{"text": 5, "labels": ["a"], "split": "train"}', "the text in column 'text' is not a string but int: 5"),
        ('{"text": "a\\ud83d", "labels": ["a"], "split": "train"}', "half a surrogate pair at position 2"),
        ('{"text": "y", "labels": ["b\\ud83d"], "split": "train"}', "half a surrogate pair at position 2"),
        ('{"text": "y", "labels": "c; b\\ud83d", "split": "train"}', "half a surrogate pair at position 5"),
        ('{"text": "y", "labels": [1.5], "split": "train"}', "the label 1.5 is neither a string nor an integer"),
        ('{"text": "y", "labels": {"a": 1}, "split": "train"}', "is neither a string nor an integer"),
        ('{"text": "y", "labels": ["a"], "split": "holdout"}', "unknown split 'holdout'"),
        ('{"text": "y", "labels": ["a"]}', "no split"),
        ('{"text": "y", "labels": ["a"', "not JSON"),
        ("[]", "expected a JSON object"),
        (b'{"text": "caf\xe9", "labels": ["a"], "split": "train"}', "byte 0xe9 at position 14 of the row is not UTF-8"),
    ],
)
def test_bad_rows_stop_with_a_place_or_are_left_out_and_listed(tmp_path, line, reason):
    line = line if isinstance(line, bytes) else line.encode()
    good = [{**GOOD, "split": split} for split in ("train", "val", "test")]
    path = write(tmp_path / "a.jsonl", as_jsonl(good) + b"\n" + line + b"\n" + as_jsonl(good[:1]))
    with pytest.raises(DataError) as caught:
        load_corpus(path)
    assert (caught.value.path, caught.value.line) == (path, 5)
    assert reason in caught.value.reason
    assert "skip_bad_rows" in caught.value.hint
    assert list(tmp_path.iterdir()) == [path]

    report = tmp_path / "a.jsonl.bad-rows.jsonl"
    with pytest.warns(UserWarning, match="Rows left out: 1; see .*bad-rows") as warned:
        corpus = load_corpus(path, skip_bad_rows=True)
    assert warned[0].filename == __file__
    assert len(corpus.train) == 2
    assert f"Rows left out: 1; see {report}." in corpus.notes
    assert corpus.provenance["bad_rows"] == 1
    (entry,) = map(json.loads, report.read_text().splitlines())
    assert (entry["file"], entry["line"]) == (str(path), 5)
    assert reason in entry["reason"]
    assert entry["row"] == line.decode("utf-8", "surrogateescape")
    assert sorted(tmp_path.iterdir()) == [path, report]


def test_bad_rows_of_csv_have_the_line_they_start_at(tmp_path):
    content = b'text,labels,split\n"a\nb",x,train\nc,x,val,,\n"d\n",x,test\n,x,test\n"caf\n\xe9",x,test\ne,x,test\n'
    report = tmp_path / "report.jsonl"
    with pytest.warns(UserWarning, match="Rows left out: 3"):
        corpus = load_corpus(write(tmp_path / "a.csv", content), skip_bad_rows=report)
    entries = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(entry["line"], entry["row"]) for entry in entries] == [
        (4, "c,x,val,,"),
        (7, ",x,test"),
        (8, '"caf\n\udce9",x,test'),
    ]
    assert list(corpus.test.texts) == ["d\n", "e"]


def test_bad_rows_of_parquet_have_their_number(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([*ROWS, {"text": None, "labels": ["a"], "split": "train"}]), path)
    with pytest.raises(DataError, match=r"a\.parquet:6: no text"):
        load_corpus(path)
    with pytest.warns(UserWarning, match="Rows left out: 1"):
        assert_is_rows(load_corpus(path, skip_bad_rows=True))
    report = json.loads((tmp_path / "a.parquet.bad-rows.jsonl").read_text())
    assert json.loads(report["row"]) == {"text": None, "labels": ["a"], "split": "train"}


def test_a_cell_that_is_neither_0_nor_1_is_a_bad_row(tmp_path):
    path = write(tmp_path / "a.csv", "text,a,b\nx,1,0\ny,2,1\n")
    with pytest.raises(DataError, match=r"a\.csv:3: column 'a' holds '2' where 0 or 1 is expected"):
        load_corpus(path, label_column=["a", "b"])


def test_bad_rows_of_a_folder_are_listed_beside_it(tmp_path):
    folder = tmp_path / "papers"
    folder.mkdir()
    for name in ("train", "val", "test"):
        write(folder / f"{name}.csv", "text,labels\nx,a\n,a\n")
    with pytest.warns(UserWarning, match="Rows left out: 3"):
        load_corpus(folder, skip_bad_rows=True)
    entries = [json.loads(line) for line in (tmp_path / "papers.bad-rows.jsonl").read_text().splitlines()]
    assert [(Path(entry["file"]).name, entry["line"]) for entry in entries] == [
        ("train.csv", 3),
        ("val.csv", 3),
        ("test.csv", 3),
    ]


def test_no_report_without_bad_rows(tmp_path):
    path = write(tmp_path / "a.jsonl", as_jsonl(ROWS))
    assert_is_rows(load_corpus(path, skip_bad_rows=True))
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_half_written_when_reading_fails_later(tmp_path):
    whole = gzip.compress(b"text,labels\n,a\n" + b"".join(b"%d,a\n" % i for i in range(50_000)))
    path = write(tmp_path / "a.csv.gz", whole[:-2000])
    with pytest.raises(DataError, match="cannot be read"):
        load_corpus(path, skip_bad_rows=True)
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_that_cannot_be_written_is_an_error(tmp_path):
    path = write(tmp_path / "a.csv", "text,labels\n,a\n")
    with pytest.raises(DataError, match="rows left out cannot be written") as caught:
        load_corpus(path, skip_bad_rows=path / "report.jsonl")
    assert caught.value.hint.startswith(f"Get the right to write in {path}, or copy the data")
    assert "skip_bad_rows=" not in caught.value.hint  # a flag at the command line, which takes no file


def test_nothing_but_bad_rows(tmp_path):
    path = write(tmp_path / "a.csv", "text,labels\n,a\n,b\n")
    with pytest.raises(DataError, match=r"no documents\n  Rows left out: 2; see"):
        load_corpus(path, skip_bad_rows=True)


def test_datasets_in_memory_need_a_place_for_the_report(tmp_path):
    dataset = as_dataset([*ROWS, {"text": "", "labels": [], "split": "train"}])
    with pytest.raises(DataError, match=r"dataset:6: no text"):
        load_corpus(dataset)
    with pytest.raises(DataError, match="no folder to list bad rows in"):
        load_corpus(dataset, skip_bad_rows=True)
    with pytest.warns(UserWarning, match="Rows left out: 1"):
        assert_is_rows(load_corpus(dataset, skip_bad_rows=tmp_path / "report.jsonl"))
