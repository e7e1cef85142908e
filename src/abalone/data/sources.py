"""Sources: what a user names (a file, a folder, a pattern, a dataset), and the tables in it."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abalone.data.arrow import ArrowTable, DatasetTable, ParquetTable, is_saved_dataset, load_saved
from abalone.data.hashes import sha256
from abalone.data.split import SPLIT_WORDS, SPLITS
from abalone.data.streams import COMPRESSIONS, known_encoding
from abalone.data.tables import CsvTable, JsonTable, Table
from abalone.errors import DataError, spelled

if TYPE_CHECKING:
    from datasets import Dataset

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
BAD_ROWS_SUFFIX = ".bad-rows.jsonl"  # what skip_bad_rows leaves beside the data is never read as data

_SHARD = re.compile(r"(?P<table>.*?)[-_.]?\d+(?:-of-(?P<total>\d+))?")


@dataclass(frozen=True)
class DataFiles:
    """The files in a folder: by split (`None` where no name says a split), and data files left out."""

    of_split: dict[str | None, list[Path]]
    left_out: list[Path]


@dataclass(frozen=True)
class Source:
    """The tables of a corpus, training first, and what is known of where they came from.

    Args:
        name: short name of the corpus.
        tables: what is to be read.
        provenance: source, format and checksums.
        size: bytes of the files, or of the dataset in memory.
        report: where rows left out are written unless the user says otherwise; `None` without a file.
        notes: what there was beside the tables.
    """

    name: str
    tables: tuple[Table, ...]
    provenance: Mapping[str, object]
    size: int
    report: Path | None = None
    notes: tuple[str, ...] = ()


def open_path(path: Path, *, checked: bool = True, encoding: str | None = None) -> Source:
    """Open the tables of a file, a folder of files, a saved dataset, or of all files that a pattern matches.

    Args:
        path: or a pattern, such as `shards/train-*.parquet`.
        checked: whether checksums are wanted, for which all of it is read.
        encoding: of text files; UTF-8 by default.
    """
    if encoding is not None:
        encoding = known_encoding(encoding, path)
    if is_saved_dataset(path):
        if encoding is not None:
            raise _has_no_encoding(path)
        files = {str(file.relative_to(path)): file for file in sorted(path.rglob("*.arrow"))}
        saved = open_dataset(load_saved(path), name=path.resolve().name, shown=path)
        provenance = {"source": path.name, "format": "dataset", **_checksums(files, checked)}
        return Source(saved.name, saved.tables, provenance, _size(files), report_beside(path), saved.notes)
    if path.is_dir():
        return _open_files(path, data_files(path), checked, encoding)
    if not path.exists() and (matched := matching_files(path)):
        root = Path(os.path.commonpath([file.parent for file in matched]))
        return _open_files(root, data_files(root, matched), checked, encoding)
    table = _open_file(path, encoding=encoding)
    files = {path.name: path}
    provenance = {"source": path.name, "format": table.format, **_checksums(files, checked), **_told(encoding)}
    return Source(stem(path), (table,), provenance, _size(files), report_beside(path))


def open_dataset(dataset: Any, *, name: str | None = None, shown: str | Path = "dataset") -> Source:
    """Open the tables of a Hugging Face `Dataset`, or of a `DatasetDict` by split."""
    notes: list[str] = []
    tables: list[Table]
    parts: dict[str, Dataset] = dataset if isinstance(dataset, dict) else {"": dataset}
    if isinstance(dataset, dict) and len(parts) > 1:
        of_split: dict[str, Table] = {}
        for key, part in parts.items():
            split = SPLIT_WORDS.get(key.lower())
            if split is None:
                notes.append(f"Left out: the part {key!r} of the dataset, {len(part)} rows.")
            elif split in of_split:
                raise DataError(f"two parts for {split}: {', '.join(parts)}", path=shown)
            else:
                of_split[split] = DatasetTable(part, f"{shown}[{key!r}]", split)
        if "train" not in of_split:
            raise DataError(f"no part is named train: {', '.join(parts)}", path=shown)
        tables = [of_split[split] for split in SPLITS if split in of_split]
    else:
        tables = [DatasetTable(part, shown) for part in parts.values()]
    first = next(iter(parts.values()))
    name = name or first.info.dataset_name or "dataset"
    fingerprints = {key: part._fingerprint for key, part in parts.items()}
    provenance = {"source": name, "format": "dataset", "fingerprint": fingerprints}
    size = sum(part.data.nbytes for part in parts.values())
    return Source(name, tuple(tables), provenance, size, notes=tuple(notes))


def _open_files(folder: Path, found: DataFiles, checked: bool, encoding: str | None) -> Source:
    of_split = found.of_split
    if list(of_split) == ["train"]:  # nothing is split yet: a column may say how, or we do it
        of_split = {None: of_split["train"]}
    tables: list[Table] = []
    notes: list[str] = []
    files: dict[str, Path] = {}
    for split in (*SPLITS, None):
        paths = of_split.get(split, [])
        tables += [_open_file(path, split, encoding) for path in paths]
        files |= {path.relative_to(folder).as_posix(): path for path in paths}
        if split is None and None in found.of_split and len(paths) > 1:
            notes.append(
                f"No file name contains a split (train, val, test), so these are read as one table: {_names(paths)}."
            )
    if found.left_out:
        notes.append(f"Left out, because the file names contain no split: {_names(found.left_out)}.")
    formats = "/".join(dict.fromkeys(table.format for table in tables))
    name = folder.resolve().name
    provenance = {"source": name, "format": formats, **_checksums(files, checked), **_told(encoding)}
    return Source(name, tuple(tables), provenance, _size(files), report_beside(folder), tuple(notes))


def _open_file(path: Path, split: str | None = None, encoding: str | None = None) -> Table:
    found = data_format(path)
    if found in BINARY and encoding is not None:
        raise _has_no_encoding(path)
    match found:
        case "csv" | "tsv" as kind:
            return CsvTable(path, split, format=kind, encoding=encoding)
        case "json" | "jsonl" as kind:
            return JsonTable(path, split, format=kind, encoding=encoding)
        case "parquet":
            return ParquetTable(path, split)
        case "arrow":
            return ArrowTable(path, split)
        case _:
            refuse_spreadsheet(path)
            raise DataError(
                f"unknown file format (known: {', '.join(FORMATS)})",
                path=path,
                hint=f"CSV, TSV and JSON may also be compressed ({', '.join(COMPRESSIONS)}).",
            )


def _has_no_encoding(path: Path) -> DataError:
    return DataError(f"{spelled('encoding')} is only for text files (CSV, TSV, JSON), and this is not one", path=path)


def _told(encoding: str | None) -> dict[str, object]:
    return {} if encoding is None else {"encoding": encoding}


def _checksums(files: Mapping[str, Path], wanted: bool) -> dict[str, object]:
    return {"sha256": {name: sha256(file) for name, file in files.items()}} if wanted else {}


def _size(files: Mapping[str, Path]) -> int:
    return sum(file.stat().st_size for file in files.values())


def report_beside(path: Path) -> Path:
    """Return the name of a report beside a folder rather than in it, where it might be taken for data."""
    path = path.resolve() if path.name in {"", ".", ".."} else path
    return path.parent / f"{path.name}{BAD_ROWS_SUFFIX}"


def _names(paths: list[Path]) -> str:
    return ", ".join(path.name for path in paths)


def data_format(path: Path) -> str | None:
    """Return the format that the name of `path` says, whatever it is compressed with; None where it says none."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        found = FORMATS.get(suffixes[-2]) if len(suffixes) > 1 else None
        return None if found in BINARY else found
    return FORMATS.get(suffixes[-1]) if suffixes else None


def stem(path: Path) -> str:
    """Return the name without format and compression: `papers` for `papers.jsonl.gz`."""
    name = path.name
    for suffixes in (COMPRESSIONS, tuple(FORMATS)):
        if name.lower().endswith(suffixes):
            name = name[: name.rindex(".")]
    return name


def matching_files(pattern: Path) -> list[Path]:
    """Return the data files that a pattern with `*`, `?`, `[…]` or `**` matches; none if it is no pattern."""
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
    """Return the one split that a name like `train`, `papers-dev` or `test-00001-of-00004` speaks of."""
    splits = {SPLIT_WORDS[word] for word in re.split(r"[-_. ]+", name.lower()) if word in SPLIT_WORDS}
    return splits.pop() if len(splits) == 1 else None


def _check_shards(folder: Path, split: str | None, paths: list[Path]) -> None:
    """Raise unless several files of one split are shards of one table, with none missing."""
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


def refuse_spreadsheet(path: Path) -> None:
    """Raise where a file is one of a spreadsheet program."""
    if path.suffix.lower() in SPREADSHEETS:
        raise DataError(
            f"spreadsheets ({path.suffix}) are not supported",
            path=path,
            hint="Save it as CSV (in Excel: Save As, CSV UTF-8) and give that file.",
        )
