"""Files that can be made again: entries of the cache folder and their keys, and scratch arrays."""

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from abalone.files.atomic import DAY, remove_unless_in_use

KEPT = 30 * DAY  # seconds without use
ENTRY = re.compile(r"[0-9a-f]{16,64}(\.\w+)?")  # names that keys give; nothing else is ours to remove
IN_MEMORY = 2**30  # bytes; a larger scratch array lies in a file


def cache_dir() -> Path:
    """Return the cache folder: the environment variable `ABALONE_CACHE`, else `~/.cache/abalone`."""
    configured = os.environ.get("ABALONE_CACHE")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "abalone"


def cache_entry(kind: str, name: str) -> Path:
    """Return where something lies in the cache, marked as used now; if it is not there, the caller makes it.

    Before that, what nobody has asked for in 30 days is removed from the same folder, or it would grow for ever. A
    folder that a process has locked stays, however old its files look: a run may have been suspended, or the clock
    set. What is mapped can be read on; whoever wants it again makes it again.

    Args:
        kind: the folder in the cache.
        name: the entry's, from a key of everything that it is made of.
    """
    path = cache_dir() / kind / name
    try:
        os.utime(path)
    except FileNotFoundError:
        _remove_unused(path.parent)
    except OSError:
        pass  # of somebody else, or on a disk that cannot be written
    return path


def _remove_unused(folder: Path) -> None:
    # Other processes may be doing the same, and Windows removes nothing that is open.
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                if ENTRY.fullmatch(path.name) and time.time() - _last_use(path) > KEPT:
                    remove_unless_in_use(path) if path.is_dir() else path.unlink()


def _last_use(path: Path) -> float:
    """Return when an entry was last asked for or written to: a run may train for longer than entries are kept."""
    return max(used.stat().st_mtime for used in (path, *path.glob("*")))


def source_key(files: Iterable[Path], preparation: str) -> str:
    """Return a name for what `preparation` makes of `files`, as long as their names, sizes and times stay the same."""
    digest = hashlib.sha256(preparation.encode())
    for file in files:
        status = file.stat()
        digest.update(f"\0{file.name}\0{status.st_size}\0{status.st_mtime_ns}".encode())
    return digest.hexdigest()[:32]


def scratch_array(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """Return an array of zeros in a temporary file without a name, mapped into memory; it is gone with the process.

    It may be larger than memory: the system writes out what it must, to where `TMPDIR` says.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    with tempfile.TemporaryFile() as file:  # the mapping keeps it until the array is gone
        if hasattr(os, "posix_fallocate"):  # a full disk is an error now, and not a crash in the middle
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
        return np.memmap(file, dtype, "w+", shape=shape)


def array_of(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """Return an array to be filled: in memory, or a scratch array where it is large."""
    if int(np.prod(shape)) * np.dtype(dtype).itemsize <= IN_MEMORY:
        return np.empty(shape, dtype)
    return scratch_array(shape, dtype)
