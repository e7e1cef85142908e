"""Hashes of files and texts, and of the texts that a model has seen in training: scores on these say little."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol

import numpy as np
from safetensors.numpy import load, save

from abalone.errors import DataError, InputError

SEEN = "seen.safetensors"  # in a model folder, and in the metadata of an ONNX file
_HASHES = "hashes"


@dataclass(frozen=True, eq=False)
class SeenTexts:
    """The training and validation texts of a model, as hashes: enough to say whether a text is one of them.

    White space does not count, since a table that is saved again may have other line breaks.

    Args:
        hashes: [N], sorted.

    Example:
        >>> SeenTexts.of(["one  text", "another"]).hold(["another\\n", "a third", "one text"]).tolist()
        [True, False, True]
    """

    hashes: np.ndarray

    @classmethod
    def of(cls, *splits: Iterable[str]) -> "SeenTexts":
        """Hash the texts of all splits."""
        return cls(np.unique(text_hashes(chain(*splits))))

    def hold(self, texts: Sequence[str]) -> np.ndarray:
        """Return which of the texts are among them, [n] of bool."""
        return np.isin(text_hashes(texts), self.hashes)

    def to_bytes(self) -> bytes:
        """Return the content of their file."""
        return save({_HASHES: self.hashes})

    @classmethod
    def from_bytes(cls, content: bytes) -> "SeenTexts":
        """Read the content of their file."""
        hashes = load(content)[_HASHES]
        if hashes.dtype != np.uint64 or hashes.ndim != 1:
            raise InputError(f"{SEEN} holds {hashes.dtype} of shape {hashes.shape} instead of hashes")
        return cls(hashes)


def text_hashes(texts: Iterable[str]) -> np.ndarray:
    """Return hashes that are the same for texts equal up to white space, [n] of uint64."""
    return np.fromiter(map(text_hash, texts), dtype=np.uint64)


def text_hash(text: str) -> int:
    """Return the hash of one text, as `text_hashes` does."""
    content = " ".join(text.split()).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")  # tells a billion texts apart


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
