import gzip
import lzma
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from abalone.data import streams
from abalone.data.streams import decoder_of, open_text
from abalone.errors import DataError

COMPRESS = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}


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


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_small_archive_does_not_fill_the_memory(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(streams, "ALWAYS_FINE", 1 << 20)
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
