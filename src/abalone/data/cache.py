"""Where ABALONE keeps what it can make again, and how a file comes into being there: whole, or not at all."""

import os
import secrets
import time
from collections.abc import Iterator
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
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path.parent)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}{PARTIAL}")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _remove_abandoned(folder: Path) -> None:
    """Remove what killed processes left behind; a file that is being written is never a day old."""
    for partial in folder.glob(f".*{PARTIAL}"):
        with suppress(OSError):  # another process may be cleaning up as well
            if time.time() - partial.stat().st_mtime > DAY:
                partial.unlink()
