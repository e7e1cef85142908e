"""Checksums of files, of texts, and of the files in a folder of the cache, which show damage."""

import hashlib
import json
import os
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from abalone.files.atomic import build_once, remove_folder
from abalone.files.errors import DataError
from abalone.files.locks import opened

SEAL = "checksums.json"
BLOCK = 1 << 22  # bytes


def sha256(path: Path) -> str:
    """Return the checksum of a file as it lies on disk."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path=path) from error


class Digest(Protocol):
    """A hash object of `hashlib`."""

    def update(self, content: bytes, /) -> object:
        """Take more bytes in."""
        ...


def add_texts(digest: Digest, texts: Iterable[str]) -> None:
    """Take texts in, whatever characters they hold, each with its length: ["ab", "c"] is not ["a", "bc"].

    Example:
        >>> from hashlib import sha256
        >>> one, other = sha256(), sha256()
        >>> add_texts(one, ["ab", "c"]), add_texts(other, ["a", "bc"])
        (None, None)
        >>> one.digest() == other.digest()
        False
    """
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)


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
    """Yield all files but the seal, and hidden ones, such as locks."""
    return (path for path in folder.iterdir() if path.name != SEAL and not path.name.startswith("."))


def _checksum(path: Path) -> str:
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            checksum = zlib.crc32(block, checksum)
    return f"{checksum:08x}"
