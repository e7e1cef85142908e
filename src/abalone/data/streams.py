"""Streams of text and bytes: encodings, compressed files, and files inside tar and zip archives.

Archives are read without unpacking them, plain files alone, and only so much of them: see `Allowance`.
"""

import codecs
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

from abalone.errors import DataError, install_hint, spelled

COMPRESSIONS = (".gz", ".xz", ".zst")
BUFFER = 1 << 17
STEP = 1 << 11  # bytes of a .zst file that are unpacked at once
# Text packs to a tenth or so, tables of repeated words to a fiftieth. What grows more was made to fill the memory.
EXPANSION = 200
ALWAYS_FINE = 256 * 1024 * 1024  # bytes: small archives may hold much of the same
LARGEST_MEMBER = 64 * 1024 * 1024  # bytes; the largest file of the published corpora has 2
MEMBERS = 2_000_000  # the raw RCV1 has 806,791 files

_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,  # a zip with a method that Python does not know
    RuntimeError,  # a zip with a password
    ValueError,  # sizes and names that cannot be
    KeyError,
)


def known_encoding(name: str, path: str | Path) -> str:
    """Return the usual name of an encoding; raise where there is no such. `path` is the file it is for."""
    try:
        "".encode(name)  # refuses what is no encoding of texts, such as base64, too
        return codecs.lookup(name).name
    except (LookupError, ValueError) as error:
        hint = "Common ones: utf-8, cp1252 (Windows, Western Europe), latin-1, utf-16, cp1251, gb18030, shift_jis."
        raise DataError(f"unknown encoding {name!r}", path=path, hint=hint) from error


@contextmanager
def open_text(path: Path, *, newline: str | None = None, encoding: str | None = None) -> Iterator[IO[str]]:
    """Open a plain or compressed text file; by default it is UTF-8, and a byte-order mark is passed over.

    Bytes that are not of the encoding come out as lone surrogates (`errors="surrogateescape"`), so that the reader
    can say in which row they stand.
    """
    encoding = _reading(encoding)
    try:
        with (
            open_binary(path) as stream,
            io.TextIOWrapper(
                io.BufferedReader(stream, BUFFER), encoding=encoding, errors="surrogateescape", newline=newline
            ) as text,
        ):
            yield text
    except UnicodeError as error:  # an encoding of several bytes a character, in which some bytes cannot be kept
        raise _not_of(encoding, path, error) from error
    except (EOFError, OSError, lzma.LZMAError, zlib.error, MemoryError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or "out of memory"
        hint = "Was it copied or downloaded in full?" if path.suffix.lower() in COMPRESSIONS else None
        raise DataError(f"cannot be read: {reason}", path=path, hint=hint) from error


def decoder_of(encoding: str | None, name: str) -> Callable[[bytes, bool], str]:
    """Return a decoder of a stream, piece by piece, as `open_text` decodes a file; `True` goes with the last piece.

    Args:
        encoding: UTF-8 by default.
        name: what messages call the stream.
    """
    reading = _reading(encoding)
    decoder = codecs.getincrementaldecoder(reading)("surrogateescape")

    def decode(piece: bytes, final: bool) -> str:
        try:
            return decoder.decode(piece, final)
        except UnicodeError as error:
            raise _not_of(reading, name, error) from error

    return decode


def _reading(encoding: str | None) -> str:
    """Return the codec for an encoding: that for UTF-8 passes over a byte-order mark."""
    return "utf-8-sig" if encoding in (None, "utf-8") else encoding


def _not_of(encoding: str, name: str | Path, error: UnicodeError) -> DataError:
    reason = f"cannot be read as {encoding}: {getattr(error, 'reason', error)}"
    return DataError(reason, path=name, hint=f"Name another encoding with {spelled('encoding')}.")


def open_binary(path: Path) -> io.RawIOBase:
    """Open the bytes of a file; of one that is compressed, those in it, as long as they are not absurdly many."""
    match path.suffix.lower():
        case ".gz" | ".tgz":
            return Unpacked(cast(BinaryIO, gzip.open(path, "rb")), path)
        case ".xz":
            return Unpacked(lzma.open(path, "rb"), path)
        case ".zst":
            return Unpacked(cast(BinaryIO, _ZstdFile(path)), path)
        case _:
            return path.open("rb", buffering=0)


class _ZstdFile(io.RawIOBase):
    """A .zst archive of one or several frames.

    By hand, since `zstandard.open` takes an archive that was cut for one that has ended.
    """

    def __init__(self, path: Path) -> None:
        try:
            import zstandard
        except ImportError as error:
            hint = f"To install it, {install_hint('data')}."
            raise DataError("reading .zst needs the package zstandard", path=path, hint=hint) from error
        self._zstd = zstandard
        self._source = path.open("rb")
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._begun = False
        self._ready = memoryview(b"")  # a view, since cutting pieces off bytes copies the rest each time

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._source.close()
        super().close()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            # In small steps, since a step gives all that is in it, which can be 40,000 times as much.
            block = (self._frame.unused_data if self._frame.eof else b"") or self._source.read(STEP)
            if not block:
                if self._begun and not self._frame.eof:
                    raise EOFError("the archive is cut short")
                return 0
            if self._frame.eof:
                self._frame = self._zstd.ZstdDecompressor().decompressobj()
            self._begun = True
            try:
                self._ready = memoryview(self._frame.decompress(block))
            except self._zstd.ZstdError as error:
                raise OSError(str(error)) from error
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


class Allowance:
    """The bytes that may come out of an archive: up to a limit that no honest archive of its size reaches.

    Args:
        path: the archive.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._left = self._most = max(ALWAYS_FINE, EXPANSION * path.stat().st_size)

    def take(self, size: int) -> None:
        """Count some more unpacked bytes; raise `DataError` past the limit."""
        self._left -= size
        if self._left < 0:
            raise DataError(
                f"unpacks to more than {self._most / 2**20:,.0f} MiB, over {EXPANSION} times its size",
                path=self._path,
                hint="If it is meant to be that large, unpack it yourself and give what was in it.",
            )


class Unpacked(io.RawIOBase):
    """The bytes that come out of an archive, as many of them as its `Allowance` lets through.

    Args:
        stream: gives the unpacked bytes.
        path: the archive.
    """

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream, self._allowance = stream, Allowance(path)

    def readable(self) -> bool:
        """Return True: it can be read."""
        return True

    def close(self) -> None:
        """Close the archive."""
        self._stream.close()
        super().close()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Give the next bytes; raise `DataError` past the limit."""
        block = self._stream.read(len(buffer))
        self._allowance.take(len(block))
        buffer[: len(block)] = block
        return len(block)


def read_tar(path: Path, names: Collection[str]) -> dict[str, bytes]:
    """Read the files of these names in a tar archive (plain, .gz or .xz), in whatever folder of it they are.

    It is read from front to end once, and nothing is written: where a member says it belongs does not matter. Links
    and devices count as missing.
    """
    found: dict[str, bytes] = {}
    try:
        with io.BufferedReader(open_binary(path)) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for number, member in enumerate(tar):
                if number == MEMBERS:
                    raise DataError(f"holds more than {MEMBERS:,} files", path=path)
                name = member.name.rpartition("/")[2]
                if name in names and member.isreg():
                    file = tar.extractfile(member)
                    found[name] = b"" if file is None else _content(file, path, name)
    except DataError:
        raise
    except _DAMAGE as error:
        raise _damaged("tar archive", path, error) from error
    return found


def read_zip(path: Path, suffix: str) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every file with that suffix in a zip, by name; nothing is unpacked to the disk."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > MEMBERS:
                raise DataError(f"holds more than {MEMBERS:,} files", path=path)
            allowance = Allowance(path)
            for member in sorted(members, key=lambda member: member.filename):
                if member.filename.lower().endswith(suffix):
                    with archive.open(member) as file:
                        content = _content(file, path, member.filename)
                    allowance.take(len(content))
                    yield member.filename, content
    except DataError:
        raise
    except _DAMAGE as error:
        raise _damaged("zip", path, error) from error


def _content(file: IO[bytes], path: Path, name: str) -> bytes:
    content = file.read(LARGEST_MEMBER + 1)
    if len(content) > LARGEST_MEMBER:
        raise DataError(f"its file {name} is larger than {LARGEST_MEMBER / 2**20:.0f} MiB", path=path)
    return content


def _damaged(kind: str, path: Path, error: Exception) -> DataError:
    return DataError(f"not a readable {kind} ({error})", path=path, hint="Download it again.")
