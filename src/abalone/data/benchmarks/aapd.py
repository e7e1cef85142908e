"""AAPD: abstracts of arXiv papers in computer science, re-split as in the paper, from any of its three forms."""

import csv
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from abalone.data.benchmarks import Part, Release, build_corpus, exact_split, read_lines
from abalone.data.corpus import Corpus
from abalone.data.errors import DataError
from abalone.data.labels import label_matrix

RELEASE = Release(
    name="aapd",
    publisher="the authors of SGM (Yang et al. 2018, github.com/lancopku/SGM) or hedwig-data (Castorini)",
    files=(
        "text_train, label_train, text_val, label_val, text_test and label_test (SGM), or aapd_train.tsv, "
        "aapd_dev.tsv and aapd_test.tsv (hedwig), or a CSV with a column 'abstract' and a 0/1 column a label"
    ),
    licence="not stated by its authors; arXiv metadata is CC0 1.0",
)
SIZES = (42_500, 4_800, 8_540)  # train, validation, test in the paper; of fewer documents, the same shares
SEED = 0
HEDWIG_PARTS = (("train",), ("dev", "validation"), ("test",))  # some copies of hedwig write «validation»


def load(path: Path | None = None) -> Corpus:
    """AAPD from the folder of its files (SGM, hedwig or CSV), or from one CSV file."""
    place = RELEASE.place(path)
    texts, labels, names, form, notes = _read(place)
    train, validation, test = exact_split(labels, SIZES, SEED)
    splits = {
        split: ([texts[i] for i in rows], labels[rows])
        for split, rows in (("train", train), ("validation", validation), ("test", test))
    }
    provenance = RELEASE.provenance(
        form=form,
        preparation="the published texts as they are",
        split="all documents pooled in file order, then an iterative stratified split to the paper's sizes "
        f"{SIZES} (or their shares); the paper gives no ids, so its split is not this one",
        seed=SEED,
        path=str(place),
    )
    return build_corpus("aapd", splits, names, provenance, notes)


Pool = tuple[list[str], csr_array, list[str], str, list[str]]  # texts, labels [n, L], names, form, notes


def _read(place: Path) -> Pool:
    if place.is_dir() and (place / "text_train").exists():
        return _read_sgm(place)
    if place.is_dir() and (place / "aapd_train.tsv").exists():
        return _read_hedwig(place)
    files = sorted(place.glob("*.csv")) if place.is_dir() else [place]
    if not files:
        raise RELEASE.missing(place, "none of the three published forms is here")
    return _read_csv(files)


def _read_sgm(folder: Path) -> Pool:
    """`text_train` and `label_train` (and so on): a document a line, labels separated by spaces."""
    pooled = Part()
    for part in ("train", "val", "test"):
        files = folder / f"text_{part}", folder / f"label_{part}"
        if absent := [file.name for file in files if not file.is_file()]:
            raise RELEASE.missing(folder, f"missing: {', '.join(absent)}")
        for text, labels in zip_longest(*map(read_lines, files)):
            if text is None or labels is None:
                short, line = (files[0], labels[0]) if text is None else (files[1], text[0])
                other = files[1] if text is None else files[0]
                raise DataError(f"ends before this line, which {other.name} has", path=short, line=line)
            pooled.add(text[1].strip(), labels[1].split())
    names = sorted({label for row in pooled.labels for label in row})
    return pooled.texts, label_matrix(pooled.labels, names), names, "SGM", []


def _read_hedwig(folder: Path) -> Pool:
    """`aapd_train.tsv` (and so on): a string of bits, a tab, the text. The bits come without names."""
    texts: list[str] = []
    bits: list[str] = []
    for part in HEDWIG_PARTS:
        file = next((f for name in part if (f := folder / f"aapd_{name}.tsv").is_file()), None)
        if file is None:
            raise RELEASE.missing(folder, f"aapd_{part[0]}.tsv is missing")
        for number, line in read_lines(file):
            code, tab, text = line.rstrip("\r\n").partition("\t")
            if not tab or not code or code.strip("01"):
                raise DataError("not a string of 0 and 1, a tab and a text", path=file, line=number)
            if bits and len(code) != len(bits[0]):
                reason = f"{len(code)} bits, where earlier lines have {len(bits[0])}"
                raise DataError(reason, path=file, line=number)
            bits.append(code)
            texts.append(text.strip())
    names = [f"label_{number:02d}" for number in range(1, len(bits[0]) + 1)] if bits else []
    notes = ["The bit strings come without label names: the labels are called by their position."]
    return texts, _from_bits(bits, list(range(len(names)))), names, "hedwig", notes


def _read_csv(files: list[Path]) -> Pool:
    """A header with a column `abstract`, then a 0/1 column a label; columns before it are not read."""
    texts: list[str] = []
    bits: list[str] = []
    header: list[str] = []
    for file in files:
        rows = _csv_rows(file)
        line, found = next(rows, (1, []))
        if "abstract" not in found:
            raise DataError(f"no column 'abstract' among {found}", path=file, line=line)
        if header and found != header:
            raise DataError(f"not the columns of {files[0].name}", path=file, line=line)
        header, column = found, found.index("abstract")
        for line, row in rows:
            code = "".join(row[column + 1 :])
            if len(row) != len(header) or len(code) != len(header) - column - 1 or code.strip("01"):
                reason = f"not an abstract and then {len(header) - column - 1} values of 0 or 1"
                raise DataError(reason, path=file, line=line)
            texts.append(row[column].strip())
            bits.append(code)
    names, unread = header[column + 1 :], header[:column]
    order = sorted(range(len(names)), key=names.__getitem__)
    notes = [f"Columns not read: {', '.join(map(repr, unread))}."] if unread else []
    return texts, _from_bits(bits, order), [names[j] for j in order], "CSV", notes


def _csv_rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line each starts on: a quoted abstract may run over several."""
    rows = csv.reader((line for _, line in read_lines(file)), strict=True)
    start = 1
    try:
        for row in rows:
            if row:
                yield start, row
            start = rows.line_num + 1
    except csv.Error as error:
        raise DataError(f"not readable as CSV ({error})", path=file, line=start) from error


def _from_bits(bits: list[str], columns: list[int]) -> csr_array:
    """0/1 matrix [documents, columns] of strings of as many bits."""
    characters = np.frombuffer("".join(bits).encode("ascii"), dtype=np.uint8).reshape(len(bits), len(columns))
    return csr_array((characters == ord("1"))[:, columns].astype(np.int32))
