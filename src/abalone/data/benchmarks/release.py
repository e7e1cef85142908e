"""What the readers of published corpora share: where the files lie, how they are read, what the corpus says."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from abalone.data.corpus import Corpus
from abalone.data.files import COMPRESSIONS, open_text
from abalone.data.tables import (
    BadRow,
    JsonTable,
    Row,
    Table,
    UndecodableError,
    half_character,
    refuse_undecodable,
)
from abalone.files.cache import cache_dir
from abalone.files.errors import DataError, printable
from abalone.progress import track


@dataclass(frozen=True)
class Release:
    """Where a corpus is published: for its provenance, and for the error when its files are missing.

    Args:
        name: its key in `BENCHMARKS`, and the name of its default folder.
        publisher: from whom to get it.
        files: the file names that are expected.
        licence: under which terms it is published.
    """

    name: str
    publisher: str
    files: str
    licence: str

    def place(self, given: str | Path | None) -> Path:
        """The folder or file to read: the one given, else a folder in `$ABALONE_DATA` or in `data` of the cache."""
        if given is None:
            given = Path(os.environ.get("ABALONE_DATA") or cache_dir() / "data") / self.name
        try:
            place = Path(given).expanduser()
            there = place.exists()
        except (OSError, RuntimeError) as error:  # a name that no file can have, or a home that nobody has
            raise DataError(f"{self.name}: there is no such file or folder ({error})", path=given) from error
        if not there:
            raise self.missing(place, "there is no such file or folder")
        return place

    def missing(self, place: Path, reason: str) -> DataError:
        """The error for files that are not at `place`."""
        folder = place if place.is_dir() or not place.suffix else place.parent
        hint = f"Get {self.files} from {self.publisher}; put it in {folder}, or give its location with path=."
        return DataError(f"{self.name}: {reason}", path=place, hint=hint)

    def provenance(self, **facts: object) -> dict[str, object]:
        """Source and licence, then what else is known."""
        return {"source": self.publisher, "licence": self.licence, **facts}


def find_file(folder: Path, name: str) -> Path | None:
    """The file of that name in `folder`, plain or compressed."""
    candidates = (folder / f"{name}{compression}" for compression in ("", *COMPRESSIONS))
    return next((file for file in candidates if file.is_file()), None)


def is_id(text: str) -> bool:
    """Whether it is the number of a document; what has more digits fits no array of them."""
    return re.fullmatch(r"[0-9]{1,9}", text) is not None


def read_lines(path: Path, encoding: str = "utf-8-sig") -> Iterator[tuple[int, str]]:
    """Number and content of each line, its end included, of a plain or compressed file."""
    with open_text(path, newline="\n", encoding=encoding) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                refuse_undecodable(line)
            except UndecodableError as error:
                raise DataError(str(error), path=path, line=number) from None
            yield number, line


def read_rows(table: Table) -> Iterator[Row]:
    """The rows of a published file, which has to be sound: a bad one is an error."""
    for row in track(table.rows(), f"Reading {printable(Path(table.name).name)}"):
        if isinstance(row, BadRow):
            raise DataError(row.reason, path=table.name, line=row.line)
        yield row


def read_jsonl(path: Path, fields: Mapping[str, type]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Line number and object of each line; every one of `fields` is there and of its type (lists: of strings)."""
    for line, record, _ in read_rows(JsonTable(path)):
        for name, kind in fields.items():
            if reason := _unfit(record, name, kind):
                raise DataError(f"field {name!r} {reason}", path=path, line=line)
        yield line, record


def _unfit(record: Mapping[str, Any], name: str, kind: type) -> str | None:
    """What is wrong with a field, if anything."""
    value = record.get(name)
    if not isinstance(value, kind):
        found = f"is {type(value).__name__}" if name in record else "is missing"
        return f"{found}, not {kind.__name__}"
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        return "has values that are not strings"
    return next(filter(None, map(half_character, texts)), None)


def with_gaps_noted(corpus: Corpus) -> Corpus:
    """Count documents without label or text: they stay, since whoever else uses the published corpus has them too."""
    gaps = []
    for name, split in corpus.splits():
        if bare := int((np.diff(split.labels.indptr) == 0).sum()):
            gaps.append(f"{bare} {name} documents carry no label.")
        # Reading a memory-mapped corpus through for this would cost more than all the rest of its loading.
        if isinstance(split.texts, list) and (empty := sum(not text.strip() for text in split.texts)):
            gaps.append(f"{empty} {name} documents have no text.")
    return replace(corpus, notes=(*corpus.notes, *gaps))
