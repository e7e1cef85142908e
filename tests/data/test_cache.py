import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from abalone.data.cache import PARTIAL, build_once, cache_dir, source_key, written_whole
from abalone.data.errors import DataError


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("ABALONE_CACHE")
    assert cache_dir() == Path.home() / ".cache" / "abalone"


def test_a_file_is_seen_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "result"
    with written_whole(path) as file:
        file.write(b"who")
        assert not path.exists()
        file.write(b"le")
    assert path.read_bytes() == b"whole"

    def fail() -> None:
        with written_whole(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"whole"
    assert list(path.parent.iterdir()) == [path]


def test_the_key_follows_the_files_and_the_preparation(tmp_path):
    file = tmp_path / "source"
    file.write_text("one")
    os.utime(file, ns=(1, 1))
    keys = {source_key([file], "1"), source_key([file], "2"), source_key([file, file], "1")}
    os.utime(file, ns=(1, 2))
    keys.add(source_key([file], "1"))
    file.write_text("four")
    os.utime(file, ns=(1, 1))
    keys.add(source_key([file], "1"))
    assert len(keys) == 5


def test_build_once_builds_once(tmp_path):
    calls = []

    def build(folder: Path) -> None:
        calls.append(folder)
        (folder / "made").touch()

    for _ in range(2):
        assert build_once(tmp_path / "a" / "b", build) == tmp_path / "a" / "b"
    assert len(calls) == 1
    assert (tmp_path / "a" / "b" / "made").exists()
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b"]


def test_a_failed_build_leaves_nothing(tmp_path):
    def build(folder: Path) -> None:
        (folder / "half").touch()
        raise DataError("bad source")

    with pytest.raises(DataError, match="bad source"):
        build_once(tmp_path / "cache", build)
    assert list(tmp_path.iterdir()) == []


def test_of_builds_at_once_one_wins_and_all_use_it(tmp_path):
    both_inside = threading.Barrier(2, timeout=10)

    def build(folder: Path) -> None:
        both_inside.wait()
        (folder / "by").write_text(folder.name)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: build_once(tmp_path / "cache", build), range(2)))
    assert results == [tmp_path / "cache"] * 2
    assert [p.name for p in tmp_path.iterdir()] == ["cache"]
    assert (tmp_path / "cache" / "by").exists()


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir])
def test_what_killed_processes_left_is_removed_after_a_day(tmp_path, make):
    old, young = (tmp_path / f".{age}{PARTIAL}" for age in ("old", "young"))
    for left in (old, young):
        make(left)
    if old.is_dir():
        (old / "half").touch()
    os.utime(old, (0, 0))
    with written_whole(tmp_path / "result"):
        pass
    assert not old.exists()
    assert young.exists()
