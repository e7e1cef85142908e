"""Small corpora written by hand, and what has to come out of them."""

import csv
import gzip
import io
import json
import lzma
from functools import partial
from pathlib import Path

import numpy as np
import zstandard
from datasets import ClassLabel, Dataset, Features, List, Value

from abalone.data.corpus import Corpus, Split
from abalone.data.store import ArrayWriter, open_arrays

# Without the time of day, so that the same content is the same bytes.
COMPRESS = {"": bytes, ".gz": partial(gzip.compress, mtime=0), ".xz": lzma.compress, ".zst": zstandard.compress}
ROWS = [
    {"text": 'one "quoted",\nand more', "labels": ["b", "a"], "split": "train"},
    {"text": "two ä", "labels": ["a"], "split": "Training"},
    {"text": "three", "labels": ["c", "a"], "split": "train"},
    {"text": "four", "labels": ["b"], "split": "dev"},
    {"text": "five", "labels": [], "split": " test "},
]


def as_csv(rows: list[dict], delimiter: str = ",") -> bytes:
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows({**row, "labels": ";".join(row["labels"])} for row in rows)
    return stream.getvalue().encode()


def as_jsonl(rows: list[dict]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


WRITE = {
    ".csv": as_csv,
    ".tsv": lambda rows: as_csv(rows, "\t"),
    ".jsonl": as_jsonl,
    ".ndjson": as_jsonl,
    ".json": lambda rows: json.dumps(rows, indent=1).encode(),
}


def label_lists(corpus: Corpus, split: Split) -> list[list[str]]:
    return [[corpus.label_names[j] for j in np.flatnonzero(row)] for row in split.labels.toarray()]


def assert_is_rows(corpus: Corpus) -> None:
    assert corpus.label_names == ("a", "b", "c")
    assert [list(split.texts) for _, split in corpus.splits()] == [
        ['one "quoted",\nand more', "two ä", "three"],
        ["four"],
        ["five"],
    ]
    assert [label_lists(corpus, split) for _, split in corpus.splits()] == [
        [["a", "b"], ["a"], ["a", "c"]],
        [["b"]],
        [[]],
    ]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def single_labels(count: int) -> str:
    return "text,labels\n" + "".join(f"document {i},{'abc'[i % 3]}\n" for i in range(count))


FEATURES = Features(
    {"text": Value("string"), "labels": List(ClassLabel(names=["c", "b", "a"])), "split": Value("string")}
)


def as_dataset(rows: list[dict]) -> Dataset:
    return Dataset.from_list(rows, features=FEATURES)


def forge(path: Path, **arrays: np.ndarray) -> None:
    """Replace arrays of a file of the store, with checksums that fit."""
    stored = open_arrays(path, None)
    with ArrayWriter(path, "") as writer:
        writer.facts |= stored.facts
        for name, values in (dict(stored.arrays) | arrays).items():
            if not name.startswith("gap "):
                writer.extend(name, values)
