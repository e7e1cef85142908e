"""One process at a time in a folder."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from abalone.files.partial import abandoned, lock

LOCK = ".lock"


class InUseError(ValueError):
    """Another process is at work in a folder."""


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep a second process out of the folder, which is made if it is not there, while this one works in it.

    A file system without locks has to do without, and Windows.
    """
    if os.name == "nt":
        folder.mkdir(parents=True, exist_ok=True)
        yield
        return
    path, entered = folder / LOCK, False
    while not entered:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            try:
                lock(file.fileno())
            except BlockingIOError:
                raise InUseError(
                    f"another process is using {folder}: wait for it to finish, or give another folder "
                    "(--output, or run_folder= of fit)"
                ) from None
            # Whoever leaves removes the file: opened before that and locked after it, it keeps nobody out any more.
            if entered := _is_at(path, file.fileno()):
                try:
                    yield
                finally:
                    with suppress(OSError):
                        if _is_at(path, file.fileno()):  # and not that of who came after the folder was removed
                            path.unlink()


def remove_unless_in_use(folder: Path) -> None:
    """Remove a folder, if it is there; one that another process is using stays."""
    if folder.is_dir():
        with suppress(InUseError):
            with alone_in(folder):
                leaving = abandoned(folder)
            shutil.rmtree(leaving, ignore_errors=True)  # now that its lock is closed: some file systems mind


def _is_at(path: Path, opened: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(opened))
    except FileNotFoundError:
        return False
