import errno
import mmap
import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from abalone.files.cache import build_once, cache_dir, cache_entry, source_key, written_whole
from abalone.files.errors import DataError
from abalone.files.locks import alone_in
from patience import PATIENCE


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("ABALONE_CACHE")
    assert cache_dir() == Path.home() / ".cache" / "abalone"


KEYS = [f"{number:016x}" for number in range(4)]
MONTH = 31 * 24 * 60 * 60


def unused(path: Path, seconds: float = MONTH) -> None:
    """As if nobody had asked for it in that time, or written in it."""
    for old in (*(path.iterdir() if path.is_dir() else ()), path):
        os.utime(old, (time.time() - seconds,) * 2)


@pytest.fixture
def cached(monkeypatch, tmp_path):
    """A folder of the cache with two files and two folders that nobody has used in a month."""
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path))
    folder = tmp_path / "things"
    for key in KEYS[::2]:
        make(folder / f"{key}.safetensors")
    for key in KEYS[1::2]:
        build_once(folder / key, lambda partial: (partial / "inside").touch())
    for path in folder.iterdir():
        unused(path)
    return folder


def make(path: Path) -> None:
    with written_whole(path) as file:
        file.write(b"content")


def test_a_new_entry_makes_what_nobody_uses_go(cached):
    (cached / "notes.txt").touch()
    unused(cached / "notes.txt")
    other = cached.with_name("runs") / KEYS[0]
    make(other)
    unused(other)
    assert cache_entry("things", f"{KEYS[0]}.safetensors").read_bytes() == b"content"  # used, and hence young again
    assert (cache_entry("things", KEYS[1]) / "inside").exists()
    assert len(list(cached.iterdir())) == 5  # nothing goes as long as nothing is made
    assert not cache_entry("things", "f" * 64).exists()
    assert {path.name for path in cached.iterdir()} == {f"{KEYS[0]}.safetensors", KEYS[1], "notes.txt"}
    assert other.exists()


def test_a_run_that_trains_for_longer_than_a_month_stays(cached):
    checkpoints = cached / KEYS[1] / "training"
    checkpoints.mkdir()
    unused(cached / KEYS[1])
    make(checkpoints / "resume.safetensors")
    cache_entry("things", "f" * 64)
    assert [path.name for path in cached.iterdir()] == [KEYS[1]]


@pytest.mark.skipif(os.name == "nt", reason="it has no such locks")
def test_locked_folder_stays_however_old_its_files_look(cached):
    with alone_in(cached / KEYS[1]):
        unused(cached / KEYS[1])
        cache_entry("things", "f" * 64)
        assert [path.name for path in cached.iterdir()] == [KEYS[1]]
        assert (cached / KEYS[1] / "inside").exists()
    unused(cached / KEYS[1])
    cache_entry("things", "f" * 64)
    assert list(cached.iterdir()) == []


def test_what_is_younger_than_a_month_stays(cached):
    for path in cached.iterdir():
        unused(path, MONTH - 2 * 24 * 60 * 60)
    cache_entry("things", "f" * 64)
    assert len(list(cached.iterdir())) == 4


@pytest.mark.skipif(os.name != "posix", reason="elsewhere it stays as long as it is open")
def test_what_is_mapped_can_be_read_to_the_end(cached):
    with (cached / f"{KEYS[0]}.safetensors").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    cache_entry("things", "f" * 64)
    assert list(cached.iterdir()) == []
    assert mapped[:] == b"content"


def test_many_processes_may_clean_up_at_once(cached):
    for number in range(200):
        make(cached / f"{number:064x}")
        unused(cached / f"{number:064x}")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: cache_entry("things", f"{number:x}" * 40), range(8)))
    assert list(cached.iterdir()) == []


def test_a_cache_that_cannot_be_touched_is_used_all_the_same(cached, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "utime", refused)
    assert cache_entry("things", f"{KEYS[0]}.safetensors").exists()


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
    both_inside = threading.Barrier(2, timeout=PATIENCE)

    def build(folder: Path) -> None:
        both_inside.wait()
        (folder / "by").write_text(folder.name)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: build_once(tmp_path / "cache", build), range(2)))
    assert results == [tmp_path / "cache"] * 2
    assert [p.name for p in tmp_path.iterdir()] == ["cache"]
    assert (tmp_path / "cache" / "by").exists()


def test_what_was_there_can_be_kept(tmp_path):
    path, before = tmp_path / "state", tmp_path / "state-before"
    for content in (b"1", b"2", b"3"):
        with written_whole(path, keep_as=before) as file:
            file.write(content)
    assert (path.read_bytes(), before.read_bytes()) == (b"3", b"2")

    def fail() -> None:
        with written_whole(path, keep_as=before) as file:
            file.write(b"4")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left on device") as failure:
        fail()
    assert failure.value.filename == str(path)  # a write does not know its file, and a person must
    assert (path.read_bytes(), before.read_bytes()) == (b"3", b"2")
    assert len(list(tmp_path.iterdir())) == 2


def test_content_is_on_the_disk_before_its_name_and_the_name_before_it_returns(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, Path.replace

    def noted_sync(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        done.append(f"sync {kind} of {os.fstat(descriptor).st_size if kind == 'file' else 'names'}")
        fsync(descriptor)

    def noted_replace(self: Path, target: Path) -> Path:
        done.append(f"name {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    with written_whole(tmp_path / "result") as file:
        file.write(b"12345")
    assert done == ["sync file of 5", "name result", "sync folder of names"]
