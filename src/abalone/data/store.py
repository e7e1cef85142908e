"""Texts on disk: one UTF-8 file and an array of offsets, read through memory maps.

A corpus of a million documents costs the pages that are looked at, not its size, and worker processes
share those pages instead of copying them.
"""

import hashlib
import mmap
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from operator import index
from pathlib import Path
from types import TracebackType
from typing import overload

import numpy as np

from abalone.files.atomic import written_whole
from abalone.files.errors import DataError

BLOB, OFFSETS, CHECKSUM = "texts.utf8", "offsets.npy", "texts.sha256"
_MADE_ANEW = "Delete the folder; it will be rebuilt from the source."


class MappedTexts(Sequence[str]):
    """The texts that a `TextWriter` left in `folder`, or those of the given rows.

    Pickles as its path and rows, so handing it to a worker process costs nothing. A slice is a plain list.

    Args:
        folder: where the texts were written.
        rows: which of them, in which order; all by default.
    """

    def __init__(self, folder: str | Path, rows: np.ndarray | None = None) -> None:
        self.folder = Path(folder)
        blob = self.folder / BLOB
        try:
            # A plain view: indexing an `np.memmap` makes a new memmap object each time, ten times slower.
            offsets = np.load(self.folder / OFFSETS, mmap_mode="r", allow_pickle=False)
            self._offsets = np.asarray(offsets)  # [texts + 1]
            self._checksum = (self.folder / CHECKSUM).read_text("ascii")
            size = blob.stat().st_size
        except Exception as error:  # numpy says in many ways that bytes are wrong
            raise DataError(f"no readable texts here ({error})", path=self.folder) from error
        if self._offsets.ndim != 1 or not self._offsets.size or self._offsets.dtype != np.uint64:
            raise DataError("not the offsets of texts", path=self.folder / OFFSETS, hint=_MADE_ANEW)
        if size != self._offsets[-1]:
            reason = f"{size} bytes where the offsets expect {self._offsets[-1]}"
            raise DataError(reason, path=blob, hint=_MADE_ANEW)
        self._rows = None if rows is None else np.asarray(rows, dtype=np.int64)
        self._blob: mmap.mmap | bytes = b""  # an empty file cannot be mapped
        if size:
            with blob.open("rb") as file:
                self._blob = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @property
    def size(self) -> int:
        """Return the bytes of all texts in the folder."""
        return int(self._offsets[-1])

    def __len__(self) -> int:
        return len(self._offsets) - 1 if self._rows is None else len(self._rows)

    @overload
    def __getitem__(self, item: int) -> str: ...
    @overload
    def __getitem__(self, item: slice) -> list[str]: ...
    def __getitem__(self, item: int | slice) -> str | list[str]:
        if isinstance(item, slice):
            return [self[i] for i in range(*item.indices(len(self)))]
        position = index(item)
        if not -len(self) <= position < len(self):
            raise IndexError(f"text {position} of {len(self)}")
        row = position % len(self) if self._rows is None else self._rows[position]
        try:
            return self._blob[int(self._offsets[row]) : int(self._offsets[row + 1])].decode()
        except UnicodeDecodeError as error:
            reason = f"text {row} is damaged: {error.reason}"
            raise DataError(reason, path=self.folder / BLOB, hint=_MADE_ANEW) from error

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))

    def __reduce__(self) -> tuple[type["MappedTexts"], tuple[Path, np.ndarray | None]]:
        return MappedTexts, (self.folder, self._rows)

    def __repr__(self) -> str:
        return f"MappedTexts({str(self.folder)!r}, {len(self)} texts)"

    def select(self, rows: np.ndarray) -> "MappedTexts":
        """Return the texts of `rows` (positions among these), over the same files."""
        chosen = MappedTexts.__new__(MappedTexts)  # over the same maps: the files may have gone from the cache since
        chosen.__dict__.update(self.__dict__)
        chosen._rows = np.asarray(rows if self._rows is None else self._rows[rows], dtype=np.int64)
        return chosen

    def followed_by(self, others: "MappedTexts") -> "MappedTexts":
        """Return these texts and then others of the same folder, over the same files."""
        every = np.arange(len(self._offsets) - 1)
        chosen = MappedTexts.__new__(MappedTexts)
        chosen.__dict__.update(self.__dict__)
        chosen._rows = np.concatenate([every if part._rows is None else part._rows for part in (self, others)])
        return chosen

    def fingerprint(self) -> bytes:
        """Return a hash of the texts and their order, known without reading them, from when they were written."""
        rows = b"all" if self._rows is None else self._rows.tobytes()
        return hashlib.sha256(self._checksum.encode() + rows).digest()


class TextWriter:
    """Writes texts to `folder` one after the other; leaving the `with` block finishes the files.

    A file takes its name only when it is whole, and the texts come first; after an error nothing is left.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with TextWriter(folder) as writer:
        ...         writer.append("one text")
        ...     MappedTexts(folder)[0]
        'one text'
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._offsets = array("Q", [0])
        self._content = hashlib.sha256()
        self._files = ExitStack()

    def __enter__(self) -> "TextWriter":
        self._blob = self._files.enter_context(written_whole(self.folder / BLOB))
        return self

    def append(self, text: str) -> None:
        """Add one text at the end."""
        encoded = text.encode()
        self._content.update(encoded)
        self._offsets.append(self._offsets[-1] + self._blob.write(encoded))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)
        if kind is not None:
            return
        offsets = np.frombuffer(self._offsets, dtype=np.uint64)
        self._content.update(offsets.data)  # so that ["ab", "c"] is not ["a", "bc"]
        with written_whole(self.folder / OFFSETS) as file:
            np.save(file, offsets)
        with written_whole(self.folder / CHECKSUM) as file:
            file.write(self._content.hexdigest().encode())


class JoinedTexts(Sequence[str]):
    """Two sequences of texts, one after the other, without a copy of either; a slice is a plain list."""

    def __init__(self, first: Sequence[str], second: Sequence[str]) -> None:
        self._first, self._second = first, second

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    @overload
    def __getitem__(self, item: int) -> str: ...
    @overload
    def __getitem__(self, item: slice) -> list[str]: ...
    def __getitem__(self, item: int | slice) -> str | list[str]:
        if isinstance(item, slice):
            return [self[i] for i in range(*item.indices(len(self)))]
        position, before = index(item), len(self._first)
        if not -len(self) <= position < len(self):
            raise IndexError(f"text {position} of {len(self)}")
        position %= len(self)
        return self._first[position] if position < before else self._second[position - before]

    def __iter__(self) -> Iterator[str]:
        return chain(self._first, self._second)


def take(texts: Sequence[str], rows: np.ndarray) -> Sequence[str]:
    """Return the texts of `rows`, in memory or mapped as `texts` are."""
    return texts.select(rows) if isinstance(texts, MappedTexts) else [texts[row] for row in rows]


def join(first: Sequence[str], second: Sequence[str]) -> Sequence[str]:
    """Return the texts of both, one after the other; what is mapped stays so."""
    if isinstance(first, MappedTexts) and isinstance(second, MappedTexts) and first.folder == second.folder:
        return first.followed_by(second)
    mapped = isinstance(first, MappedTexts) or isinstance(second, MappedTexts)
    return JoinedTexts(first, second) if mapped else [*first, *second]
