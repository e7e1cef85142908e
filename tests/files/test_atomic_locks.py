"""One process at a time in a folder, and none is kept out for longer."""

import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from abalone.files.atomic import LOCK, InUseError, alone_in, remove_unless_in_use

pytestmark = pytest.mark.skipif(os.name == "nt", reason="it has no such locks")
BUSY = r"another process is using .*: wait for it to finish, or give another folder"


def test_one_process_a_folder(tmp_path):
    folder = tmp_path / "a" / "new one"
    with alone_in(folder), pytest.raises(InUseError, match=BUSY), alone_in(folder):
        pass
    with alone_in(folder):
        pass
    assert not list(folder.iterdir())


def test_a_lock_that_is_removed_while_it_is_taken_keeps_nobody_out_and_is_taken_anew(tmp_path, monkeypatch):
    import fcntl

    plain, tries = fcntl.flock, []

    def flock(file, how):
        if not tries:  # the one before leaves between our opening and our locking
            (tmp_path / LOCK).unlink()
        tries.append(file)
        return plain(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with alone_in(tmp_path), pytest.raises(InUseError, match=BUSY), alone_in(tmp_path):
        pass


def test_a_process_that_is_killed_keeps_nobody_out(tmp_path):
    program = f"""
import os
from pathlib import Path
from abalone.files.atomic import alone_in
with alone_in(Path({str(tmp_path)!r})):
    os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    assert (tmp_path / LOCK).exists()
    with alone_in(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_a_file_system_without_locks_does_without(tmp_path, monkeypatch):
    import fcntl

    def flock(file, how):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    with alone_in(tmp_path):
        (tmp_path / "made").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_folder_is_removed_unless_somebody_works_in_it(tmp_path):
    folder = tmp_path / "run"
    remove_unless_in_use(folder)
    with alone_in(folder):
        (folder / "made").touch()
        remove_unless_in_use(folder)
        assert (folder / "made").exists()
    remove_unless_in_use(folder)
    assert not list(tmp_path.iterdir())


def test_the_lock_of_who_comes_after_a_removal_is_left_alone(tmp_path):
    folder = tmp_path / "run"
    with ExitStack() as first:
        first.enter_context(alone_in(folder))
        folder.rename(tmp_path / "leaving")
        with alone_in(folder):
            first.close()
            with pytest.raises(InUseError, match=BUSY), alone_in(folder):
                pass
