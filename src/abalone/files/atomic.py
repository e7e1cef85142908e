"""Files and folders that several processes share: written whole or not at all, and locked while one is at work in them.

What is being written has a temporary name beside its place, locked for as long as its writer lives. A process that is
killed leaves its temporary files behind, and its locks end with it; so the next one that writes in the folder knows
which of them belong to nobody, and removes them.

Locks lie on the files and folders themselves (`flock`). The package filelock locks a file beside them, which would have
to be cleared away after a dead writer like what it guards; it locks no folders, and leaves its file behind.
"""

import errno
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from abalone.errors import InputError

LOCK = ".lock"  # in a folder that a process has for itself
PARTIAL = ".abalone-partial"
ASIDE = ".abalone-aside"  # a folder that has stepped aside for a new one
DAY = 24 * 60 * 60.0
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
CANNOT_SYNC = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES)  # what file systems say that do not do it
AT_WORKING_FOLDER, EXCHANGE = -100, 2  # Linux's AT_FDCWD and RENAME_EXCHANGE


class InUseError(InputError):
    """Another process is at work in a folder."""


@contextmanager
def written_whole(path: Path, *, keep_as: Path | None = None) -> Iterator[BinaryIO]:
    """Open `path` for writing so that others see all of it or nothing, even after a crash or a full disk.

    The bytes go to a temporary name in the same folder, which takes the place of `path` once they are on
    the disk. Two processes may write the same path at once: each writes its own file and the last one stays.

    Args:
        path: the file.
        keep_as: what was at `path` before gets this name, in the moment in which the new one takes its place.
    """
    with named_if_full(path), partial_file(path) as (partial, file):
        yield file
        file.flush()
        os.fsync(file.fileno())
        if os.name == "nt":
            file.close()  # or it cannot be renamed; elsewhere its lock must last until then
        if keep_as is not None and path.exists():
            path.replace(keep_as)
        partial.replace(path)
        sync(path.parent)


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return `folder`, filled by `build` if it does not exist yet.

    `build` works in a folder of its own that takes the name only when it is whole. Of several processes
    that build at once the first to finish wins, and the others use what it made.
    """
    if folder.exists():
        return folder
    with partial_folder(folder) as partial:
        try:
            build(partial)
            as_umask_says(partial)
            sync_tree(partial)
            partial.rename(folder)
            sync(folder.parent)
        except OSError:
            if not folder.exists():
                raise
    return folder


@contextmanager
def partial_file(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a new file beside `path` under a name of its own; it is gone afterwards, unless it was renamed."""
    while True:
        partial = _partial_name(path)
        with partial.open("xb") as file:
            try:
                if _is_ours(partial, file.fileno()):
                    yield partial, file
                    return
            finally:
                partial.unlink(missing_ok=True)


@contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """Make a new folder beside `path` in the same way."""
    while True:
        partial = _partial_name(path)
        partial.mkdir()
        try:
            with opened(partial) as descriptor:
                if _is_ours(partial, descriptor):
                    yield partial
                    return
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def named_if_full(path: Path) -> Iterator[None]:
    """Let the error of a full or broken disk name `path`, as the error of a write says nothing of where."""
    try:
        yield
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        # Libraries in Rust, safetensors and tokenizers, have errors of their own for it.
        if number is None and (found := re.search(r"\(os error (\d+)\)", str(error))):
            number = int(found[1])
        if number not in NO_ROOM or getattr(error, "filename", None) is not None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def remove_abandoned(folder: Path) -> None:
    """Remove what processes that are dead have left half-written in `folder`."""
    for left in folder.glob(f".*{PARTIAL}"):
        # Another process may be cleaning up as well; and one that writes has the lock, which is an `OSError` too.
        # Where a file system has no locks, age tells: nothing takes a day to write.
        with suppress(OSError), opened(left) as descriptor:
            if lock(descriptor) or time.time() - left.stat().st_mtime > DAY:
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def remove_folder(folder: Path) -> None:
    """Remove a folder, if it is there, so that nobody ever finds a part of it."""
    if folder.is_dir():
        shutil.rmtree(_abandoned(folder), ignore_errors=True)


def remove_unless_in_use(folder: Path) -> None:
    """Remove a folder, if it is there; one that another process is using stays."""
    if folder.is_dir():
        with suppress(InUseError):
            with alone_in(folder):
                leaving = _abandoned(folder)
            shutil.rmtree(leaving, ignore_errors=True)  # now that its lock is closed: some file systems mind


def _abandoned(folder: Path) -> Path:
    """Take a folder's name away, and return what it has instead: one for whoever cleans up."""
    leaving = _partial_name(folder)
    folder.rename(leaving)
    return leaving


def take_place(new: Path, folder: Path) -> None:
    """Let the folder `new` have the name `folder`, and put what had it before out of the way, at no moment half.

    Both are on the disk when this returns. On Linux the two names are swapped in one step, and the old folder is then
    at `new`. Elsewhere there is a moment without `folder`; `put_back` mends what a kill in that moment leaves.
    """
    as_umask_says(new)
    sync_tree(new)
    if not folder.exists():
        new.rename(folder)
    elif not _exchange(new, folder):
        aside = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}{ASIDE}")
        folder.rename(aside)
        try:
            new.rename(folder)
        except BaseException:
            aside.rename(folder)
            raise
        shutil.rmtree(aside, ignore_errors=True)
    sync(folder.parent)


def put_back(folder: Path) -> None:
    """Give a folder its name back that had stepped aside for one that never came."""
    for aside in folder.parent.glob(f".{folder.name}.*{ASIDE}"):
        if folder.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(folder)


def as_umask_says(folder: Path) -> None:
    """Let those read the files in a new folder who may read the folder.

    safetensors makes its files readable to their owner alone, whatever the umask, and a model that is shared with a
    group would be one that nobody else can open.
    """
    # The folder has just been made by `mkdir`, so its bits are those that the umask leaves: asking for the umask itself
    # means to change it for a moment, in all threads.
    rights = folder.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(rights)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk and outlive a power cut."""
    try:
        with opened(path) as descriptor:
            if descriptor is not None:
                os.fsync(descriptor)
    except OSError as error:
        if error.errno not in CANNOT_SYNC:  # a disk that is full or broken may say so only now
            raise


def sync_tree(folder: Path) -> None:
    """Wait until everything in a folder is on the disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


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


def _partial_name(path: Path) -> Path:
    """Return a name that nobody else uses, in the folder of `path`, which is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent)
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}{PARTIAL}")


def _is_ours(partial: Path, descriptor: int | None) -> bool:
    """Lock what was just made; return False if somebody took it for abandoned in the moment before the lock."""
    try:
        lock(descriptor)
    except BlockingIOError:
        return False
    return partial.exists()


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step; return False where the system or the file system cannot."""
    if sys.platform != "linux":
        return False
    import ctypes

    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    swapped: int = rename(AT_WORKING_FOLDER, os.fsencode(one), AT_WORKING_FOLDER, os.fsencode(other), EXCHANGE)
    return swapped == 0


def _is_at(path: Path, opened: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(opened))
    except FileNotFoundError:
        return False
