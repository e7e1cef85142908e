import pytest
from handmade import COMPRESS

from abalone.data.benchmarks import Release, find_file, read_lines
from abalone.errors import DataError

RELEASE = Release(name="laws", publisher="the parliament", files="laws.txt", licence="open")


def test_the_place_is_the_given_one_else_the_data_folder_else_the_cache(tmp_path, monkeypatch):
    cache, data, given = (tmp_path / name for name in ("cache", "data", "given"))
    for folder in (cache / "data" / "laws", data / "laws", given):
        folder.mkdir(parents=True)
    monkeypatch.setenv("ABALONE_CACHE", str(cache))
    monkeypatch.delenv("ABALONE_DATA", raising=False)
    assert RELEASE.place(None) == cache / "data" / "laws"
    monkeypatch.setenv("ABALONE_DATA", str(data))
    assert RELEASE.place(None) == data / "laws"
    assert RELEASE.place(given) == given
    with pytest.raises(DataError) as caught:
        RELEASE.place(tmp_path / "gone")
    assert caught.value.reason == "laws: there is no such file or folder"
    assert caught.value.hint.startswith(f"Get laws.txt from the parliament; put it in {tmp_path / 'gone'}")


@pytest.mark.parametrize("suffix", COMPRESS)
def test_files_are_found_and_read_however_they_are_compressed(tmp_path, suffix):
    content = "\ufefföne\r\ntwo\rstill two\nthree".encode()
    (tmp_path / f"laws.txt{suffix}").write_bytes(COMPRESS[suffix](content))
    assert find_file(tmp_path, "law.txt") is None
    file = find_file(tmp_path, "laws.txt")
    assert list(read_lines(file)) == [(1, "öne\r\n"), (2, "two\rstill two\n"), (3, "three")]


def test_lines_that_are_not_utf8_are_named(tmp_path):
    file = tmp_path / "laws.txt"
    file.write_bytes(b"fine\ncaf\xe9\n")
    with pytest.raises(DataError, match=r"laws\.txt:2: byte 0xe9 at position 4 of the row is not UTF-8"):
        list(read_lines(file))
    assert [line for _, line in read_lines(file, "latin-1")] == ["fine\n", "café\n"]
