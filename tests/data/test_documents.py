import numpy as np
import pytest
from handmade import ROWS, as_jsonl, label_lists, single_labels, write
from scipy.sparse import csr_array

from abalone import load_corpus
from abalone.errors import DataError


def test_windows_files(tmp_path):
    corpus = load_corpus(write(tmp_path / "a.csv", b"\xef\xbb\xbf" + single_labels(9).replace("\n", "\r\n").encode()))
    assert corpus.label_names == ("a", "b", "c")
    assert not any("\r" in text for _, split in corpus.splits() for text in split.texts)


def test_several_text_columns_are_joined(tmp_path):
    path = write(tmp_path / "a.csv", "title,body,labels,split\nT,B,a,train\n,only body,a,val\nonly title,,a,test\n")
    corpus = load_corpus(path, text_column=["title", "body"])
    assert [list(split.texts) for _, split in corpus.splits()] == [["T\nB"], ["only body"], ["only title"]]
    assert corpus.provenance["columns"] == {"text": ["title", "body"], "labels": ["labels"], "split": "split"}


@pytest.mark.parametrize(
    ("cells", "separator"),
    [
        (["a; b", "b"], ";"),
        (["a|b", "b"], "|"),
        (['"a, b"', "b"], ","),
        (["a\tb", "b"], "\t"),
        (['"[""a"", ""b""]"', '"[""b""]"'], None),
        (["\"['a', 'b']\"", "['b']"], None),
    ],
)
def test_delimited_labels(tmp_path, cells, separator):
    path = write(tmp_path / "a.csv", f"text,labels,split\nx,{cells[0]},train\ny,{cells[1]},test\nz,,val\n")
    corpus = load_corpus(path)
    assert corpus.label_names == ("a", "b")
    assert [label_lists(corpus, split) for _, split in corpus.splits()] == [[["a", "b"]], [[]], [["b"]]]
    assert corpus.provenance["label_separator"] == separator


def test_the_separator_is_found_once_for_all_files(tmp_path):
    write(tmp_path / "train.csv", 'text,labels\nx,"food, drink"\ny,travel\n')
    write(tmp_path / "test.csv", 'text,labels\nz,"food, drink; travel"\n')
    corpus = load_corpus(tmp_path)
    assert corpus.label_names == ("food, drink", "travel")
    assert "Labels are split at ';', though ',' occur too; label_separator= (--label-separator) changes that." in (
        corpus.notes
    )


@pytest.mark.parametrize(
    ("separator", "names"), [(" ", ("b", "b,", "c")), ("", ("b c", "b, c")), (",", ("b", "b c", "c"))]
)
def test_the_separator_can_be_given(tmp_path, separator, names):
    path = write(tmp_path / "a.csv", 'text,labels,split\nx,"b, c",train\ny,b c,train\nz,,test\nw,,val\n')
    assert load_corpus(path, label_separator=separator).label_names == names


@pytest.mark.parametrize(
    ("cell", "separator", "occurs"),
    [
        ("b; c", "|", False),
        ("b; c", ";", True),
        ("b;", ";", True),
        ("b c", " ", True),
        ("b", " ", False),
        ("", ";", False),
        ("b", "", None),
    ],
)
def test_a_separator_that_never_occurs_is_told(tmp_path, cell, separator, occurs):
    path = write(tmp_path / "a.csv", f'text,labels,split\nx,"{cell}",train\ny,a,train\nz,a,test\nw,a,val\n')
    told = f"The label separator {separator!r} occurs in no label, so each is taken whole."
    assert (told in load_corpus(path, label_separator=separator).notes) is (occurs is False)


def test_labels_that_are_joined_by_an_unusual_character_are_told(tmp_path):
    names = ["refund", "delivery", "billing", "refund/delivery", "billing/refund", "delivery/billing", "and/or"]
    rows = [f"text {i},{name},{split}" for split in ("train", "val", "test") for i, name in enumerate(names)]
    path = write(tmp_path / "a.csv", "\n".join(["text,labels,split", *rows]))
    told = "3 labels look like several joined by '/', such as 'refund/delivery': label_separator='/'"
    assert any(note.startswith(told) for note in load_corpus(path).notes)
    corpus = load_corpus(path, label_separator="/")
    assert corpus.label_names == ("and", "billing", "delivery", "or", "refund")
    assert not any("joined" in note for note in corpus.notes)


def test_labels_that_only_hold_such_a_character_are_not_told_of(tmp_path):
    names = ["read/write", "input/output", "a+b", "a", "b", "cs.lg", "research & development"]
    rows = [f"text {i},{name},{split}" for split in ("train", "val", "test") for i, name in enumerate(names)]
    path = write(tmp_path / "a.csv", "\n".join(["text,labels,split", *rows]))
    assert not any("joined" in note for note in load_corpus(path).notes)


def test_names_with_commas_are_quoted_in_notes(tmp_path):
    rows = ["x,food,train", 'y,"food, drink",train', 'z,"Food, drink",test', "w,food,val"]
    path = write(tmp_path / "a.csv", "\n".join(["text,labels,split", *rows]))
    with pytest.warns(UserWarning, match="left out of training and scoring: 'Food, drink'"):
        notes = load_corpus(path, label_separator=";").notes
    assert (
        "Labels that differ only by case are kept apart: 'Food, drink'/'food, drink'; merge_case=True (--merge-case) "
        "merges them." in notes
    )
    assert "Labels in one split only: 'food, drink' (train)." in notes


def test_labels_that_may_mean_none_are_kept_and_told(tmp_path):
    cells = ["NaN", "a; NaN", "N/A", "none", "NULL", "a", "nano", "none of these"]
    rows = [f"text {number},{cell}" for number, cell in enumerate(cells * 3)]
    corpus = load_corpus(write(tmp_path / "a.csv", "\n".join(["text,labels", *rows])))
    assert corpus.label_names == ("N/A", "NULL", "NaN", "a", "nano", "none", "none of these")
    assert [note for note in corpus.notes if "means no label" in note] == [
        f"Documents that carry the label {name!r}: {number}. If it means no label, leave those cells empty."
        for name, number in (("N/A", 3), ("NULL", 3), ("NaN", 6), ("none", 3))
    ]


def test_tables_as_spreadsheets_write_them(tmp_path):
    told = write(tmp_path / "told.csv", "text,a,b\n" + "x,TRUE,FALSE\ny,FALSE,TRUE\nz,TRUE,TRUE\n" * 10)
    assert load_corpus(told).label_names == ("a", "b")
    blank = write(tmp_path / "blank.csv", "text,a,b\n" + "x,1,\ny, ,TRUE\nz,1,1\n" * 10)
    for corpus in (load_corpus(blank), load_corpus(blank, label_column=["a", "b"])):
        assert [sum(split.labels.sum() for _, split in corpus.splits()), corpus.label_names] == [40, ("a", "b")]
        assert "Blank cells in 0/1 columns, read as 0: 20 (b 10, a 10)." in corpus.notes
    crossed = write(tmp_path / "crossed.csv", "text,a,b\nx,x,\ny,,x\n")
    with pytest.raises(DataError, match=r"crossed\.csv:2: column 'a' holds 'x' where 0 or 1 is expected"):
        load_corpus(crossed, label_column=["a", "b"])


def test_a_later_cell_in_columns_that_were_guessed_may_be_blank_but_not_anything(tmp_path):
    rows = ["x,1,0"] * 1500 + ["y,,1"]
    path = write(tmp_path / "a.csv", "\n".join(["text,a,b", *rows]))
    assert "Blank cells in 0/1 columns, read as 0: 1 (a 1)." in load_corpus(path).notes
    write(path, path.read_text() + "\nz,?,1")
    with pytest.raises(DataError, match=r"a\.csv:1503: column 'a' holds '\?' where 0 or 1 is expected"):
        load_corpus(path)


def test_labels_are_merged_whatever_their_case_where_that_is_asked_for(tmp_path):
    rows = [{"text": f"t{i}", "labels": cell} for i, cell in enumerate([["Joy", "joy"], ["JOY", "Sad"], ["sad"]] * 4)]
    path = write(tmp_path / "a.jsonl", as_jsonl(rows))
    corpus = load_corpus(path, merge_case=True)
    assert corpus.label_names == ("joy", "sad")
    assert [split.labels.max() for _, split in corpus.splits()] == [1, 1, 1]
    assert sum(split.labels.sum(axis=0) for _, split in corpus.splits()).tolist() == [8, 8]
    assert corpus.provenance["merge_case"] is True
    assert not any("differ only by case" in note for note in corpus.notes)
    assert "merge_case" not in load_corpus(path).provenance
    wide = write(tmp_path / "wide.csv", "text,Joy,joy,none\n" + "x,1,0,0\ny,0,1,0\nz,0,0,0\n" * 3)
    assert load_corpus(wide, merge_case=True).label_names == ("joy",)


def test_tuples_and_sets_in_a_cell_are_lists(tmp_path):
    cells = ["\"('joy',)\"", "\"('joy', 'sad')\"", "\"{'sad'}\"", "set()", "()"]
    path = write(tmp_path / "a.csv", "text,labels\n" + "".join(f"t{i},{cells[i % 5]}\n" for i in range(20)))
    assert load_corpus(path).label_names == ("joy", "sad")


def test_brackets_are_text_where_a_separator_is_given(tmp_path):
    path = write(tmp_path / "a.csv", "text,labels,split\nx,[new]; [urgent],train\ny,[new],val\nz,[urgent],test\n")
    with pytest.raises(DataError, match=r"a\.csv:2: .*look like a list"):
        load_corpus(path)
    assert load_corpus(path, label_separator=";").label_names == ("[new]", "[urgent]")


def test_labels_of_mixed_case_and_twice_in_a_row(tmp_path):
    path = write(
        tmp_path / "a.csv", "text,labels,split\nx,AI; ai;AI ;;,train\ny,ai,train\nz,AI,val\nw,ML,train\nv,ML,test\n"
    )
    corpus = load_corpus(path)
    assert corpus.label_names == ("AI", "ML", "ai")
    assert label_lists(corpus, corpus.train)[0] == ["AI", "ai"]
    assert corpus.train.labels.data.tolist() == [1, 1, 1, 1]
    assert "Documents that repeat a label (it counts once): 1." in corpus.notes
    assert any(note.startswith("Labels that differ only by case are kept apart: AI/ai;") for note in corpus.notes)


def test_matrices_are_int32_csr_with_sorted_indices(tmp_path):
    for _, split in load_corpus(write(tmp_path / "a.csv", single_labels(30))).splits():
        assert isinstance(split.labels, csr_array)
        assert split.labels.dtype == np.int32
        assert split.labels.has_sorted_indices
        assert set(split.labels.data.tolist()) == {1}


def test_integers_are_sorted_as_numbers(tmp_path):
    rows = [{"text": "x", "labels": [10, 9, 2], "split": "train"}, {"text": "y", "labels": 9, "split": "test"}]
    corpus = load_corpus(write(tmp_path / "a.jsonl", as_jsonl([*rows, {**rows[1], "split": "val"}])))
    assert corpus.label_names == ("2", "9", "10")


def test_columns_of_0_and_1(tmp_path):
    path = write(tmp_path / "a.csv", "abstract,cs.ai,cs.lg,cmp-lg,split\nx,1,1,0,train\ny,0,1,0,val\nz,0,0,0,test\n")
    corpus = load_corpus(path)
    assert corpus.label_names == ("cs.ai", "cs.lg")
    assert [label_lists(corpus, split) for _, split in corpus.splits()] == [[["cs.ai", "cs.lg"]], [["cs.lg"]], [[]]]
    assert "No document carries 1 of the labels: cmp-lg." in corpus.notes
    assert any("the 3 columns of 0 and 1 are taken as labels" in note for note in corpus.notes)
    assert load_corpus(path, label_column=["cs.lg"]).label_names == ("cs.lg",)


def test_vectors_of_0_and_1_have_no_names(tmp_path):
    rows = [{"text": "x", "labels": [0, 1, 1]}, {"text": "y", "labels": [1, 0, 0]}]
    with pytest.raises(DataError, match="0/1 vectors"):
        load_corpus(write(tmp_path / "a.jsonl", as_jsonl(rows)))


def test_documents_without_labels_are_counted(tmp_path):
    rows = [*ROWS, {"text": "x", "labels": None, "split": "train"}, {"text": "y", "split": "train"}]
    corpus = load_corpus(write(tmp_path / "a.jsonl", as_jsonl(rows)))
    assert len(corpus.train) == 5
    assert corpus.stats().unlabelled_documents == 3
    assert "Documents without labels: 3." in corpus.notes


def test_no_labels_at_all_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no document has a label"):
        load_corpus(write(tmp_path / "a.csv", "text,labels\nx,\ny,\n"))
    with pytest.raises(DataError, match="no training document has a label"):
        load_corpus(write(tmp_path / "a.csv", "text,labels,split\nx,,train\ny,a,test\n"))
