"""UK-LEX: United Kingdom legislation by subject, in its own chronological split."""

from pathlib import Path

from abalone.data.benchmarks import Release, find_file, read_jsonl
from abalone.data.corpus import Corpus, build_corpus
from abalone.data.documents import Documents
from abalone.errors import DataError

RELEASE = Release(
    name="uklex",
    publisher="Zenodo record 6355465 (UK-LEX, Chalkidis and Søgaard 2022)",
    files="uk-lex69.jsonl (the paper's 69 labels) or uk-lex18.jsonl",
    licence="see Zenodo record 6355465; legislation under the Open Government Licence v3.0",
)
# The paper uses the finer of the two sets of labels; the other one is read when it is alone, or by its path.
FILES = ("uk-lex69.jsonl", "uk-lex18.jsonl")
FIELDS = {"title": str, "body": str, "labels": list, "data_type": str}
SPLIT_OF = {"train": "train", "dev": "validation", "test": "test"}


def load(path: Path | None = None) -> Corpus:
    """Read UK-LEX from `uk-lex69.jsonl` or `uk-lex18.jsonl`, given as the file or as its folder."""
    place = RELEASE.place(path)
    file = place if place.is_file() else find_file(place, *FILES)
    if file is None:
        raise RELEASE.missing(place, "neither uk-lex69.jsonl nor uk-lex18.jsonl is here")
    documents = Documents()
    for line, record in read_jsonl(file, FIELDS):
        split = SPLIT_OF.get(record["data_type"])
        if split is None:
            reason = f"data_type {record['data_type']!r} is not one of {', '.join(SPLIT_OF)}"
            raise DataError(reason, path=file, line=line)
        documents.add(f"{record['title']}\n{record['body']}", record["labels"], split)
    names, labels = documents.label_matrix()
    return build_corpus(
        documents.texts,
        labels,
        names,
        documents.rows(),
        name=file.name.partition(".")[0],
        provenance=RELEASE.provenance(
            preparation="title, a line break, body", split="the published one (data_type)", path=str(file)
        ),
    )
