"""Checksums of files and of texts."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from abalone.errors import DataError


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
