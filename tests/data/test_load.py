import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from handmade import ROWS, as_csv, as_dataset, write
from scipy.sparse import csr_array

from abalone import load_corpus
from abalone.data import benchmarks
from abalone.data.corpus import Corpus, Split
from abalone.data.unlabelled import read_unlabelled
from abalone.errors import DataError


def test_provenance(tmp_path):
    path = write(tmp_path / "papers.csv", as_csv(ROWS))
    assert load_corpus(path).provenance == {
        "source": "papers.csv",
        "format": "csv",
        "sha256": {"papers.csv": hashlib.sha256(path.read_bytes()).hexdigest()},
        "columns": {"text": ["text"], "labels": ["labels"], "split": "split"},
        "label_separator": ";",
        "bad_rows": 0,
        "split": {"origin": "column 'split'"},
    }
    json.dumps(load_corpus(as_dataset(ROWS)).provenance)


@pytest.fixture
def benchmark(monkeypatch):
    asked: list[Path | None] = []
    split = Split(["x"], csr_array(np.ones((1, 1), dtype=np.int32)))
    corpus = Corpus(split, split, split, ("a",), name="rcv1")
    monkeypatch.setitem(benchmarks.BENCHMARKS, "rcv1", lambda path: asked.append(path) or corpus)
    return asked


def test_benchmarks_by_name(benchmark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rcv1").mkdir()  # of the same name, and not meant
    assert load_corpus("rcv1").name == "rcv1"
    assert load_corpus("rcv1", path="there").name == "rcv1"
    assert benchmark == [None, Path("there")]
    with pytest.raises(DataError, match="the folder holds no file"):
        load_corpus("./rcv1")


@pytest.mark.parametrize(
    "option",
    [
        {"text_column": "x"},
        {"label_separator": ";"},
        {"skip_bad_rows": True},
        {"merge_case": True},
        {"drop_duplicates": True},
        {"encoding": "latin-1"},
    ],
)
def test_benchmarks_take_no_options(benchmark, option):
    with pytest.raises(DataError, match="'rcv1' is a benchmark"):
        load_corpus("rcv1", **option)
    assert benchmark == []


def test_a_path_goes_with_a_benchmark_only(tmp_path):
    with pytest.raises(DataError, match="path= is only for benchmarks"):
        load_corpus(write(tmp_path / "a.csv", "text,labels\n"), path="there")


def test_the_nearest_name_is_suggested(tmp_path):
    with pytest.raises(DataError, match=r"(?s)neither a file.*Did you mean 'reuters'\? Benchmarks: .*arxiv-sample"):
        load_corpus("reuter")
    path = write(tmp_path / "papers.jsonl", "")
    with pytest.raises(DataError, match=r"Did you mean '.*papers\.jsonl'\?"):
        load_corpus(tmp_path / "papers.jsnl")
    with pytest.raises(DataError) as caught:
        load_corpus(str(path.parent / "nowhere" / "zzzz"))
    assert caught.value.hint.startswith("Benchmarks: ")


@pytest.mark.parametrize("name", ["~nobody-is-called-so/a.csv", "x" * 5000, "a\0b"])
def test_names_that_no_file_can_have(name):
    with pytest.raises(DataError, match=r"no such file or folder|neither a file or folder") as caught:
        load_corpus(name)
    assert len(str(caught.value)) < 2000
    with pytest.raises(DataError, match="no such file or folder"):
        load_corpus("rcv1", path=name)


@pytest.mark.parametrize("large", [False, True])
def test_an_encoding_is_told_of_and_taken(tmp_path, monkeypatch, large):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    if large:
        monkeypatch.setattr("abalone.data.load.IN_MEMORY", -1)
    path = write(tmp_path / "a.csv", "text,labels,split\ncafé,é,train\nx,é,val\n".encode("cp1252"))
    with pytest.raises(
        DataError, match=r"a\.csv:2: byte 0xe9 at position 4 .* is not UTF-8\n  If the whole file is in"
    ):
        load_corpus(path)
    corpus = load_corpus(path, encoding="windows-1252")
    assert (corpus.train.texts[0], corpus.label_names) == ("café", ("é",))
    assert corpus.provenance["encoding"] == "cp1252"
    assert load_corpus(path, encoding="cp1251").label_names == ("й",), "what is kept in the cache is kept by encoding"
    with pytest.raises(DataError, match="encoding= is only for text files; a dataset"):
        load_corpus(as_dataset(ROWS), encoding="latin-1")


@pytest.mark.parametrize("name", ["a.xlsx", "a.XLS", "a.ods"])
def test_spreadsheets_are_refused_with_advice(tmp_path, name):
    (tmp_path / "folder").mkdir()
    path = write(tmp_path / "folder" / name, b"PK\x03\x04")
    for source in (path, path.parent):
        with pytest.raises(DataError, match=r"spreadsheets .* are not supported\n  Save it as CSV"):
            load_corpus(source)
    with pytest.raises(DataError, match=r"spreadsheets .* are not supported"):
        list(read_unlabelled(path))
