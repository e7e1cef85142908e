"""arxiv54: arXiv abstracts with the 54 categories of AAPD, whole (by path) and as the bundled sample.

It has AAPD's size and shape but other papers (2007–2026): its figures are not AAPD's.
"""

from importlib.resources import as_file, files
from pathlib import Path

from abalone.data.benchmarks import Release, find_file, read_jsonl
from abalone.data.corpus import Corpus, build_corpus
from abalone.data.documents import Documents
from abalone.errors import DataError

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
    """Read the whole of arxiv54 from the folder of its three files, plain or compressed."""
    folder = RELEASE.place(path)
    provenance = RELEASE.provenance(preparation=PREPARATION, split="the published one")
    return _read(folder, "arxiv54", provenance)


def load_sample(path: Path | None = None) -> Corpus:
    """Read the bundled sample of arxiv54, in which every label keeps enough documents to be learnt."""
    if path is not None:
        raise DataError("arxiv-sample comes with the package and takes no path", path=path, hint="Use 'arxiv'.")
    provenance = RELEASE.provenance(
        source="arxiv54, of which it is a sample (sample/PROVENANCE.md)",
        preparation=PREPARATION,
        split="each drawn from the same split of arxiv54",
        seed=SAMPLE_SEED,
    )
    with as_file(files("abalone.data") / "sample") as folder:
        return _read(folder, "arxiv-sample", provenance)


def _read(folder: Path, name: str, provenance: dict[str, object]) -> Corpus:
    documents = Documents()
    for split, file_name in FILES.items():
        file = find_file(folder, file_name)
        if file is None:
            raise RELEASE.missing(folder, f"{file_name}.xz is missing")
        for _, record in read_jsonl(file, FIELDS):
            documents.add(record["text"], record["labels"], split)
    names, labels = documents.label_matrix()
    return build_corpus(documents.texts, labels, names, documents.rows(), name=name, provenance=provenance)
