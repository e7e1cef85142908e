"""A user's files: which of a folder belong to which split, their formats, and opening them."""

import codecs
import gzip
import hashlib
import io
import lzma
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

from abalone.data.archives import Unpacked
from abalone.extras import install_hint
from abalone.files.errors import DataError

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
BINARY = ("parquet", "arrow")  # compressed inside, if at all
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
COMPRESSIONS = (".gz", ".xz", ".zst")
BUFFER = 1 << 17
STEP = 1 << 11  # bytes of a .zst file that are unpacked at once
BAD_ROWS_SUFFIX = ".bad-rows.jsonl"  # what skip_bad_rows leaves beside the data is never read as data

SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
}
_SHARD = re.compile(r"(?P<table>.*?)[-_.]?\d+(?:-of-(?P<total>\d+))?")


@dataclass(frozen=True)
class DataFiles:
    """What a folder holds: files by split (`None` where no name says a split), and data files left out."""

    of_split: dict[str | None, list[Path]]
    left_out: list[Path]


def data_format(path: Path) -> str | None:
    """The format that the name of `path` says, whatever it is compressed with; `None` where it says none."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        found = FORMATS.get(suffixes[-2]) if len(suffixes) > 1 else None
        return None if found in BINARY else found
    return FORMATS.get(suffixes[-1]) if suffixes else None


def stem(path: Path) -> str:
    """The name without format and compression: `papers` for `papers.jsonl.gz`."""
    name = path.name
    for suffixes in (COMPRESSIONS, tuple(FORMATS)):
        if name.lower().endswith(suffixes):
            name = name[: name.rindex(".")]
    return name


def matching_files(pattern: Path) -> list[Path]:
    """The data files that a pattern with `*`, `?`, `[…]` or `**` matches; none if it is no pattern."""
    if not any(mark in str(pattern) for mark in "*?["):
        return []
    anchor = Path(pattern.anchor)
    matched = anchor.glob(str(pattern.relative_to(anchor)))
    return sorted(file for file in matched if file.is_file() and data_format(file))


def data_files(folder: Path, files: Iterable[Path] | None = None) -> DataFiles:
    """Find the train, validation and test files of `folder`, whole or in shards (`train-00000-of-00002.parquet`).

    The name of a file says its split, or else that of the folder it is in. Files of which neither says a split are
    parts of one table.

    Args:
        folder: whose own files, and those in folders called by a split, such as `train`, are taken.
        files: are taken instead; somewhere in `folder`.
    """
    found: dict[str | None, list[Path]] = defaultdict(list)
    for path in sorted(_files(folder) if files is None else files):
        hidden = path.name.startswith((".", "_")) or path.name.endswith(BAD_ROWS_SUFFIX)
        if not hidden and data_format(path):
            split = _split_in_name(stem(path))
            if split is None and path.parent != folder:
                split = _split_in_name(path.parent.name)
            found[split].append(path)
    if not found:
        for path in _files(folder) if files is None else files:
            refuse_spreadsheet(path)
        known = ", ".join(FORMATS)
        raise DataError(
            f"the folder holds no file of a known format ({known}; text formats also {', '.join(COMPRESSIONS)})",
            path=folder,
            hint="Name files like train.jsonl, val.jsonl and test.jsonl, or give the path of one file.",
        )
    left_out = found.pop(None, []) if len(found) > 1 else []
    for split, paths in found.items():
        _check_shards(folder, split, paths)
    return DataFiles(dict(found), left_out)


def _files(folder: Path) -> list[Path]:
    of_splits = [path for path in folder.iterdir() if path.is_dir() and path.name.lower() in SPLIT_WORDS]
    return [path for place in (folder, *of_splits) for path in place.iterdir() if path.is_file()]


def _split_in_name(name: str) -> str | None:
    """The one split that a name like `train`, `papers-dev` or `test-00001-of-00004` speaks of."""
    splits = {SPLIT_WORDS[word] for word in re.split(r"[-_. ]+", name.lower()) if word in SPLIT_WORDS}
    return splits.pop() if len(splits) == 1 else None


def _check_shards(folder: Path, split: str | None, paths: list[Path]) -> None:
    """Several files of one split must be shards of one table, and none may be missing."""
    shards = [match for path in paths if (match := _SHARD.fullmatch(stem(path)))]
    whole = len({stem(path) for path in paths}) == len(paths) and (
        split is None
        or len(paths) == 1
        or (len(shards) == len(paths) and len({shard["table"] for shard in shards}) == 1)
    )
    if not whole:
        names = ", ".join(path.name for path in paths)
        hint = "Keep one of them in the folder, or give the path of one file."
        raise DataError(f"several files for {split or 'one table'}: {names}", path=folder, hint=hint)
    for shard in shards:
        if shard["total"] and int(shard["total"]) != len(paths):
            raise DataError(
                f"only {len(paths)} of the {int(shard['total'])} files {shard['table']}-…-of-{shard['total']} are here",
                path=folder,
            )


def sha256(path: Path) -> str:
    """Checksum of the file as it lies on disk."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path=path) from error


def refuse_spreadsheet(path: Path) -> None:
    """Raise where a file is one of a spreadsheet program."""
    if path.suffix.lower() in SPREADSHEETS:
        raise DataError(
            f"spreadsheets ({path.suffix}) are not supported",
            path=path,
            hint="Save it as CSV (in Excel: Save As, CSV UTF-8) and give that file.",
        )


def known_encoding(name: str, path: str | Path) -> str:
    """The usual name of an encoding, or an error where there is no such; `path` is what it was named for."""
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
    """What decodes a stream, piece by piece, as `open_text` does a file; `True` goes with the last piece.

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
    """The codec for an encoding: that for UTF-8 passes over a byte-order mark."""
    return "utf-8-sig" if encoding in (None, "utf-8") else encoding


def _not_of(encoding: str, name: str | Path, error: UnicodeError) -> DataError:
    reason = f"cannot be read as {encoding}: {getattr(error, 'reason', error)}"
    return DataError(reason, path=name, hint="Name another encoding with encoding=.")


def open_binary(path: Path) -> io.RawIOBase:
    """The bytes of a file; of one that is compressed, what is in it, as long as that is not absurdly much."""
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
