"""What is being written: nobody takes it away from a writer that lives, and it goes with one that dies."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from abalone.errors import DataError
from abalone.files import atomic
from abalone.files.atomic import (
    ASIDE,
    PARTIAL,
    build_once,
    partial_file,
    partial_folder,
    put_back,
    remove_abandoned,
    remove_folder,
    sync_tree,
    take_place,
    written_whole,
)
from patience import PATIENCE


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.skipif(os.name != "posix", reason="locks")
def test_it_goes_with_its_writer(kind, tmp_path):
    """What a living process writes stays, and what a killed one has left goes at once."""
    program = (
        "import sys; from pathlib import Path; from abalone.files.atomic import partial_file, partial_folder\n"
        f"with partial_{kind}(Path(sys.argv[1])): print('writing', flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "result")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        (being_written,) = names(tmp_path)
        assert being_written.endswith(PARTIAL)
        remove_abandoned(tmp_path)
        assert names(tmp_path) == [being_written]
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert names(tmp_path) == [being_written]
        with partial_file(tmp_path / "another"):  # whoever writes there next
            assert being_written not in names(tmp_path)
    assert names(tmp_path) == []


def test_of_a_file_system_without_locks_age_tells(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "lock", lambda descriptor: False)
    for name in ("old", "young"):
        (tmp_path / f".{name}{PARTIAL}").mkdir()
        (tmp_path / f".{name}{PARTIAL}" / "half").touch()
    os.utime(tmp_path / f".old{PARTIAL}", (0, 0))
    remove_abandoned(tmp_path)
    assert names(tmp_path) == [f".young{PARTIAL}"]


@pytest.mark.parametrize("make", [partial_file, partial_folder])
@pytest.mark.skipif(os.name != "posix", reason="locks")
def test_taken_for_abandoned_before_it_is_locked_it_is_made_again(make, tmp_path, monkeypatch):
    lock, seen = atomic.lock, []

    def too_late(descriptor: int | None) -> bool:
        seen.append(descriptor)
        if len(seen) == 1:
            monkeypatch.setattr(atomic, "lock", lock)
            remove_abandoned(tmp_path)  # somebody else, in the moment between making and locking
            monkeypatch.setattr(atomic, "lock", too_late)
        return lock(descriptor)

    monkeypatch.setattr(atomic, "lock", too_late)
    with make(tmp_path / "result"):
        monkeypatch.setattr(atomic, "lock", lock)
        assert len(names(tmp_path)) == 1
        remove_abandoned(tmp_path)
        assert len(names(tmp_path)) == 1
    assert len(seen) == 2


def filled(folder: Path, content: str) -> Path:
    folder.mkdir()
    (folder / "content").write_text(content)
    return folder


@pytest.mark.parametrize("swaps", [True, False])
def test_a_folder_takes_the_place_of_another(swaps, tmp_path, monkeypatch):
    if not swaps:
        monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    target = tmp_path / "model"
    for content in ("first", "second"):
        with partial_folder(target) as place:
            (place / "content").write_text(content)
            take_place(place, target)
        assert (target / "content").read_text() == content
        assert names(tmp_path) == ["model"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not swap")
def test_the_swap_is_one_step(tmp_path, monkeypatch):
    def refused(self: Path, target: Path) -> None:
        pytest.fail("between two renames there is a moment without either")

    old, new = filled(tmp_path / "model", "old"), filled(tmp_path / "new", "new")
    monkeypatch.setattr(Path, "rename", refused)
    take_place(new, old)
    assert ((old / "content").read_text(), (new / "content").read_text()) == ("new", "old")


def test_killed_between_two_renames_the_old_one_comes_back(tmp_path):
    target = tmp_path / "model"
    filled(tmp_path / f".model.00{ASIDE}", "old")
    put_back(target)
    assert (target / "content").read_text() == "old"
    filled(tmp_path / f".model.00{ASIDE}", "killed a moment later")
    put_back(target)
    assert (target / "content").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_folder_that_cannot_be_removed_is_no_reason_to_fail(tmp_path, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    target = filled(tmp_path / "model", "old")
    monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", refused)
        take_place(filled(tmp_path / "new", "new"), target)
        assert [name.endswith(ASIDE) for name in names(tmp_path)] == [True, False]
        put_back(target)
    assert (target / "content").read_text() == "new"
    put_back(target)  # by now it can be removed
    assert names(tmp_path) == ["model"]


def test_nobody_finds_a_part_of_a_folder_that_is_removed(tmp_path, monkeypatch):
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    filled(tmp_path / "run", "all of it")
    with monkeypatch.context() as patch:
        patch.setattr(atomic.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove_folder(tmp_path / "run")
    (left,) = names(tmp_path)
    assert left.endswith(PARTIAL)
    remove_folder(tmp_path / "run")  # which is not there any more
    remove_abandoned(tmp_path)
    assert names(tmp_path) == []


def test_a_disk_that_breaks_while_waiting_for_it_is_told(tmp_path, monkeypatch):
    def broken(code: int):
        def fsync(descriptor: int) -> None:
            raise OSError(code, os.strerror(code))

        return fsync

    filled(tmp_path / "model", "whole")
    monkeypatch.setattr(os, "fsync", broken(errno.EINVAL))  # a file system that cannot sync folders
    sync_tree(tmp_path)
    monkeypatch.setattr(os, "fsync", broken(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left on device"):
        sync_tree(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="rights")
@pytest.mark.parametrize(("mask", "rights"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_files_of_new_folder_have_the_rights_that_the_umask_leaves(mask, rights, tmp_path):
    """Libraries may make theirs readable to the owner alone."""

    def fill(folder):
        (folder / "inner").mkdir()
        for name in ("weights", "inner/weights"):
            (folder / name).touch(mode=0o600)

    before = os.umask(mask)
    try:
        with partial_folder(tmp_path / "moved") as folder:
            fill(folder)
            take_place(folder, tmp_path / "moved")
        build_once(tmp_path / "built", fill)
        with written_whole(tmp_path / "file"):
            pass
    finally:
        os.umask(before)
    made = {path: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert len(made) == 9
    assert {path.name: mode for path, mode in made.items() if path.is_file()} == {"weights": rights, "file": rights}
    assert {mode for path, mode in made.items() if path.is_dir()} == {0o777 & ~mask}


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
