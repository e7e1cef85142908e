"""Hashes of texts, by which caches, runs and resumed work know whether they are the same."""

from collections.abc import Iterable
from typing import Protocol


class Digest(Protocol):
    """What `hashlib` makes."""

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
