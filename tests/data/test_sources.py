import lzma

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import DatasetDict, IterableDataset
from handmade import COMPRESS, ROWS, WRITE, as_dataset, as_jsonl, assert_is_rows, write

from abalone import load_corpus
from abalone.files.errors import DataError


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
