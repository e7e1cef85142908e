import gzip
import hashlib
import lzma
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from abalone.data import archives
from abalone.data.files import data_files, data_format, decoder_of, open_text, sha256, stem
from abalone.files.errors import DataError

COMPRESS = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}


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


@pytest.mark.parametrize("suffix", COMPRESS)
def test_archives_are_read(tmp_path, suffix):
    path = tmp_path / f"a.csv{suffix}"
    text = "ä line\n" * 50_000
    path.write_bytes(COMPRESS[suffix](text.encode()))
    with open_text(path) as stream:
        assert stream.read() == text


@pytest.mark.parametrize("suffix", COMPRESS)
def test_archives_joined_end_to_end_are_read_to_the_end(tmp_path, suffix):
    path = tmp_path / f"a.csv{suffix}"
    path.write_bytes(COMPRESS[suffix](b"one\n") + COMPRESS[suffix](b"two\n"))
    with open_text(path) as stream:
        assert stream.read() == "one\ntwo\n"


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_damaged_archives_are_an_error_and_not_a_short_file(tmp_path, suffix, damage):
    whole = COMPRESS[suffix](bytes(range(256)) * 5000)
    path = tmp_path / f"a.csv{suffix}"
    path.write_bytes(whole[: len(whole) // 2] if damage == "cut" else b"no archive at all")
    with pytest.raises(DataError, match=r"a\.csv.*cannot be read"), open_text(path) as stream:
        stream.read()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"gone\.csv: cannot be read: No such file"), open_text(tmp_path / "gone.csv"):
        pass


def test_byte_order_marks_are_passed_over_and_bad_bytes_kept(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfcaf\xe9")
    with open_text(path) as stream:
        assert stream.read() == "caf\udce9"


def test_a_stream_is_decoded_piece_by_piece_as_a_file_is():
    decode = decoder_of(None, "stdin")
    pieces = [decode(b"\xef\xbb\xbfcaf\xc3", False), decode(b"\xa9 \xff ", False), decode(b"\xc3", True)]
    assert pieces == ["caf", "é \udcff ", "\udcc3"]
    assert decoder_of("latin-1", "stdin")(b"caf\xe9", True) == "café"
    with pytest.raises(DataError, match=r"^stdin: cannot be read as utf-16: "):
        decoder_of("utf-16", "stdin")(b"\xff\xfea", True)


def test_sha256_is_of_the_bytes_on_disk(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(b"anything")
    assert sha256(path) == hashlib.sha256(b"anything").hexdigest()


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


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_small_archive_does_not_fill_the_memory(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(archives, "ALWAYS_FINE", 1 << 20)
    path = tmp_path / f"bomb.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](b"a line\n" * 1_000_000))
    with pytest.raises(DataError, match=r"bomb.*unpacks to more than .* MiB, over 200 times its size\n  .*unpack it"):
        read_some(path)


def read_some(path: Path) -> None:
    with open_text(path) as stream:
        for _ in range(600_000):
            next(stream)


def test_a_step_in_a_zstandard_archive_is_small(tmp_path):
    path = tmp_path / "bomb.txt.zst"
    path.write_bytes(zstandard.compress(bytes(1 << 28)))  # 8 kB
    tracemalloc.start()
    try:
        with open_text(path) as stream:
            assert stream.read(10) == "\0" * 10
        assert tracemalloc.get_traced_memory()[1] < 1 << 27
    finally:
        tracemalloc.stop()


def test_a_checksum_of_what_cannot_be_read(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(DataError, match="loop: cannot be read"):
        sha256(tmp_path / "loop")
