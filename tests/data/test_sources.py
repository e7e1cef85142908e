import lzma
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import DatasetDict, IterableDataset
from handmade import COMPRESS, ROWS, WRITE, as_dataset, as_jsonl, assert_is_rows, write

from abalone import load_corpus
from abalone.data.sources import data_files, data_format, stem
from abalone.errors import DataError


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("suffix", WRITE)
def test_text_formats_plain_and_compressed(tmp_path, suffix, compression):
    path = write(tmp_path / f"papers{suffix}{compression}", COMPRESS[compression](WRITE[suffix](ROWS)))
    corpus = load_corpus(path)
    assert_is_rows(corpus)
    assert corpus.name == "papers"
    assert_is_rows(load_corpus(str(path)))


def test_parquet(tmp_path):
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "papers.parquet")
    assert_is_rows(load_corpus(tmp_path / "papers.parquet"))


@pytest.mark.parametrize("suffix", WRITE)
def test_a_folder_of_splits(tmp_path, suffix):
    for name, rows in {"train": ROWS[:3], "val": ROWS[3:4], "test": ROWS[4:]}.items():
        write(tmp_path / f"{name}{suffix}.xz", lzma.compress(WRITE[suffix](rows)))
    corpus = load_corpus(tmp_path)
    assert_is_rows(corpus)
    assert corpus.name == tmp_path.name
    assert corpus.provenance["split"] == {"origin": "files"}


def test_a_folder_of_shards(tmp_path):
    for name, rows in {
        "train-00000-of-00002": ROWS[:2],
        "train-00001-of-00002": ROWS[2:3],
        "validation-00000-of-00001": ROWS[3:4],
        "test-00000-of-00001": ROWS[4:],
    }.items():
        pq.write_table(pa.Table.from_pylist(rows, pa.Table.from_pylist(ROWS).schema), tmp_path / f"{name}.parquet")
    assert_is_rows(load_corpus(tmp_path))


def test_files_left_out_of_a_folder_are_noted(tmp_path):
    write(tmp_path / "train.csv", "text,labels\nx,a\n")
    write(tmp_path / "test.csv", "text,labels\ny,a\n")
    write(tmp_path / "names.csv", "id,name\n")
    assert "Left out, because the file names contain no split: names.csv." in load_corpus(tmp_path).notes


def test_a_folder_with_training_alone_may_have_a_split_column(tmp_path):
    write(tmp_path / "train.jsonl", as_jsonl(ROWS))
    assert_is_rows(load_corpus(tmp_path))


def test_datasets_in_memory_and_on_disk(tmp_path):
    assert_is_rows(load_corpus(as_dataset(ROWS)))
    as_dataset(ROWS).save_to_disk(tmp_path / "saved")
    corpus = load_corpus(tmp_path / "saved")
    assert_is_rows(corpus)
    assert corpus.name == "saved"
    assert list(corpus.provenance["sha256"]) == ["data-00000-of-00001.arrow"]


def test_dataset_dicts_in_memory_and_on_disk(tmp_path):
    parts = DatasetDict(
        test=as_dataset(ROWS[4:]), train=as_dataset(ROWS[:3]), validation=as_dataset(ROWS[3:4]), extra=as_dataset(ROWS)
    )
    corpus = load_corpus(parts)
    assert_is_rows(corpus)
    assert "Left out: the part 'extra' of the dataset, 5 rows." in corpus.notes
    parts.save_to_disk(tmp_path / "saved")
    assert_is_rows(load_corpus(tmp_path / "saved"))


def test_a_dataset_in_memory_is_called_what_it_says_it_is():
    unnamed, named = as_dataset(ROWS), as_dataset(ROWS)
    named.info.dataset_name = "laws"
    for dataset, name in ((unnamed, "dataset"), (named, "laws"), (DatasetDict(train=named), "laws")):
        corpus = load_corpus(dataset)
        assert (corpus.name, corpus.provenance["source"]) == (name, name)


def test_dataset_dicts_need_one_part_a_split():
    with pytest.raises(DataError, match="two parts for validation"):
        load_corpus(DatasetDict(train=as_dataset(ROWS), val=as_dataset(ROWS), dev=as_dataset(ROWS)))
    with pytest.raises(DataError, match="no part is named train: a, test"):
        load_corpus(DatasetDict(a=as_dataset(ROWS), test=as_dataset(ROWS)))


def test_other_things_are_refused():
    with pytest.raises(DataError, match="got IterableDataset"):
        load_corpus(IterableDataset.from_generator(lambda: iter(ROWS)))


def test_unknown_formats_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"papers\.txt: unknown file format"):
        load_corpus(write(tmp_path / "papers.txt", "x"))


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("name", "kind", "short"),
    [
        ("papers.csv", "csv", "papers"),
        ("PAPERS.CSV", "csv", "PAPERS"),
        ("a.b.tsv.gz", "tsv", "a.b"),
        ("x.jsonl.xz", "jsonl", "x"),
        ("x.ndjson.zst", "jsonl", "x"),
        ("x.json", "json", "x"),
        ("x.parquet", "parquet", "x"),
        ("x.parquet.gz", None, "x"),
        ("x.txt", None, "x.txt"),
        ("x.gz", None, "x"),
        ("README", None, "README"),
    ],
)
def test_names_say_the_format(name, kind, short):
    assert data_format(Path(name)) == kind
    assert stem(Path(name)) == short


@pytest.mark.parametrize("validation", ["val", "valid", "validation", "dev", "Dev", "papers-dev", "papers_val"])
def test_folders_of_splits(tmp_path, validation):
    found = data_files(fill(tmp_path, "train.csv", f"{validation}.jsonl.gz", "test.parquet", "README.md", ".x.csv"))
    assert {split: [path.name for path in paths] for split, paths in found.of_split.items()} == {
        "train": ["train.csv"],
        "validation": [f"{validation}.jsonl.gz"],
        "test": ["test.parquet"],
    }
    assert found.left_out == []


def test_shards_are_parts_of_a_split(tmp_path):
    fill(tmp_path, "train-00001-of-00002.parquet", "train-00000-of-00002.parquet", "test-00000-of-00001.parquet")
    found = data_files(tmp_path)
    assert [path.name for path in found.of_split["train"]] == [
        "train-00000-of-00002.parquet",
        "train-00001-of-00002.parquet",
    ]


def test_a_missing_shard_is_an_error(tmp_path):
    fill(tmp_path, "train-00000-of-00003.parquet", "train-00002-of-00003.parquet")
    with pytest.raises(DataError, match=r"2 of the 3 files train-…-of-00003 are here"):
        data_files(tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        ["train.csv", "train.jsonl"],
        ["train.csv", "train.csv.gz"],
        ["val.csv", "dev.csv"],
        ["train.csv", "train-1.csv"],
        ["old-train-1.csv", "new-train-1.csv"],
        ["papers.csv", "papers.csv.gz"],
    ],
)
def test_two_files_for_one_thing_are_an_error(tmp_path, names):
    with pytest.raises(DataError, match="several files for"):
        data_files(fill(tmp_path, *names))


def test_files_that_say_no_split_are_left_out_beside_those_that_do(tmp_path):
    found = data_files(fill(tmp_path, "train.csv", "test.csv", "label_list.csv", "train_vs_test.csv"))
    assert [path.name for path in found.left_out] == ["label_list.csv", "train_vs_test.csv"]


def test_reports_of_bad_rows_are_no_data(tmp_path):
    found = data_files(fill(tmp_path, "train.csv", "train.csv.bad-rows.jsonl"))
    assert [path.name for path in found.of_split["train"]] == ["train.csv"]


def test_files_without_splits_are_one_table(tmp_path):
    found = data_files(fill(tmp_path, "part-1.jsonl", "part-0.jsonl"))
    assert [path.name for path in found.of_split[None]] == ["part-0.jsonl", "part-1.jsonl"]


def test_a_folder_without_data_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no file of a known format"):
        data_files(fill(tmp_path, "README.md", "train.txt"))
