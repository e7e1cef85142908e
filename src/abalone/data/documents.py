"""Documents: the texts, labels and splits of all rows as they were read, in memory or in the cache."""

import json
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from abalone.data.bad_rows import BadRows
from abalone.data.hashes import text_hash, text_hashes
from abalone.data.labels import LabelCells, LabelLists
from abalone.data.notes import blank_notes, separator_notes
from abalone.data.rows import Columns, read_rows, require_columns
from abalone.data.split import SPLITS, numbered
from abalone.data.store import MappedTexts, Stored, TextWriter, arrays_once, take
from abalone.data.tables import BadRow, Table
from abalone.errors import DataError, InputError, printable
from abalone.files.cache import cache_entry
from abalone.files.schema import misfit
from abalone.progress import track

FORMAT = "abalone-documents-4"  # part of the key: another layout never meets an old file
SHAPE = {"names": [str], "offered": [str], "separator": (str, None), "notes": [str]}
BLOCK = 1 << 22  # bytes


@dataclass
class Documents:
    """Documents as they were read: `i` has `texts[i]`, the labels `labels[i]` and the split `splits[i]`, if any.

    `offered` are the labels that the source has a place for (a 0/1 column, a bit), carried or not.
    """

    texts: Sequence[str] = field(default_factory=list)
    labels: LabelLists = field(default_factory=LabelLists)
    splits: Sequence[str | None] = field(default_factory=list)
    offered: tuple[str, ...] = ()
    separator: str | None = None  # that labels were split at
    notes: list[str] = field(default_factory=list)
    hashes: np.ndarray | None = None  # as `text_hashes` gives them, where they are known already

    def add(self, text: str, labels: Iterable[str] = (), split: str | None = None) -> None:
        """Append one document; only to documents that were made empty."""
        self.texts.append(text)  # type: ignore[attr-defined]
        self.labels.append(labels)
        self.splits.append(split)  # type: ignore[attr-defined]

    def label_matrix(self) -> tuple[list[str], csr_array]:
        """Return the labels that a document carries, in order, and who carries which: 0/1, [n, L]."""
        names = self.labels.carried()
        return names, self.labels.matrix(names)

    def text_hashes(self) -> np.ndarray:
        """Return hashes that are the same for copies of a text, [n]."""
        if self.hashes is None:
            self.hashes = text_hashes(self.texts)
        return self.hashes

    def rows(self) -> dict[str, np.ndarray]:
        """Return the documents of each split, as far as that is known."""
        of_row = np.array([_code(split) for split in self.splits], dtype=np.int8)
        return {split: np.flatnonzero(of_row == number) for number, split in enumerate(SPLITS)}


def with_merged_case(documents: Documents) -> Documents:
    """Make labels that differ only by case one label, in lower case.

    Not in the spelling that is the commonest: other data of the same labels may have another one.
    """
    offered = tuple(dict.fromkeys(name.casefold() for name in documents.offered))
    return replace(documents, labels=documents.labels.renamed(str.casefold), offered=offered)


def read_documents(
    tables: Sequence[Table],
    columns: Columns,
    *,
    label_separator: str | None,
    bad_rows: BadRows,
    keep_text: Callable[[str], None] | None = None,
) -> Documents:
    """Read all tables; rows that cannot be used go to `bad_rows`.

    Args:
        tables: what is to be read.
        columns: of each of them.
        label_separator: what separates labels in a string; found where it is `None`.
        bad_rows: takes what cannot be used.
        keep_text: takes the texts, one after the other, instead of `texts` of the documents.
    """
    documents = Documents(offered=columns.labels if columns.indicators else ())
    texts: list[str] = []
    splits: list[str | None] = []
    keep = texts.append if keep_text is None else keep_text
    blanks: Counter[str] = Counter()
    with LabelCells(label_separator, documents.labels) as cells:
        for table in tables:
            require_columns(table, columns)
            before = len(splits)
            rows = read_rows(table, columns, lists_in_text=label_separator is None)
            for row in track(rows, f"Reading {printable(Path(table.name).name)}"):
                if isinstance(row, BadRow):
                    bad_rows.reject(row)
                    continue
                keep(row.text)
                cells.append(row.labels)
                splits.append(row.split)
                blanks.update(row.blank)
            if len(splits) == before:
                documents.notes.append(f"{Path(table.name).name} holds no documents.")
        if not columns.indicators and cells.bit_vectors:
            raise DataError(
                f"column {columns.labels[0]!r} holds 0/1 vectors, which do not name the labels",
                path=tables[0].name,
                hint="Give lists of names, or one 0/1 column per label.",
            )
        separators = cells.split()
    documents.texts, documents.splits = texts, splits
    documents.separator = separators[0] if separators else label_separator
    names = dict.fromkeys(documents.labels.names) if cells.strings else {}
    documents.notes += blank_notes(blanks)
    documents.notes += separator_notes(label_separator, cells.separated, separators, names)
    return documents


def without_copies(documents: Documents) -> Documents:
    """Leave out texts that occurred before; the first takes the labels of all its copies.

    So a table with one row for each label of a text becomes one with all its labels.
    """
    hashes = documents.text_hashes()
    rows = np.sort(np.unique(hashes, return_index=True)[1])  # [g], the documents that stay
    if len(rows) == len(hashes):
        return documents
    keeper = numbered(hashes)  # [n], which of those each document goes into
    labels = _merged(documents.labels, keeper, len(rows))
    per_document = np.diff(documents.label_matrix()[1].indptr)  # [n]
    differing = np.unique(keeper[per_document < labels.lengths()[keeper]]).size
    added = f"; {differing:,} of the remaining texts took labels from a copy" if differing else ""
    note = f"Duplicate texts left out: {len(hashes) - len(rows):,}{added}."
    return Documents(
        take(documents.texts, rows),
        labels,
        [documents.splits[row] for row in rows],
        documents.offered,
        documents.separator,
        [*documents.notes, note],
        hashes[rows],
    )


def _merged(lists: LabelLists, keeper: np.ndarray, kept: int) -> LabelLists:
    """Merge the labels of documents, [n], by the document that each goes into; each label once."""
    together = lists.select(np.argsort(keeper, kind="stable"))
    indices, _ = together.arrays()
    owner = np.repeat(np.sort(keeper), together.lengths())  # [assignments]
    _, once = np.unique(owner * max(len(lists.names), 1) + indices, return_index=True)
    once.sort()
    return LabelLists(lists.names, indices[once], np.cumsum(np.bincount(owner[once], minlength=kept)))


Read = Callable[[Callable[[str], None], BadRows], Documents]
"""Reads documents, and hands texts and bad rows to who takes them."""


def read_once(key: str, read: Read, bad_rows: BadRows) -> Documents:
    """Return the documents that `read` gives, from the cache folder if they were read before and are intact.

    Args:
        key: changes with anything that changes the documents, or the bad rows among them.
        read: called if they are not there yet.
        bad_rows: takes the bad rows, whether they are read now or were then.
    """
    path = cache_entry("texts", f"{key}.safetensors")
    try:
        stored = arrays_once(path, FORMAT, lambda: _write(path, read, bad_rows))
    except OSError as error:
        raise DataError(
            f"the texts cannot be cached here: {error.strerror or error}",
            path=path.parent,
            hint="Set ABALONE_CACHE to a folder with space for all of them.",
        ) from error
    try:
        documents = _documents(stored)
    except (KeyError, ValueError, RecursionError) as error:  # forged, since the checksums fit
        raise DataError(
            "the cached texts are damaged", path=path, hint="Delete the file; it will be rebuilt."
        ) from error
    listed = stored.arrays["bad_rows"]
    if listed.size and not bad_rows.count:
        bad_rows.take_from(listed.tobytes().splitlines(keepends=True))
    return documents


def _write(path: Path, read: Read, bad_rows: BadRows) -> None:
    hashes = array("Q")
    with TextWriter(path, FORMAT) as writer, tempfile.TemporaryFile() as listed:

        def keep(text: str) -> None:
            writer.append(text)
            hashes.append(text_hash(text))  # here, since nobody wants to read all texts again to find copies

        documents = read(keep, bad_rows.copied_to(listed))
        indices, ends = documents.labels.arrays()
        writer.extend("labels", indices)
        writer.extend("ends", ends)
        writer.extend("splits", np.array([_code(split) for split in documents.splits], dtype=np.int8))
        writer.extend("hashes", np.frombuffer(hashes, dtype=np.uint64))
        facts = {
            "names": documents.labels.names,
            "offered": documents.offered,
            "separator": documents.separator,
            "notes": documents.notes,
        }
        content = json.dumps(facts).encode()  # in ASCII: a separator may be half a character
        writer.extend("facts", np.frombuffer(content, dtype=np.uint8))
        listed.seek(0)
        writer.extend("bad_rows", np.empty(0, np.uint8))
        while block := listed.read(BLOCK):
            writer.extend("bad_rows", np.frombuffer(block, dtype=np.uint8))


def _documents(stored: Stored) -> Documents:
    facts = json.loads(stored.arrays["facts"].tobytes())
    if wrong := misfit(facts, SHAPE):
        raise InputError(wrong)
    indices, ends, codes, hashes = (stored.arrays[name] for name in ("labels", "ends", "splits", "hashes"))
    texts = MappedTexts(stored)
    _refuse_misfits(len(texts), len(facts["names"]), indices, ends, codes)
    if hashes.dtype != np.uint64 or hashes.shape != (len(texts),):
        raise ValueError("the hashes are not those of these texts")
    return Documents(
        texts,
        LabelLists(facts["names"], indices, ends),
        [None if code < 0 else SPLITS[code] for code in codes.tolist()],
        tuple(facts["offered"]),
        facts["separator"],
        facts["notes"],
        hashes,
    )


def _refuse_misfits(texts: int, names: int, indices: np.ndarray, ends: np.ndarray, codes: np.ndarray) -> None:
    """Raise where an array does not fit the others: products follow indices wherever they point, out of memory too."""
    whole = all(each.ndim == 1 and each.dtype.kind == "i" for each in (indices, ends, codes))
    if not whole or len(ends) != texts or len(codes) != texts:
        raise ValueError("the arrays are not those of these texts")
    steps = np.diff(ends, prepend=0)
    if steps.min(initial=0) < 0 or (ends[-1] if texts else 0) != len(indices):
        raise ValueError("the documents' labels do not end where they should")
    if indices.min(initial=0) < 0 or indices.max(initial=-1) >= names:
        raise ValueError(f"there are labels beyond the {names} names")
    if codes.min(initial=0) < -1 or codes.max(initial=-1) >= len(SPLITS):
        raise InputError("there are unknown splits")


def _code(split: str | None) -> int:
    """Return the place of a split in `SPLITS`, −1 for none."""
    return -1 if split is None else SPLITS.index(split)
