from pathlib import Path

import numpy as np
import pytest
from handmade import as_jsonl, label_lists, single_labels, write

from abalone import load_corpus
from abalone.data.corpus import gini
from abalone.errors import DataError

FEW = (
    "There are only {} documents: scores will change by many points from one split to the next. Label more before "
    "you trust them."
)
ONE_EACH = (
    "No document carries more than one label. If some should, check label_separator= (--label-separator); if one "
    "label excludes the others, `abalone predict --top 1` gives the most probable."
)
REPEATED = "3 of 3 validation texts are also training texts, so scores on them will look too good."


def test_without_splits_three_are_made(tmp_path):
    path = write(tmp_path / "a.csv", single_labels(90))
    corpus = load_corpus(path, seed=3)
    assert [len(split) for _, split in corpus.splits()] == [72, 9, 9]
    assert [split.labels.sum(axis=0).tolist() for _, split in corpus.splits()] == [[24] * 3, [3] * 3, [3] * 3]
    assert sorted(text for _, split in corpus.splits() for text in split.texts) == sorted(
        f"document {i}" for i in range(90)
    )
    assert all(text.endswith(tuple("0123456789")) for text in corpus.train.texts)
    assert corpus.provenance["split"] == {
        "origin": "stratified",
        "seed": 3,
        "shares": [0.8, 0.1, 0.1],
        "exceptions": {},
        "too_few_documents": [],
    }
    again, other = load_corpus(path, seed=3), load_corpus(path, seed=4)
    assert again.test.texts == corpus.test.texts
    assert other.test.texts != corpus.test.texts


def test_texts_stay_with_their_labels_in_splits_that_are_made(tmp_path):
    corpus = load_corpus(write(tmp_path / "a.csv", single_labels(60)))
    for _, split in corpus.splits():
        for text, labels in zip(split.texts, label_lists(corpus, split), strict=True):
            assert labels == ["abc"[int(text.split()[1]) % 3]]


def test_labels_that_cannot_be_everywhere_are_listed(tmp_path):
    # Every document of `wide` has a label of its own, which training needs.
    rows = [{"text": f"w{i}", "labels": ["wide", f"own{i}"]} for i in range(3)]
    rows += [{"text": f"d{i}", "labels": ["good"]} for i in range(30)]
    corpus = load_corpus(write(tmp_path / "a.jsonl", as_jsonl(rows)))
    split = corpus.provenance["split"]
    assert split["exceptions"] == {"validation": ["wide"], "test": ["wide"]}
    assert split["too_few_documents"] == ["own0", "own1", "own2"]
    assert "Labels with fewer than 3 documents, so not in every split: own0, own1, own2." in corpus.notes
    assert any(note.startswith("Labels missing from validation") for note in corpus.notes)
    assert not any(note.startswith("Labels in one split only") for note in corpus.notes)  # no label is told of twice
    assert corpus.unseen_labels == ()


def test_validation_is_split_off_from_training(tmp_path):
    write(tmp_path / "train.csv", single_labels(90))
    write(tmp_path / "test.csv", "text,labels\nx,a\ny,b\nz,c\n")
    corpus = load_corpus(tmp_path)
    assert [len(split) for _, split in corpus.splits()] == [81, 9, 3]
    assert list(corpus.test.texts) == ["x", "y", "z"]
    assert "No validation split was given: a stratified tenth of train was split off." in corpus.notes
    assert corpus.provenance["split"]["validation"] == "stratified from train"


def test_test_may_be_missing(tmp_path):
    write(tmp_path / "train.csv", single_labels(6))
    write(tmp_path / "val.csv", single_labels(3))
    corpus = load_corpus(tmp_path)
    assert [len(split) for _, split in corpus.splits()] == [6, 3, 0]
    assert corpus.test.labels.shape == (0, 3)
    assert corpus.notes == (FEW.format(9), ONE_EACH, "No test split was given: test is empty.", REPEATED)


def test_training_may_not_be_missing(tmp_path):
    path = write(tmp_path / "a.csv", "text,labels,split\nx,a,val\ny,a,test\n")
    with pytest.raises(DataError, match=r"no document is in the training split \(given by column 'split'\)"):
        load_corpus(path)


def test_empty_files_are_noted(tmp_path):
    write(tmp_path / "train.csv", single_labels(6))
    write(tmp_path / "val.csv", single_labels(3))
    write(tmp_path / "test.csv", "text,labels\n")
    assert load_corpus(tmp_path).notes == (
        "test.csv holds no documents.",
        FEW.format(9),
        ONE_EACH,
        "No test split was given: test is empty.",
        REPEATED,
    )


def test_unseen_labels_have_no_column_and_are_named(tmp_path):
    path = write(tmp_path / "a.csv", "text,labels,split\nx,a,train\ny,a;new,val\nz,new;newer,test\n")
    with pytest.warns(UserWarning, match="Labels without a training document.*: new, newer") as caught:
        corpus = load_corpus(path)
    assert caught[0].filename == __file__
    assert corpus.label_names == ("a",)
    assert corpus.unseen_labels == ("new", "newer")
    assert [label_lists(corpus, split) for _, split in corpus.splits()] == [[["a"]], [["a"]], [[]]]
    assert "Labels without a training document, left out of training and scoring: new, newer." in corpus.notes


def test_labels_of_one_split_are_named(tmp_path):
    rows = [{"text": "x", "labels": [f"l{i:02}" for i in range(12)] + ["a"], "split": "train"}]
    rows += [{"text": "y", "labels": ["a"], "split": "val"}, {"text": "z", "labels": ["a"], "split": "test"}]
    notes = load_corpus(write(tmp_path / "a.jsonl", as_jsonl(rows))).notes
    listed = ", ".join(f"l{i:02} (train)" for i in range(10))
    assert notes == (FEW.format(3), f"Labels in one split only: {listed} and 2 more.")


def told(tmp_path, cells: list[str]) -> list[str]:
    """The notes on documents with these labels that are about there being very little of something."""
    rows = [f"text {number},{cell}" for number, cell in enumerate(cells)]
    notes = load_corpus(write(tmp_path / "a.csv", "\n".join(["text,labels", *rows]))).notes
    return [note for note in notes if note.startswith(("There ", "No document carries more"))]


def test_little_of_something_is_told_once(tmp_path):
    assert told(tmp_path, ["a;b", "b", "c;a", "c"] * 25) == []
    assert told(tmp_path, ["a;b", "b", "c;a"] * 5) == [FEW.format(15)]
    assert told(tmp_path, ["a", "b", ""] * 40) == [ONE_EACH]
    only = "There is only one label, 'a', so a model can only learn which documents have it: "
    assert told(tmp_path, ["a", "", ""] * 40) == [only + "80 do not."]
    assert told(tmp_path, ["a"] * 120) == [only + "here all do. Add documents without it."]


def copies(tmp_path, count: int = 120) -> Path:
    """Documents of which every third is the one before it with other white space."""
    texts = [f"text {number}" if number % 3 else f" text\t{number + 1} " for number in range(count)]
    return write(
        tmp_path / "a.jsonl", as_jsonl([{"text": t, "labels": ["ab"[i % 2], "c"]} for i, t in enumerate(texts)])
    )


def test_copies_stay_in_one_of_the_splits_that_are_made(tmp_path):
    corpus = load_corpus(copies(tmp_path), seed=2)
    parts = [{" ".join(text.split()) for text in split.texts} for _, split in corpus.splits()]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 80
    assert [abs(len(split) - size) <= 3 for (_, split), size in zip(corpus.splits(), (96, 12, 12), strict=True)]
    assert corpus.provenance["split"]["copies_together"] is True
    assert (
        "Texts that are copies of another: 40. Copies are kept in the same split; drop_duplicates=True "
        "(--drop-duplicates) keeps one of each." in corpus.notes
    )
    assert not any("also training texts" in note for note in corpus.notes)
    assert load_corpus(tmp_path / "a.jsonl", seed=2).test.texts == corpus.test.texts


def test_copies_stay_on_one_side_where_validation_is_split_off(tmp_path):
    copies(tmp_path).rename(tmp_path / "train.jsonl")
    write(tmp_path / "test.csv", "text,labels\nx,a\n")
    corpus = load_corpus(tmp_path)
    kept, held_out = ({" ".join(text.split()) for text in split.texts} for split in (corpus.train, corpus.validation))
    assert held_out
    assert not kept & held_out


@pytest.mark.parametrize("frequencies", [[4], [2, 2, 2], [5, 1, 0, 2], [0, 0, 7]])
def test_gini_is_half_the_mean_absolute_difference_over_the_mean(frequencies):
    counts = np.array(frequencies)
    differences = np.abs(counts[:, None] - counts)
    assert gini(counts) == pytest.approx(differences.mean() / 2 / counts.mean())


def test_gini_of_labels_without_any_document_is_0():
    assert gini(np.zeros(3)) == gini(np.zeros(0)) == 0
