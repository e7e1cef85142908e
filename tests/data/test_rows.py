import json
from collections.abc import Iterator

import pytest

from abalone.data.rows import Columns, choose_columns, indicator, require_columns
from abalone.data.tables import JsonTable, Record, Table
from abalone.errors import DataError


@pytest.fixture
def table(tmp_path):
    def write(*rows: dict[str, object], split: str | None = None) -> JsonTable:
        path = tmp_path / "a.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return JsonTable(path, split)

    return write


@pytest.mark.parametrize(
    "text", ["text", "Abstract", "BODY", "sentence", "document", "content", "Message", "description"]
)
@pytest.mark.parametrize("labels", ["labels", "Label", "TOPICS", "tags", "categories"])
def test_usual_names_are_found_in_any_case(table, text, labels):
    columns = choose_columns(table({"id": 1, labels: "a", text: "x"}))
    assert columns == Columns((text,), (labels,))
    assert columns.names() == (text, labels)


@pytest.mark.parametrize("text", ["Comment Text", "comment", "TWEET_TEXT", "full-text", " Text ", "Review"])
def test_usual_names_are_found_however_their_words_are_joined(table, text):
    assert choose_columns(table({"id": 1, text: "x", "labels": "a"})).text == (text,)


def test_two_columns_that_end_in_text_leave_it_open(table):
    with pytest.raises(DataError, match="no column for the text"):
        choose_columns(table({"question_text": "", "answer_text": "", "labels": ""}))
    assert choose_columns(table({"question_text": "", "text": "", "labels": ""})).text == ("text",)
    rows = table({"Question Text": "", "answer_text": "", "Data-Split": "", "labels": ""})
    assert choose_columns(rows, text_column="question_text", split_column="data split").names() == (
        "Question Text",
        "labels",
        "Data-Split",
    )


def test_the_first_of_the_usual_names_wins_and_the_others_are_noted(table):
    columns = choose_columns(table({"body": "", "tags": "", "Text": "", "labels": ""}))
    assert (columns.text, columns.labels) == (("Text",), ("labels",))
    assert columns.notes == (
        "Column 'Text' is used; 'body' would fit too.",
        "Column 'labels' is used; 'tags' would fit too.",
    )


def test_titles_are_no_text_of_their_own_and_descriptions_come_last(table):
    assert choose_columns(table({"description": "", "body": "", "title": "", "labels": ""})).text == ("body",)
    with pytest.raises(DataError, match="no column for the text"):
        choose_columns(table({"title": "", "subject": "", "labels": ""}))


def test_columns_can_be_named(table):
    rows = table({"Title": "", "summary": "", "text": "", "field": "", "fold": "", "labels": "", "split": ""})
    columns = choose_columns(rows, text_column=["title", "summary"], label_column="field", split_column="fold")
    assert columns == Columns(("Title", "summary"), ("field",), split="fold")


def test_several_label_columns_hold_0_and_1(table):
    rows = table({"text": "", "a": 1, "b": 0, "labels": ""})
    assert choose_columns(rows, label_column=["a", "b"]) == Columns(("text",), ("a", "b"), indicators=True)


def test_columns_of_0_and_1_are_labels_where_no_column_is_named_so(table):
    rows = table(
        {"text": "x", "a": 1, "b": "0", "c": True, "year": 1, "id": 7},
        {"text": "y", "a": 0, "b": "1", "c": False, "year": 9},
    )
    columns = choose_columns(rows)
    assert columns.indicators
    assert columns.labels == ("a", "b", "c")
    assert columns.notes[0].endswith(
        "the 3 columns of 0 and 1 are taken as labels; not used: year (holds 9), id (holds 7)."
    )


def test_a_blank_leaves_a_column_a_label_and_others_have_a_reason_why_not(table):
    cells = [{"text": "x", "joy": str(i % 2), "sad": 1, "odd": "1", "empty": " ", "id": i, "none": 0} for i in range(9)]
    cells[4] |= {"joy": "", "sad": None, "odd": "x", "none": float("nan")}
    columns = choose_columns(table(*cells))
    assert columns.labels == ("joy", "sad", "none")
    assert columns.notes[0].endswith("not used: odd (0 and 1 except for 'x' in line 5), empty (blank), id (holds 2).")


def test_only_the_first_of_many_columns_that_are_not_used_are_named(table):
    columns = choose_columns(table({"text": "x", "a": 1, "b": 0, **{f"c{i}": "?" for i in range(30)}}))
    assert columns.notes[0].endswith("c9 (holds '?') and 20 more.")


def test_one_column_of_0_and_1_is_not_enough(table):
    with pytest.raises(DataError, match="no column for the labels") as caught:
        choose_columns(table({"text": "x", "flag": 1}))
    assert caught.value.hint == (
        "Columns: text, flag. Name the column with label_column=. "
        "Or name several columns of 0 and 1 (or TRUE/FALSE, or 1/blank), one per label, with label_column=."
    )


@pytest.mark.parametrize(
    ("value", "yes"),
    [(0, False), (1, True), ("0", False), (" 1 ", True), (1.0, True), (False, False), ("1.0", True)]
    + [("True", True), ("TRUE", True), ("false", False), (" FALSE", False)]
    + [(value, None) for value in (2, "", None, "yes", 0.5, [1], "-1")],
)
def test_indicators(value, yes):
    assert indicator(value) is yes


def test_a_split_column_is_found(table):
    assert choose_columns(table({"text": "", "labels": "", "Split": ""})).split == "Split"


def test_files_that_are_splits_need_no_split_column(table):
    rows = table({"text": "", "labels": "", "split": ""}, split="train")
    columns = choose_columns(rows)
    assert columns.split is None
    assert columns.notes == ("Column 'split' is not used, since each file is a split.",)
    assert choose_columns(rows, split_column="split").split == "split"


def test_misspelt_usual_names_are_suggested(table):
    with pytest.raises(DataError) as caught:
        choose_columns(table({"id": 1, "Txt": "x", "labels": ""}))
    assert "no column for the text" in caught.value.reason
    assert caught.value.hint == "Columns: id, Txt, labels. Did you mean text_column='Txt'?"
    with pytest.raises(DataError, match=r"Did you mean label_column='lables'\?"):
        choose_columns(table({"text": "x", "lables": "a"}))


@pytest.mark.parametrize("option", ["text_column", "label_column", "split_column"])
def test_misspelt_given_names_are_suggested(table, option):
    with pytest.raises(DataError) as caught:
        choose_columns(table({"text": "", "labels": "", "summary": ""}), **{option: "sumary"})
    assert caught.value.reason == f"no column 'sumary' ({option}=)"
    assert caught.value.hint == "Columns: text, labels, summary. Did you mean 'summary'?"


def test_nothing_is_suggested_where_nothing_is_near(table):
    with pytest.raises(DataError) as caught:
        choose_columns(table({"text": "", "labels": ""}), text_column="qqqq")
    assert caught.value.hint == "Columns: text, labels."


def test_other_files_need_the_same_columns(table):
    columns = Columns(("text",), ("labels",))
    with pytest.raises(DataError, match=r"no column 'labels', which the other files have"):
        require_columns(table({"text": "", "label": ""}), columns)
    require_columns(table({"labels": "", "text": ""}), columns)
    require_columns(table(), columns)


def test_an_empty_file_is_an_error(table):
    with pytest.raises(DataError, match="holds no rows"):
        choose_columns(table())


class Name(str):
    """The name of a column; counts how often such names are compared."""

    __hash__ = str.__hash__
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    def lower(self) -> "Name":
        return Name(super().lower())


class Wide(Table):
    """Two rows of a text, something else, and thousands of zeros and ones."""

    columns = tuple(Name(name) for name in ("text", "extra", *(f"label {number}" for number in range(2000))))

    def records(self, columns: object = None) -> Iterator[Record]:
        for value in (0, 1):
            yield Record(value + 1, {name: value if name.startswith("label") else "a" for name in self.columns})


def test_thousands_of_columns_are_not_compared_with_each_other(monkeypatch):
    wide = Wide("wide.csv")
    monkeypatch.setattr(Name, "compared", 0)
    columns = choose_columns(wide)
    require_columns(wide, columns)
    assert len(columns.labels) == 2000
    assert Name.compared < 100 * 2000  # one pass over a list for each column takes two million
