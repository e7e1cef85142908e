"""The paper's corpora by name: where their files are published, how they are found and read, and their provenance.

A reader finds the published files, prepares them as the paper does, and says in the corpus' provenance and
notes what it did. None of them downloads: where files are missing, the error says what to get from whom.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from abalone.data.corpus import Corpus
from abalone.data.split import iterative_split
from abalone.data.streams import COMPRESSIONS, open_text
from abalone.data.tables import BadRow, JsonTable, Record, Table, lone_surrogate, undecodable
from abalone.errors import DataError, printable, spelled
from abalone.files.cache import cache_dir
from abalone.progress import track

Reader = Callable[[Path | None], Corpus]


def _read(module: str, function: str, path: Path | None = None) -> Corpus:
    reader: Reader = getattr(import_module(f"{__name__}.{module}"), function)
    return _with_gaps_noted(reader(path))


# Each takes the folder or file that holds the published files, or None for the default place.
BENCHMARKS: dict[str, Reader] = {
    "aapd": partial(_read, "aapd", "load"),
    "rcv1": partial(_read, "rcv1", "load"),
    "uklex": partial(_read, "uklex", "load"),
    "reuters": partial(_read, "reuters", "load"),
    "arxiv": partial(_read, "arxiv", "load"),
    "arxiv-sample": partial(_read, "arxiv", "load_sample"),
}


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
        """Return the path to read: the one given, else a folder in `$ABALONE_DATA` or in `data` of the cache."""
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
        """Return the error for files that are not at `place`."""
        folder = place if place.is_dir() or not place.suffix else place.parent
        hint = (
            f"Get {self.files} from {self.publisher}; put it in {folder}, or give its location with {spelled('path')}."
        )
        return DataError(f"{self.name}: {reason}", path=place, hint=hint)

    def provenance(self, **facts: object) -> dict[str, object]:
        """Return source and licence, then what else is known."""
        return {"source": self.publisher, "licence": self.licence, **facts}


def find_file(folder: Path, *names: str) -> Path | None:
    """Return the first file of these names that there is in `folder`, plain or compressed."""
    candidates = (folder / f"{name}{compression}" for name in names for compression in ("", *COMPRESSIONS))
    return next((file for file in candidates if file.is_file()), None)


def is_id(text: str) -> bool:
    """Return whether a text is the number of a document; what has more digits fits no array of them."""
    return re.fullmatch(r"[0-9]{1,9}", text) is not None


def read_lines(path: Path, encoding: str = "utf-8-sig") -> Iterator[tuple[int, str]]:
    """Yield number and content of each line, its end included, of a plain or compressed file."""
    with open_text(path, newline="\n", encoding=encoding) as stream:
        for number, line in enumerate(stream, start=1):
            if found := undecodable(line):
                raise DataError(found[0], path=path, line=number)
            yield number, line


def read_records(table: Table) -> Iterator[Record]:
    """Return the records of a published file, which has to be sound: a bad one is an error."""
    for record in track(table.records(), f"Reading {printable(Path(table.name).name)}"):
        if isinstance(record, BadRow):
            raise DataError(record.reason, path=table.name, line=record.line)
        yield record


def read_jsonl(path: Path, fields: Mapping[str, type]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield line number and object of each line; each of `fields` is there and of its type (lists: of strings)."""
    for line, record, _ in read_records(JsonTable(path)):
        for name, kind in fields.items():
            if reason := _unfit(record, name, kind):
                raise DataError(f"field {name!r} {reason}", path=path, line=line)
        yield line, record


def _unfit(record: Mapping[str, Any], name: str, kind: type) -> str | None:
    """Return the reason why a field does not fit; None where it does."""
    value = record.get(name)
    if not isinstance(value, kind):
        found = f"is {type(value).__name__}" if name in record else "is missing"
        return f"{found}, not {kind.__name__}"
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        return "has values that are not strings"
    return next(filter(None, map(lone_surrogate, texts)), None)


def _with_gaps_noted(corpus: Corpus) -> Corpus:
    """Count documents without label or text: they stay, since whoever else uses the published corpus has them too."""
    gaps = []
    for name, split in corpus.splits():
        if bare := int((np.diff(split.labels.indptr) == 0).sum()):
            gaps.append(f"{bare} {name} documents carry no label.")
        # Reading a memory-mapped corpus through for this would cost more than all the rest of its loading.
        if isinstance(split.texts, list) and (empty := sum(not text.strip() for text in split.texts)):
            gaps.append(f"{empty} {name} documents have no text.")
    return replace(corpus, notes=(*corpus.notes, *gaps))


def exact_split(labels: csr_array, shares: Sequence[float], seed: int) -> list[np.ndarray]:
    """Make an iterative stratified split whose parts have the sizes that tables quote, not about those sizes.

    What stratification leaves over goes from the parts that are too large to those too small: the documents
    whose rarest label is the most frequent, so that no tail label moves, and never the last document that a part has
    of a label. That comes before the size: where every document to spare is such a last one, parts stay as they are.

    Args:
        labels: 0/1, [documents, labels].
        shares: relative size of each part; the first takes what rounding leaves.
        seed: the same seed gives the same split.

    Returns:
        The sorted document indices of each part.
    """
    documents, per_document = labels.shape[0], np.diff(labels.indptr)
    sizes = [round(documents * share / sum(shares)) for share in shares]
    sizes[0] += documents - sum(sizes)
    part_of = np.empty(documents, dtype=np.int64)
    for part, rows in enumerate(iterative_split(labels, shares, seed)):
        part_of[rows] = part
    held = np.stack([labels[part_of == part].sum(axis=0) for part in range(len(shares))])  # [parts, L]
    surplus = np.bincount(part_of, minlength=len(shares)) - sizes
    rarest = np.full(documents, documents)  # frequency of each document's rarest label
    labelled = np.flatnonzero(per_document)
    if labelled.size:
        frequency = labels.sum(axis=0)[labels.indices]
        rarest[labelled] = np.minimum.reduceat(frequency, labels.indptr[labelled])
    shuffled = np.random.default_rng(seed).permutation(documents)
    for document in shuffled[np.argsort(-rarest[shuffled], kind="stable")]:
        if not surplus.any():
            break
        giver, taker = part_of[document], int(surplus.argmin())
        carried = labels.indices[labels.indptr[document] : labels.indptr[document + 1]]
        if surplus[giver] > 0 and (held[giver, carried] > 1).all():
            part_of[document] = taker
            held[giver, carried] -= 1
            held[taker, carried] += 1
            surplus[giver] -= 1
            surplus[taker] += 1
    return [np.flatnonzero(part_of == part) for part in range(len(shares))]
