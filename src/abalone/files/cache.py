"""Where ABALONE keeps what it can make again, and how things come into being there: whole, or not at all."""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from abalone.files.locks import remove_unless_in_use
from abalone.files.partial import (
    DAY,
    as_umask_says,
    named_if_full,
    partial_file,
    partial_folder,
    sync,
    sync_tree,
)

KEPT = 30 * DAY  # seconds without use
ENTRY = re.compile(r"[0-9a-f]{16,64}(\.\w+)?")  # names that keys give; nothing else is ours to remove


def cache_dir() -> Path:
    """The cache folder: the environment variable `ABALONE_CACHE`, else `~/.cache/abalone`."""
    configured = os.environ.get("ABALONE_CACHE")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "abalone"


def cache_entry(kind: str, name: str) -> Path:
    """Where something lies in the cache, marked as used now; if it is not there, the caller makes it.

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
    """When an entry was asked for, or something was written in it: a run may train for longer than entries are kept."""
    return max(used.stat().st_mtime for used in (path, *path.glob("*")))


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


def source_key(files: Iterable[Path], preparation: str) -> str:
    """A name for what `preparation` makes of `files`, as long as their names, sizes and times stay the same."""
    digest = hashlib.sha256(preparation.encode())
    for file in files:
        status = file.stat()
        digest.update(f"\0{file.name}\0{status.st_size}\0{status.st_mtime_ns}".encode())
    return digest.hexdigest()[:32]
