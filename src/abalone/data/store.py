"""The store: arrays and texts in one file, which is written once, checked when it is opened, and memory-mapped.

It is a safetensors file, so that other tools can read it: a header of fixed size, and the arrays. One file rather than
a folder of arrays, as only a file can be replaced in one step. A corpus of a million documents costs the pages that are
looked at, not its size, and worker processes share those pages instead of copying them.
"""

import hashlib
import json
import warnings
import zlib
from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from operator import index
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

import numpy as np

from abalone.errors import DataError, InputError
from abalone.files.atomic import written_whole

HEADER_BYTES = 4096  # reserved ahead of the arrays and filled in last, when their lengths are known
ALIGNED = 8  # bytes, as an int64 needs; a gap is an array too, as safetensors allows none between arrays
TYPES: dict[str, np.dtype[Any]] = {  # as safetensors calls them
    "U8": np.dtype(np.uint8),
    "U16": np.dtype(np.uint16),
    "U32": np.dtype(np.uint32),
    "U64": np.dtype(np.uint64),
    "I8": np.dtype(np.int8),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
}
NAMES = {dtype: name for name, dtype in TYPES.items()}
_MADE_ANEW = "Delete the file; it will be rebuilt from the source."


class DamagedError(InputError):
    """A file of the store is not as it was written."""


@dataclass(frozen=True, eq=False)
class Stored:
    """The arrays of a file of the store, memory-mapped, and facts about them."""

    path: Path
    arrays: Mapping[str, np.ndarray]
    facts: Mapping[str, str]


class ArrayWriter:
    """Writes arrays to a file one after the other; leaving the `with` block finishes it.

    The file takes its name only when it is whole; after an error nothing is left.

    Args:
        path: of the file.
        format: of its content; a reader that expects another one refuses it.
    """

    def __init__(self, path: str | Path, format: str) -> None:  # noqa: A002
        self.path = Path(path)
        self.facts: dict[str, str] = {"format": format}
        self._entries: dict[str, _Entry] = {}
        self._end = 0
        self._files = ExitStack()

    def __enter__(self) -> Self:
        self._file = self._files.enter_context(written_whole(self.path))
        self._file.seek(HEADER_BYTES)
        self._files.push(self._finish)  # so that a failure in it leaves no file either
        return self

    def extend(self, name: str, values: np.ndarray) -> None:
        """Add values, [n], to the array of that name, which is the latest one or a new one."""
        self._write(name, values.dtype, np.ascontiguousarray(values).data)

    def _write(self, name: str, dtype: np.dtype[Any], content: bytes | memoryview) -> None:
        entry = self._entries.get(name)
        if entry is None:
            if gap := bytes(-self._end % ALIGNED):
                self._entries[f"gap {len(self._entries)}"] = _Entry(
                    TYPES["U8"], self._end, self._end + len(gap), zlib.crc32(gap)
                )
                self._end += self._file.write(gap)
            entry = self._entries[name] = _Entry(dtype, self._end)
        elif entry.dtype != dtype or entry.end != self._end:
            raise InputError(f"cannot go on with the array {name!r}")
        self._end = entry.end = self._end + self._file.write(content)
        entry.crc32 = zlib.crc32(content, entry.crc32)

    def _finish(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._file.seek(0)
            self._file.write(_header(self._entries, self.facts))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)


@dataclass
class _Entry:
    """An array in a file: its bytes, counted from the end of the header, and their checksum."""

    dtype: np.dtype[Any]
    start: int
    end: int = 0
    crc32: int = 0

    def __post_init__(self) -> None:
        self.end = self.end or self.start


def _header(entries: Mapping[str, _Entry], facts: Mapping[str, str]) -> bytes:
    """Return the first bytes of a file; they follow from the rest, so that damage to either is noticed."""
    metadata = {**facts, "crc32": json.dumps({name: f"{entry.crc32:08x}" for name, entry in entries.items()})}
    tensors = {
        name: {
            "dtype": NAMES[entry.dtype],
            "shape": [(entry.end - entry.start) // entry.dtype.itemsize],
            "data_offsets": [entry.start, entry.end],
        }
        for name, entry in entries.items()
    }
    metadata["checksum"] = hashlib.sha256(json.dumps([metadata, tensors]).encode()).hexdigest()
    header = json.dumps({"__metadata__": metadata, **tensors}).encode()
    if len(header) > HEADER_BYTES - 8:
        raise InputError(f"{len(header)} bytes of names and facts do not fit the header")
    return (HEADER_BYTES - 8).to_bytes(8, "little") + header.ljust(HEADER_BYTES - 8)


def open_arrays(path: Path, format: str | None, *, check: bool = True) -> Stored:  # noqa: A002
    """Map the arrays of a file.

    Args:
        path: of the file.
        format: that it must have, if one is given.
        check: compare the checksums, for which all of it is read: CRC-32 takes 0.4 s for each GB on one core, and the
            disk about as long again. Pages that were read stay in the system's cache for later.

    Raises:
        OSError: the file cannot be read.
        DamagedError: it is not as it was written, or has another format.
    """
    with path.open("rb") as file:
        try:
            # One mapping of the whole file: a part of no bytes, which cannot be mapped, is then just a slice. A plain
            # view, as indexing an `np.memmap` makes a new memmap object each time, ten times slower.
            content = np.asarray(np.memmap(file, np.uint8, "r"))
            found, body = content[:HEADER_BYTES].tobytes(), content[HEADER_BYTES:]
            header = json.loads(found[8:])
            facts: dict[str, str] = header.pop("__metadata__")
            checksums = json.loads(facts.pop("crc32"))
            del facts["checksum"]
            entries: dict[str, _Entry] = {}
            arrays: dict[str, np.ndarray] = {}
            end = 0
            for name, tensor in header.items():
                dtype, start, (_, end) = TYPES[tensor["dtype"]], end, tensor["data_offsets"]
                arrays[name] = body[start:end].view(dtype)
                crc32 = zlib.crc32(arrays[name].data) if check else int(checksums[name], 16)
                entries[name] = _Entry(dtype, start, end, crc32)
            intact = end == len(body) and found == _header(entries, facts) and format in (None, facts["format"])
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError):
            intact = False
    if not intact:
        raise DamagedError(f"{path} is not as it was written")
    return Stored(path, arrays, facts)


def arrays_once(path: Path, format: str, build: Callable[[], None]) -> Stored:  # noqa: A002
    """Map the arrays of a file, which `build` writes if it is not there or damaged.

    Of several processes that build at once, each writes a file of its own, and the last one stays.
    """
    try:
        return open_arrays(path, format)
    except FileNotFoundError:
        pass
    except DamagedError:
        warnings.warn(f"{path} is damaged, so it is made again from the source", stacklevel=3)
    build()
    try:
        return open_arrays(path, format)
    except DamagedError as error:
        raise DataError("what was just written cannot be read back", path=path, hint="Check the disk.") from error


class TextWriter(ArrayWriter):
    """Writes texts one after the other: UTF-8 in one array, and where each ends in another.

    Other arrays may follow the texts in the same file.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with TextWriter(f"{folder}/texts") as writer:
        ...         writer.append("one text")
        ...     MappedTexts(f"{folder}/texts")[0]
        'one text'
    """

    def __init__(self, path: str | Path, format: str = "abalone-texts-1") -> None:  # noqa: A002
        super().__init__(path, format)
        self._offsets = array("Q", [0])
        self._content = hashlib.sha256()

    def append(self, text: str) -> None:
        """Add one text at the end."""
        encoded = text.encode()
        self._content.update(encoded)
        self._write("texts", TYPES["U8"], encoded)
        self._offsets.append(self._offsets[-1] + len(encoded))

    def _finish(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            offsets = np.frombuffer(self._offsets, dtype=np.uint64)
            if "texts" not in self._entries:
                self._write("texts", TYPES["U8"], b"")
            self.extend("offsets", offsets)
            self._content.update(offsets.data)  # so that ["ab", "c"] is not ["a", "bc"]
            self.facts["texts"] = self._content.hexdigest()
        super()._finish(kind)


class _Texts(Sequence[str]):
    """Texts by their position; a slice is a plain list."""

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
        return self._at(position % len(self))

    @abstractmethod
    def _at(self, position: int) -> str:
        """Return the text at a position from 0."""


class MappedTexts(_Texts):
    """The texts that a `TextWriter` left in a file, or those of the given rows.

    Pickles as its path and rows, so handing it to a worker process costs nothing.

    Args:
        stored: the file, or what is mapped of it.
        rows: which of them, in which order; all by default.
    """

    def __init__(self, stored: Stored | str | Path, rows: np.ndarray | None = None) -> None:
        self.path = stored.path if isinstance(stored, Stored) else Path(stored)
        try:
            if not isinstance(stored, Stored):
                stored = open_arrays(self.path, None, check=False)
            blob, self._offsets, self._checksum = (
                stored.arrays["texts"],
                stored.arrays["offsets"],
                stored.facts["texts"],
            )
        except (OSError, KeyError, DamagedError) as error:
            raise DataError(f"no readable texts here ({error})", path=self.path, hint=_MADE_ANEW) from error
        if self._offsets.dtype != np.uint64 or not self._offsets.size or blob.dtype != np.uint8:
            raise DataError("not the offsets of texts", path=self.path, hint=_MADE_ANEW)
        if blob.size != self._offsets[-1]:
            reason = f"{blob.size} bytes where the offsets expect {self._offsets[-1]}"
            raise DataError(reason, path=self.path, hint=_MADE_ANEW)
        self._blob = memoryview(blob.data)
        self._rows = None if rows is None else np.asarray(rows, dtype=np.int64)

    @property
    def size(self) -> int:
        """Return the bytes of all texts in the file."""
        return int(self._offsets[-1])

    def __len__(self) -> int:
        return len(self._offsets) - 1 if self._rows is None else len(self._rows)

    def _at(self, position: int) -> str:
        row = position if self._rows is None else self._rows[position]
        try:
            return str(self._blob[int(self._offsets[row]) : int(self._offsets[row + 1])], "utf-8")
        except UnicodeDecodeError as error:
            reason = f"text {row} is damaged: {error.reason}"
            raise DataError(reason, path=self.path, hint=_MADE_ANEW) from error

    def __iter__(self) -> Iterator[str]:
        return map(self._at, range(len(self)))

    def __reduce__(self) -> tuple[type["MappedTexts"], tuple[Path, np.ndarray | None]]:
        return MappedTexts, (self.path, self._rows)

    def __repr__(self) -> str:
        return f"MappedTexts({str(self.path)!r}, {len(self)} texts)"

    def select(self, rows: np.ndarray) -> "MappedTexts":
        """Return the texts of `rows` (positions among these), over the same map."""
        return self._with_rows(rows if self._rows is None else self._rows[rows])

    def followed_by(self, others: "MappedTexts") -> "MappedTexts":
        """Return these texts and then others of the same file, over the same map."""
        every = np.arange(len(self._offsets) - 1)
        return self._with_rows(np.concatenate([every if part._rows is None else part._rows for part in (self, others)]))

    def _with_rows(self, rows: np.ndarray) -> "MappedTexts":
        chosen = MappedTexts.__new__(MappedTexts)  # over the same map: the file may have gone from the cache since
        chosen.__dict__.update(self.__dict__)
        chosen._rows = np.asarray(rows, dtype=np.int64)
        return chosen

    def fingerprint(self) -> bytes:
        """Return a hash of the texts and their order, known without reading them, from when they were written."""
        rows = b"all" if self._rows is None else self._rows.tobytes()
        return hashlib.sha256(self._checksum.encode() + rows).digest()


class JoinedTexts(_Texts):
    """Two sequences of texts, one after the other, without a copy of either."""

    def __init__(self, first: Sequence[str], second: Sequence[str]) -> None:
        self._first, self._second = first, second

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    def _at(self, position: int) -> str:
        before = len(self._first)
        return self._first[position] if position < before else self._second[position - before]

    def __iter__(self) -> Iterator[str]:
        return chain(self._first, self._second)


def take(texts: Sequence[str], rows: np.ndarray) -> Sequence[str]:
    """Return the texts of `rows`, in memory or mapped as `texts` are."""
    return texts.select(rows) if isinstance(texts, MappedTexts) else [texts[row] for row in rows]


def join(first: Sequence[str], second: Sequence[str]) -> Sequence[str]:
    """Return the texts of both, one after the other; what is mapped stays so."""
    if isinstance(first, MappedTexts) and isinstance(second, MappedTexts) and first.path == second.path:
        return first.followed_by(second)
    mapped = isinstance(first, MappedTexts) or isinstance(second, MappedTexts)
    return JoinedTexts(first, second) if mapped else [*first, *second]
