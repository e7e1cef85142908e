"""AAPD: abstracts of arXiv papers in computer science, re-split as in the paper, from any of its three forms."""

from itertools import compress, zip_longest
from pathlib import Path

from abalone.data.benchmarks import Release, exact_split, find_file, read_lines, read_records
from abalone.data.corpus import Corpus, build_corpus
from abalone.data.documents import Documents
from abalone.data.notes import uncarried_notes
from abalone.data.rows import indicator
from abalone.data.sources import data_format
from abalone.data.split import SPLITS
from abalone.data.tables import CsvTable
from abalone.errors import DataError

RELEASE = Release(
    name="aapd",
    publisher="the authors of SGM (Yang et al. 2018, github.com/lancopku/SGM) or hedwig-data (Castorini)",
    files=(
        "text_train, label_train, text_val, label_val, text_test and label_test (SGM), or aapd_train.tsv, "
        "aapd_dev.tsv and aapd_test.tsv (hedwig), or a CSV with a column 'abstract' and one 0/1 column per label"
    ),
    licence="not stated by its authors; arXiv metadata is CC0 1.0",
)
SIZES = (42_500, 4_800, 8_540)  # train, validation, test in the paper; of fewer documents, the same shares
SEED = 0
HEDWIG_PARTS = (("train",), ("dev", "validation"), ("test",))  # some copies of hedwig write «validation»


def load(path: Path | None = None) -> Corpus:
    """Read AAPD from the folder of its files (SGM, hedwig or CSV), or from one CSV file."""
    place = RELEASE.place(path)
    documents, form = _read(place)
    names, labels = documents.label_matrix()
    return build_corpus(
        documents.texts,
        labels,
        names,
        dict(zip(SPLITS, exact_split(labels, SIZES, SEED), strict=True)),
        name="aapd",
        provenance=RELEASE.provenance(
            form=form,
            preparation="the published texts as they are",
            split="all documents pooled in file order, then an iterative stratified split to the paper's sizes "
            f"{SIZES} (or their shares); the paper gives no ids, so its split is not this one",
            seed=SEED,
            path=str(place),
        ),
        notes=[*documents.notes, *uncarried_notes(documents.offered, names)],
    )


def _read(place: Path) -> tuple[Documents, str]:
    """Read the documents of all files, pooled; return the form they were found in too."""
    if find_file(place, "text_train"):
        return _read_sgm(place), "SGM"
    if find_file(place, "aapd_train.tsv"):
        return _read_hedwig(place), "hedwig"
    files = [file for file in sorted(place.iterdir()) if data_format(file) == "csv"] if place.is_dir() else [place]
    if not files:
        raise RELEASE.missing(place, "none of the three published forms is here")
    return _read_csv(files), "CSV"


def _read_sgm(folder: Path) -> Documents:
    """Read `text_train` and `label_train` (and so on): a document a line, labels separated by spaces."""
    documents = Documents()
    for part in ("train", "val", "test"):
        texts, labels = _find(folder, f"text_{part}"), _find(folder, f"label_{part}")
        for text, carried in zip_longest(read_lines(texts), read_lines(labels)):
            if text is None:
                raise DataError(f"ends before this line, which {labels.name} has", path=texts, line=carried[0])
            if carried is None:
                raise DataError(f"ends before this line, which {texts.name} has", path=labels, line=text[0])
            documents.add(text[1].strip(), carried[1].split())
    return documents


def _read_hedwig(folder: Path) -> Documents:
    """Read `aapd_train.tsv` (and so on): a string of bits, a tab, the text. The bits come without names."""
    documents = Documents(notes=["The bit strings come without label names: the labels are named by their position."])
    for part in HEDWIG_PARTS:
        file = _find(folder, *(f"aapd_{name}.tsv" for name in part))
        for number, line in read_lines(file):
            bits, tab, text = line.rstrip("\r\n").partition("\t")
            if not tab or not bits or bits.strip("01"):
                raise DataError("not a string of 0 and 1, a tab and a text", path=file, line=number)
            names = documents.offered or tuple(f"label_{position:02d}" for position in range(1, len(bits) + 1))
            if len(bits) != len(names):
                raise DataError(f"{len(bits)} bits, where earlier lines have {len(names)}", path=file, line=number)
            documents.offered = names
            documents.add(text.strip(), compress(names, map(int, bits)))
    return documents


def _read_csv(files: list[Path]) -> Documents:
    """Read a column `abstract` and then one 0/1 column per label; columns before it are not read."""
    documents = Documents()
    header = CsvTable(files[0]).columns
    if "abstract" not in header:
        raise DataError(f"no column 'abstract' among {list(header)}", path=files[0], line=1)
    unread, names = header[: header.index("abstract")], header[header.index("abstract") + 1 :]
    for file in files:
        table = CsvTable(file)
        if table.columns != header:
            raise DataError(f"not the columns of {files[0].name}", path=file, line=1)
        for record in read_records(table):
            bits = [indicator(record.values[name]) for name in names]
            if None in bits:
                raise DataError(f"not an abstract and then {len(names)} values of 0 or 1", path=file, line=record.line)
            documents.add(str(record.values["abstract"]).strip(), compress(names, bits))
    documents.offered = names
    if unread:
        documents.notes.append(f"Columns not read: {', '.join(map(repr, unread))}.")
    return documents


def _find(folder: Path, *names: str) -> Path:
    """Return the one of these files that there is."""
    file = find_file(folder, *names)
    if file is None:
        raise RELEASE.missing(folder, f"missing: {names[0]}")
    return file
