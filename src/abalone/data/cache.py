"""Where ABALONE keeps what it can make again, and how things come into being there: whole, or not at all."""

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

PARTIAL = ".abalone-partial"
DAY = 24 * 60 * 60.0


def cache_dir() -> Path:
    """The cache folder: the environment variable `ABALONE_CACHE`, else `~/.cache/abalone`."""
    configured = os.environ.get("ABALONE_CACHE")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "abalone"


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """Open `path` for writing so that others see all of it or nothing, even after a crash or a full disk.

    The bytes go to a temporary name in the same folder, which takes the place of `path` once they are on
    the disk. Two processes may write the same path at once: each writes its own file and the last one stays.
    """
    partial = _partial(path)
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return `folder`, filled by `build` if it does not exist yet.

    `build` works in a folder of its own that takes the name only when it is whole. Of several processes
    that build at once the first to finish wins, and the others use what it made.
    """
    if folder.exists():
        return folder
    partial = _partial(folder)
    try:
        partial.mkdir()
        build(partial)
        partial.rename(folder)
    except OSError:
        if not folder.exists():
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def source_key(files: Iterable[Path], preparation: str) -> str:
    """A name for what `preparation` makes of `files`, as long as their names, sizes and times stay the same."""
    digest = hashlib.sha256(preparation.encode())
    for file in files:
        status = file.stat()
        digest.update(f"\0{file.name}\0{status.st_size}\0{status.st_mtime_ns}".encode())
    return digest.hexdigest()[:32]


def _partial(path: Path) -> Path:
    """A name that nobody else uses, in the folder of `path`, which is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for abandoned in path.parent.glob(f".*{PARTIAL}"):
        # Left by a process that was killed: nothing takes a day to write. Another may be cleaning up as well.
        with suppress(OSError):
            if time.time() - abandoned.stat().st_mtime > DAY:
                shutil.rmtree(abandoned) if abandoned.is_dir() else abandoned.unlink()
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}{PARTIAL}")
