"""Locks on files and folders, which end with the process that has them.

They lie on the files and folders themselves (`flock`). The package filelock locks a file beside them, which would have
to be cleared away after a dead writer like what it guards; it locks no folders, and leaves its file behind.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from abalone.errors import InputError

LOCK = ".lock"


class InUseError(InputError):
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


@contextmanager
def opened(path: Path) -> Iterator[int | None]:
    """Open a file or folder and return its descriptor; None on Windows, which does not open folders."""
    descriptor = None if os.name == "nt" else os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def lock(descriptor: int | None) -> bool:
    """Lock a file or folder for this process; return False where there are no locks.

    Raises:
        BlockingIOError: another process has locked it.
    """
    if descriptor is None:
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _is_at(path: Path, opened: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(opened))
    except FileNotFoundError:
        return False
