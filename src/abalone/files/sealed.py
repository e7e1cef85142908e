"""Folders of the cache with a checksum of every file, so that damage is noticed before it is read."""

import json
import os
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from abalone.files.cache import build_once
from abalone.files.partial import opened, remove_folder

SEAL = "checksums.json"
BLOCK = 1 << 22  # bytes


def sealed_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return `folder`, filled by `build` if it does not exist yet, or if a file in it is not as it was written.

    To know that, all of it is read each time it is opened: CRC-32 takes 0.4 s for each GB on one core, and the disk
    about as long again. Tables are read as well by then, for their SHA-256, which takes three times as long. What was
    read stays in the system's cache for whoever maps it.
    """
    # Another process may notice as well, and take the folder away or make it again. While this one is open, that has
    # another number.
    with suppress(FileNotFoundError), opened(folder) as descriptor:
        if folder.is_dir() and (damaged := damaged_file(folder)):
            warnings.warn(f"{folder / damaged} is damaged, so it is made again from the source", stacklevel=2)
            if descriptor is None or os.path.samestat(folder.stat(), os.fstat(descriptor)):
                remove_folder(folder)

    def build_and_seal(place: Path) -> None:
        build(place)
        seal(place)

    return build_once(folder, build_and_seal)


def seal(folder: Path) -> None:
    """Write the checksums of the files in a folder, over those that it may have."""
    checksums = {path.name: _checksum(path) for path in _files(folder)}
    (folder / SEAL).write_text(json.dumps(checksums), encoding="utf-8")


def damaged_file(folder: Path) -> str | None:
    """Return the name of a file that is not as it was when the folder was sealed, if there is one."""
    try:
        stored = json.loads((folder / SEAL).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return SEAL
    if not isinstance(stored, dict):
        return SEAL
    there = {path.name for path in _files(folder)}
    if differing := stored.keys() ^ there:  # so the seal needs no checksum of its own
        return min(differing)
    return next((name for name in sorted(there) if stored[name] != _checksum(folder / name)), None)


def _files(folder: Path) -> Iterator[Path]:
    """All but the seal, and hidden ones, such as locks."""
    return (path for path in folder.iterdir() if path.name != SEAL and not path.name.startswith("."))


def _checksum(path: Path) -> str:
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            checksum = zlib.crc32(block, checksum)
    return f"{checksum:08x}"
