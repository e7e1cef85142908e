"""UK-LEX: United Kingdom legislation by subject, in its own chronological split."""

from pathlib import Path

from abalone.data.benchmarks import Part, Release, corpus_of_parts, read_jsonl
from abalone.data.corpus import Corpus
from abalone.data.errors import DataError

RELEASE = Release(
    name="uklex",
    publisher="Zenodo record 6355465 (UK-LEX, Chalkidis and Søgaard 2022)",
    files="uk-lex69.jsonl (the paper's 69 labels) or uk-lex18.jsonl",
    licence="see Zenodo record 6355465; legislation under the Open Government Licence v3.0",
)
# The paper uses the finer of the two sets of labels; the other one is read when it is alone, or by its path.
FILES = ("uk-lex69.jsonl", "uk-lex18.jsonl")
COMPRESSIONS = ("", ".gz", ".xz")
FIELDS = {"title": str, "body": str, "labels": list, "data_type": str}
SPLITS = {"train": "train", "dev": "validation", "test": "test"}


def load(path: Path | None = None) -> Corpus:
    """UK-LEX from `uk-lex69.jsonl` or `uk-lex18.jsonl`, given as the file or as its folder."""
    file = _find(RELEASE.place(path))
    parts = {split: Part() for split in SPLITS.values()}
    for line, record in read_jsonl(file, FIELDS):
        split = SPLITS.get(record["data_type"])
        if split is None:
            reason = f"data_type {record['data_type']!r} is none of {', '.join(SPLITS)}"
            raise DataError(reason, path=file, line=line)
        parts[split].add(f"{record['title']}\n{record['body']}", record["labels"])
    provenance = RELEASE.provenance(
        preparation="title, a line break, body", split="the published one (data_type)", path=str(file)
    )
    return corpus_of_parts(file.name.partition(".")[0], parts, provenance)


def _find(place: Path) -> Path:
    if place.is_file():
        return place
    candidates = (place / f"{name}{compression}" for name in FILES for compression in COMPRESSIONS)
    file = next((candidate for candidate in candidates if candidate.is_file()), None)
    if file is None:
        raise RELEASE.missing(place, "neither uk-lex69.jsonl nor uk-lex18.jsonl is here")
    return file
