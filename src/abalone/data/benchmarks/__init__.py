"""The paper's corpora by name, and what their readers share.

A reader finds the published files, prepares them as the paper does, and says in the corpus' provenance and
notes what it did. None of them downloads: where files are missing, the error says what to get from whom.
"""

import gzip
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import compress
from pathlib import Path
from typing import IO, Any

import numpy as np
from scipy.sparse import csr_array

from abalone.data.assemble import unseen_message
from abalone.data.corpus import Corpus, Split
from abalone.data.errors import DataError
from abalone.data.labels import label_matrix
from abalone.data.split import iterative_split
from abalone.progress import track

Reader = Callable[[Path | None], Corpus]


def _read(module: str, function: str, path: Path | None = None) -> Corpus:
    reader: Reader = getattr(import_module(f"{__name__}.{module}"), function)
    return reader(path)


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
        """The folder or file to read: the one given, else `$ABALONE_DATA` or `~/.cache/abalone/data`."""
        if given is None:
            root = Path(os.environ.get("ABALONE_DATA") or Path.home() / ".cache" / "abalone" / "data")
            given = root / self.name
        place = Path(given).expanduser()
        if not place.exists():
            raise self.missing(place, "there is no such file or folder")
        return place

    def missing(self, place: Path, reason: str) -> DataError:
        """The error for files that are not at `place`."""
        folder = place if place.is_dir() or not place.suffix else place.parent
        hint = f"Get {self.files} from {self.publisher}; put it in {folder}, or give its place with path=."
        return DataError(f"{self.name}: {reason}", path=place, hint=hint)

    def provenance(self, **facts: object) -> dict[str, object]:
        """Source and licence, then what else is known."""
        return {"source": self.publisher, "licence": self.licence, **facts}


@dataclass(frozen=True)
class Part:
    """Texts and their label names, in the order of the source."""

    texts: list[str] = field(default_factory=list)
    labels: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, text: str, labels: Iterable[str]) -> None:
        """Append one document; a label that it carries twice counts once."""
        self.texts.append(text)
        self.labels.append(tuple(dict.fromkeys(labels)))


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Number and content of each line, its end included, of a plain, `.gz` or `.xz` file."""
    number = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(file, start=1):
                yield number, line.decode(encoding).removeprefix("\ufeff" if number == 1 else "")
    except UnicodeDecodeError as error:
        reason = f"byte 0x{error.object[error.start]:02x} is no {encoding}"
        raise DataError(reason, path=path, line=number) from error
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        hint = "The file is damaged or cut short: get it again."
        raise DataError(f"cannot be decompressed ({error})", path=path, line=number + 1, hint=hint) from error


def _open(path: Path) -> gzip.GzipFile | lzma.LZMAFile | IO[bytes]:
    match path.suffix:
        case ".gz":
            return gzip.open(path)
        case ".xz":
            return lzma.open(path)
        case _:
            return path.open("rb")


def read_jsonl(path: Path, fields: Mapping[str, type]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of each line; every one of `fields` is there and of its type (lists: of strings)."""
    for number, line in track(read_lines(path), f"Reading {path.name}"):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"not a JSON object ({error})", path=path, line=number) from error
        if not isinstance(record, dict):
            raise DataError("not a JSON object", path=path, line=number)
        for name, kind in fields.items():
            value = record.get(name)
            if not isinstance(value, kind):
                found = f"is {type(value).__name__}" if name in record else "is missing"
                raise DataError(f"field {name!r} {found}, not {kind.__name__}", path=path, line=number)
            if isinstance(value, list) and not all(isinstance(item, str) for item in value):
                raise DataError(f"field {name!r} holds more than strings", path=path, line=number)
        yield number, record


def exact_split(labels: csr_array, shares: Sequence[float], seed: int) -> list[np.ndarray]:
    """An iterative stratified split whose parts have the sizes that tables quote, not about those sizes.

    What stratification leaves over goes from the parts that are too large to those too small: the documents
    whose rarest label is the most frequent, so that no tail label moves, and never a label's last document.

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


def build_corpus(
    name: str,
    splits: Mapping[str, tuple[Sequence[str], csr_array]],
    label_names: Sequence[str],
    provenance: Mapping[str, object],
    notes: Sequence[str] = (),
) -> Corpus:
    """A corpus of texts and label matrices [documents, label_names] by split.

    A label without a training document loses its column and is reported; so are documents without a label
    and empty texts.
    """
    if not splits["train"][0]:
        raise DataError(f"{name} has no training documents")
    notes = list(notes)
    learnable = splits["train"][1].sum(axis=0) > 0  # [L]
    anywhere = np.sum([labels.sum(axis=0) for _, labels in splits.values()], axis=0) > 0  # [L]
    if unused := list(compress(label_names, ~anywhere)):
        notes.append(f"No document carries {len(unused)} of the labels: {', '.join(unused)}.")
    unseen = tuple(compress(label_names, anywhere & ~learnable))
    if unseen:
        notes.append(unseen_message(unseen))
    made = {}
    for split, (texts, labels) in splits.items():
        columns = csr_array(labels[:, np.flatnonzero(learnable)]).astype(np.int32)
        columns.sort_indices()
        made[split] = Split(texts, columns)
        if bare := int((np.diff(made[split].labels.indptr) == 0).sum()):
            notes.append(f"{bare} {split} documents carry no label.")
        # Reading a memory-mapped corpus through for this would cost more than all the rest of its loading.
        if isinstance(texts, list) and (empty := sum(not text.strip() for text in texts)):
            notes.append(f"{empty} {split} documents have no text.")
    return Corpus(
        **made,
        label_names=tuple(compress(label_names, learnable)),
        name=name,
        provenance=provenance,
        unseen_labels=unseen,
        notes=tuple(notes),
    )


def corpus_of_parts(
    name: str, parts: Mapping[str, Part], provenance: Mapping[str, object], notes: Sequence[str] = ()
) -> Corpus:
    """A corpus of documents with label names, by split; the columns are the labels in alphabetical order."""
    names = sorted({label for part in parts.values() for labels in part.labels for label in labels})
    splits = {split: (part.texts, label_matrix(part.labels, names)) for split, part in parts.items()}
    return build_corpus(name, splits, names, provenance, notes)
