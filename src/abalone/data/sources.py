"""From what a user names — a file, a folder, a dataset — to the tables in it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abalone.data.arrow import ArrowTable, DatasetTable, ParquetTable, is_saved_dataset, load_saved
from abalone.data.corpus import SPLITS
from abalone.data.files import (
    BAD_ROWS_SUFFIX,
    BINARY,
    COMPRESSIONS,
    FORMATS,
    SPLIT_WORDS,
    DataFiles,
    data_files,
    data_format,
    known_encoding,
    matching_files,
    refuse_spreadsheet,
    sha256,
    stem,
)
from abalone.data.tables import CsvTable, JsonTable, Table
from abalone.files.errors import DataError

if TYPE_CHECKING:
    from datasets import Dataset


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
    """The tables of a file, a folder of files, a dataset saved on disk, or of all files that a pattern matches.

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
    """The tables of a Hugging Face `Dataset`, or of a `DatasetDict` by split."""
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
    return DataError("encoding= is only for text files (CSV, TSV, JSON), and this is not one", path=path)


def _told(encoding: str | None) -> dict[str, object]:
    return {} if encoding is None else {"encoding": encoding}


def _checksums(files: Mapping[str, Path], wanted: bool) -> dict[str, object]:
    return {"sha256": {name: sha256(file) for name, file in files.items()}} if wanted else {}


def _size(files: Mapping[str, Path]) -> int:
    return sum(file.stat().st_size for file in files.values())


def report_beside(path: Path) -> Path:
    """Beside a folder rather than in it, where it might be taken for data."""
    path = path.resolve() if path.name in {"", ".", ".."} else path
    return path.parent / f"{path.name}{BAD_ROWS_SUFFIX}"


def _names(paths: list[Path]) -> str:
    return ", ".join(path.name for path in paths)
