"""Copies of a text: in several splits, or left out."""

import json
from dataclasses import replace

import numpy as np
import pytest
from handmade import as_jsonl, label_lists, write

from abalone import load_corpus
from abalone.data.documents import Documents, without_copies
from abalone.data.hashes import text_hashes
from abalone.data.notes import repeated_notes
from abalone.data.store import MappedTexts, TextWriter

TEXTS = ["a", "b", "a", "c", "c", "b", "a ", "A"]
ROWS = {"train": np.array([0, 1]), "validation": np.array([2, 3]), "test": np.array([4, 5, 6, 7, 0])}
NOTES = [
    "1 of 2 validation texts are also training texts, so scores on them will look too good.",
    "3 of 5 test texts are also training texts, so scores on them will look too good.",
]


def test_texts_that_are_the_same_up_to_white_space_are_counted():
    hashes = text_hashes(TEXTS)
    assert repeated_notes(hashes, ROWS) == NOTES
    assert repeated_notes(hashes, {**ROWS, "validation": np.array([], dtype=np.int64), "test": np.array([3])}) == []


def test_a_corpus_tells_of_copies_in_splits_that_were_given(tmp_path):
    rows = [("same", "ab"[number % 2], ("train", "val", "test")[number % 3]) for number in range(60)]
    path = write(tmp_path / "a.csv", "\n".join(["text,labels,split", *map(",".join, rows)]))
    assert (
        "20 of 20 test texts are also training texts, so scores on them will look too good." in load_corpus(path).notes
    )


def documents() -> Documents:
    made = Documents()
    for number, text in enumerate(TEXTS):
        made.add(
            text, [["x", "x"], ["y"], ["z", "x"], ["y"], ["y"], ["y"], ["w"], []][number], ("train", "test")[number % 2]
        )
    return made


def test_the_first_of_copies_stays_and_takes_all_their_labels():
    kept = without_copies(documents())
    assert list(kept.texts) == ["a", "b", "c", "A"]
    assert list(kept.labels) == [("x", "z", "w"), ("y",), ("y",), ()]
    assert list(kept.splits) == ["train", "test", "test", "test"]
    assert kept.notes == ["Duplicate texts left out: 4; 1 of the remaining texts took labels from a copy."]
    assert (kept.text_hashes() == text_hashes(kept.texts)).all()
    again = without_copies(kept)
    assert again is kept


def test_copies_among_mapped_texts(tmp_path):
    with TextWriter(tmp_path / "texts") as writer:
        for text in TEXTS:
            writer.append(text)
    kept = without_copies(replace(documents(), texts=MappedTexts(tmp_path / "texts")))
    assert isinstance(kept.texts, MappedTexts)
    assert list(kept.texts) == ["a", "b", "c", "A"]


@pytest.mark.parametrize("large", [False, True])
def test_a_table_with_one_label_a_row_becomes_one_with_all_labels_of_a_text(tmp_path, monkeypatch, large):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    if large:
        monkeypatch.setattr("abalone.data.load.IN_MEMORY", -1)
    rows = [{"text": f"text {number // 2}", "labels": ["ab"[number % 2]]} for number in range(80)]
    path = write(tmp_path / "a.jsonl", as_jsonl(rows))
    corpus = load_corpus(path, drop_duplicates=True)
    assert sum(len(split) for _, split in corpus.splits()) == 40
    assert all(labels == ["a", "b"] for _, split in corpus.splits() for labels in label_lists(corpus, split))
    assert json.loads(json.dumps(corpus.provenance))["drop_duplicates"] is True
    assert "copies_together" not in corpus.provenance["split"]
    together = load_corpus(path)
    assert sum(len(split) for _, split in together.splits()) == 80
    assert len({text for _, split in together.splits() for text in set(split.texts)}) == 40
    assert sum(len(set(split.texts)) for _, split in together.splits()) == 40
