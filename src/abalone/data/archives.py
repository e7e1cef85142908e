"""Archives from elsewhere: members are read without unpacking, plain files alone, and only so much of them."""

import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO

from abalone.files.errors import DataError

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


class Allowance:
    """How much may come out of an archive: up to a limit that no honest archive of its size reaches.

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
    """What comes out of an archive, as much of it as its `Allowance` lets through.

    Args:
        stream: gives the unpacked bytes.
        path: the archive.
    """

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream, self._allowance = stream, Allowance(path)

    def readable(self) -> bool:
        """It is."""
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
    """The files of these names in a tar archive (plain, .gz or .xz), in whatever folder of it they are.

    It is read from front to end once, and nothing is written: where a member says it belongs does not matter. Links
    and devices count as missing.
    """
    from abalone.data.files import open_binary

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
    """Name and content of every file with that suffix in a zip, by name; nothing is unpacked to the disk."""
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
