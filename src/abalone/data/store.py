"""Large data, read once: texts and labels go to the cache folder as they are read, and are memory-mapped from there."""

import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import overload

import numpy as np

from abalone.data.badrows import BadRows
from abalone.data.corpus import SPLITS
from abalone.data.documents import Documents
from abalone.data.label_lists import LabelLists
from abalone.data.seen import text_hash
from abalone.data.texts import MappedTexts, TextWriter
from abalone.files.cache import cache_entry
from abalone.files.errors import DataError
from abalone.files.schema import misfit
from abalone.files.sealed import sealed_once

FORMAT = "abalone-documents-3"  # part of the key: another layout never meets an old folder
FACTS, INDICES, ENDS, CODES, HASHES = "facts.json", "labels.npy", "ends.npy", "splits.npy", "hashes.npy"
BAD_ROWS = "bad-rows.jsonl"

SHAPE = {"names": [str], "offered": [str], "separator": (str, None), "notes": [str], "bad_rows": int}

Read = Callable[[Callable[[str], None], BadRows], Documents]
"""Reads documents, and hands texts and rows that cannot be used to who takes them."""


def read_once(key: str, read: Read, *, skip_bad_rows: bool) -> tuple[Documents, Path | None]:
    """The documents that `read` gives, from the cache folder if they were read before and are intact.

    Args:
        key: changes with anything that changes the documents.
        read: called if they are not there yet.
        skip_bad_rows: whether rows that cannot be used are left out.

    Returns:
        The documents, and the list of rows left out, if any were.
    """
    folder = cache_entry("texts", key)
    try:
        sealed_once(folder, lambda place: _build(place, read, skip_bad_rows=skip_bad_rows))
    except OSError as error:
        raise DataError(
            f"the texts cannot be cached here: {error.strerror or error}",
            path=folder.parent,
            hint="Set ABALONE_CACHE to a folder with space for all of them.",
        ) from error
    try:
        return _read_back(folder)
    except Exception as error:  # numpy says in many ways that bytes are wrong
        raise DataError(
            "the cached texts are damaged", path=folder, hint="Delete the folder; it will be rebuilt."
        ) from error


def _read_back(folder: Path) -> tuple[Documents, Path | None]:
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    if wrong := misfit(facts, SHAPE):
        raise ValueError(wrong)
    indices, ends, codes, hashes = (
        np.asarray(np.load(folder / name, mmap_mode="r", allow_pickle=False)) for name in (INDICES, ENDS, CODES, HASHES)
    )
    texts = MappedTexts(folder)
    _refuse_misfits(len(texts), len(facts["names"]), indices, ends, codes)
    if hashes.dtype != np.uint64 or hashes.shape != (len(texts),):
        raise ValueError("the hashes are not those of these texts")
    documents = Documents(
        texts,
        LabelLists(facts["names"], indices, ends),
        CodedSplits(codes),
        tuple(facts["offered"]),
        facts["separator"],
        facts["notes"],
        hashes,
    )
    return documents, folder / BAD_ROWS if facts["bad_rows"] else None


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
        raise ValueError("there are splits that nobody knows")


def _build(place: Path, read: Read, *, skip_bad_rows: bool) -> None:
    hashes = array("Q")
    with TextWriter(place) as writer, BadRows(place / BAD_ROWS if skip_bad_rows else None) as bad_rows:

        def keep(text: str) -> None:
            writer.append(text)
            hashes.append(text_hash(text))  # here, since nobody wants to read all texts again to find copies

        documents = read(keep, bad_rows)
    indices, ends = documents.labels.arrays()
    codes = np.array([SPLITS.index(split) if split else -1 for split in documents.splits], dtype=np.int8)
    arrays = {INDICES: indices, ENDS: ends, CODES: codes, HASHES: np.frombuffer(hashes, dtype=np.uint64)}
    for name, content in arrays.items():
        np.save(place / name, content, allow_pickle=False)
    facts = {
        "names": documents.labels.names,
        "offered": documents.offered,
        "separator": documents.separator,
        "notes": documents.notes,
        "bad_rows": bad_rows.count,
    }
    (place / FACTS).write_text(json.dumps(facts), encoding="utf-8")  # a separator may be half a character


class CodedSplits(Sequence[str | None]):
    """The split of each document, as a byte.

    Args:
        codes: [documents], places in `SPLITS`, −1 for none.
    """

    def __init__(self, codes: np.ndarray) -> None:
        self.codes = codes

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, item: int) -> str | None: ...
    @overload
    def __getitem__(self, item: slice) -> list[str | None]: ...
    def __getitem__(self, item: int | slice) -> str | list[str | None] | None:
        if isinstance(item, slice):
            return [self[row] for row in range(*item.indices(len(self)))]
        code = int(self.codes[item])
        return None if code < 0 else SPLITS[code]

    def __iter__(self) -> Iterator[str | None]:
        return map(self.__getitem__, range(len(self)))
