import errno
import mmap
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from abalone.files.atomic import alone_in, build_once, written_whole
from abalone.files.cache import cache_dir, cache_entry, source_key


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("ABALONE_CACHE")
    assert cache_dir() == Path.home() / ".cache" / "abalone"


KEYS = [f"{number:016x}" for number in range(4)]
MONTH = 30 * 24 * 60 * 60
MINUTE = 60


def unused(path: Path, seconds: float = MONTH + MINUTE) -> None:
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
        unused(path, MONTH - MINUTE)
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
