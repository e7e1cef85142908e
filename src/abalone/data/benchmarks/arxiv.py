"""arxiv54: arXiv abstracts with the 54 categories of AAPD, whole (by path) and as the bundled sample.

It has AAPD's size and shape but other papers (2007–2026): its figures are not AAPD's.
"""

from importlib.resources import as_file, files
from pathlib import Path

from abalone.data.benchmarks import Part, Release, corpus_of_parts, read_jsonl
from abalone.data.corpus import Corpus
from abalone.data.errors import DataError

RELEASE = Release(
    name="arxiv",
    publisher="the ABALONE project (arxiv54, made from arXiv's public metadata; 'arxiv-sample' needs no files)",
    files="train.jsonl.xz, val.jsonl.xz and test.jsonl.xz",
    licence="CC0 1.0 (arXiv metadata)",
)
FILES = {"train": "train.jsonl", "validation": "val.jsonl", "test": "test.jsonl"}
FIELDS = {"id": str, "title": str, "text": str, "labels": list}
SAMPLE_SEED = 54
PREPARATION = "the text is the abstract alone, without the title"


def load(path: Path | None = None) -> Corpus:
    """The whole of arxiv54 from the folder of its three files, plain or compressed as `.xz` or `.gz`."""
    folder = RELEASE.place(path)
    parts = {split: _read(_find(folder, name)) for split, name in FILES.items()}
    provenance = RELEASE.provenance(preparation=PREPARATION, split="the published one", folder=str(folder))
    return corpus_of_parts("arxiv54", parts, provenance)


def load_sample(path: Path | None = None) -> Corpus:
    """The bundled sample of arxiv54, in which every label keeps enough documents to be learnt."""
    if path is not None:
        raise DataError("arxiv-sample comes with the package and takes no path", path=path, hint="Use 'arxiv'.")
    with as_file(files("abalone.data") / "sample") as folder:
        parts = {split: _read(folder / f"{name}.xz") for split, name in FILES.items()}
    provenance = RELEASE.provenance(
        source="arxiv54, of which it is a sample (sample/PROVENANCE.md)",
        preparation=PREPARATION,
        split="each drawn from the same split of arxiv54",
        seed=SAMPLE_SEED,
    )
    return corpus_of_parts("arxiv-sample", parts, provenance)


def _find(folder: Path, name: str) -> Path:
    for suffix in (".xz", ".gz", ""):
        if (file := folder / f"{name}{suffix}").is_file():
            return file
    raise RELEASE.missing(folder, f"{name}.xz is missing")


def _read(file: Path) -> Part:
    part = Part()
    for _, record in read_jsonl(file, FIELDS):
        part.add(record["text"], record["labels"])
    return part
