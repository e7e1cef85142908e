"""Texts of validation and test that training has too."""

import numpy as np
import pytest
from handmade import write

from abalone import load_corpus
from abalone.data import repeated
from abalone.data.repeated import repeated_notes
from abalone.data.texts import MappedTexts, TextWriter

TEXTS = ["a", "b", "a", "c", "c", "b", "a ", "A"]
ROWS = {"train": np.array([0, 1]), "validation": np.array([2, 3]), "test": np.array([4, 5, 6, 7, 0])}
NOTES = [
    "1 of 2 validation texts are also training texts, so scores on them flatter.",
    "2 of 5 test texts are also training texts, so scores on them flatter.",
]


def test_texts_that_are_the_same_to_the_letter_are_counted():
    assert repeated_notes(TEXTS, ROWS) == NOTES
    assert repeated_notes(TEXTS, {**ROWS, "validation": np.array([], dtype=np.int64), "test": np.array([3])}) == []


def test_mapped_texts_are_counted_as_long_as_that_is_quick(tmp_path, monkeypatch):
    with TextWriter(tmp_path) as writer:
        for text in TEXTS:
            writer.append(text)
    assert repeated_notes(MappedTexts(tmp_path), ROWS) == NOTES
    monkeypatch.setattr(repeated, "LARGEST", 8)  # there are nine bytes
    assert repeated_notes(MappedTexts(tmp_path), ROWS) == []


@pytest.mark.parametrize("split", [True, False])
def test_a_corpus_tells_of_them_whether_its_splits_were_given_or_made(tmp_path, split):
    rows = [("same", "ab"[number % 2], ("train", "val", "test")[number % 3]) for number in range(60)]
    header = "text,labels,split" if split else "text,labels"
    path = write(tmp_path / "a.csv", "\n".join([header, *(",".join(row if split else row[:2]) for row in rows)]))
    corpus = load_corpus(path)
    size = len(corpus.test)
    assert f"{size} of {size} test texts are also training texts, so scores on them flatter." in corpus.notes
