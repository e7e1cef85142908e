import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abalone.data.labels import (
    BitVectors,
    LabelLists,
    differing_by_case,
    find_separators,
    in_order,
    read_cell,
    split_cell,
)


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, ()),
        ("", ""),
        ("  a; b ", "a; b"),
        (["a", " b "], ("a", "b")),
        (["a", "", "  "], ("a",)),
        ([], ()),
        (7, ("7",)),
        ([3, 10], ("3", "10")),
        ('["a", "b, c"]', ("a", "b, c")),
        ("['a', \"b's\"]", ("a", "b's")),  # as pandas writes a list to CSV
        ("[]", ()),
        ("[1, 2]", ("1", "2")),
        ("('joy',)", ("joy",)),  # and a tuple, or a set
        ("('a', \"b's\")", ("a", "b's")),
        ("(1, 2)", ("1", "2")),
        ("{'b', 'a'}", ("a", "b")),
        ("frozenset({'a'})", ("a",)),
        ("set()", ()),
        ("()", ()),
        ("(new)", "(new)"),  # but a name may stand in brackets
        ("(1)", "(1)"),
        ("(a), (b)", "(a), (b)"),
        ("('a' 'b')", "('a' 'b')"),
        ("{a}", "{a}"),
        ("(" * 5000 + ")" * 5000, "(" * 5000 + ")" * 5000),
        ("{[1]}", "{[1]}"),
    ],
)
def test_cells_in_all_their_forms(value, cell):
    assert read_cell(value) == cell


@pytest.mark.parametrize("value", [1.5, True, {"a": 1}, [None], [["a"]], [True], ["a", 2.0], "{'a': 1}", "(1.5,)"])
def test_what_is_neither_string_nor_integer_is_no_label(value):
    with pytest.raises(ValueError, match="neither a string nor an integer"):
        read_cell(value)


@pytest.mark.parametrize("text", ["[urgent]", "['a' 'b']", "['a'\n 'b']", "['a', 'b]", "[f('a')]"])
def test_what_only_looks_like_a_list_is_refused(text):
    with pytest.raises(ValueError, match="look like a list"):
        read_cell(text)
    assert read_cell(text, lists_in_text=False) == text


@pytest.mark.parametrize("separator", [";", "|", ",", "\t"])
def test_separators_are_found(separator):
    cells = [f"a{separator}b", "a", "", f"b{separator} c"]
    assert find_separators(cells) == [separator]


def test_white_space_is_never_assumed():
    assert find_separators(["machine learning", "computer vision"]) == []


def test_the_separator_that_cuts_no_names_wins():
    assert find_separators(["food, drink; travel", "travel", "food, drink"]) == [";", ","]


def test_one_odd_cell_does_not_decide():
    assert find_separators(["a,b", "a,c", "b,c", "c,a,b", "a|b"])[0] == ","


def test_lists_are_not_searched_for_separators():
    assert find_separators([("a;b", "c"), ("d",)]) == []


@pytest.mark.parametrize(
    ("cell", "separator", "names"),
    [
        ("a; b;;c;", ";", ("a", "b", "c")),
        ("a  b\tc", " ", ("a", "b", "c")),
        ("a, b", None, ("a, b",)),
        ("a, b", "", ("a, b",)),
        ("", ";", ()),
        ("", None, ()),
        (("a;b", "c"), ";", ("a;b", "c")),
        ("a::b", "::", ("a", "b")),
    ],
)
def test_cells_are_split(cell, separator, names):
    assert split_cell(cell, separator) == names


@given(
    st.lists(st.lists(st.text("abcXYZ é", min_size=1).filter(str.strip), max_size=4), min_size=1),
    st.sampled_from(";|,\t"),
)
def test_joining_and_splitting_give_the_names_back(documents, separator):
    cells = [read_cell(separator.join(names)) for names in documents]
    found = find_separators(cells)
    assert found == ([separator] if any(len(names) > 1 for names in documents) else [])
    stripped = [tuple(name.strip() for name in names) for names in documents]
    assert [split_cell(cell, found[0] if found else None) for cell in cells] == stripped


def are_bit_vectors(cells) -> bool:
    seen = BitVectors()
    for cell in cells:
        seen.see(cell)
    return seen.all


def test_bit_vectors_are_told_from_lists_of_labels():
    assert are_bit_vectors([("0", "1", "1"), ("1", "0", "0")])
    assert not are_bit_vectors([("0", "1"), ("1", "0")])  # may well be labels called 0 and 1
    assert not are_bit_vectors([("0", "1", "1"), ("1",)])
    assert not are_bit_vectors([("0", "1", "2"), ("1", "1", "0")])
    assert not are_bit_vectors(["a", "b"])
    assert not are_bit_vectors([])


def test_names_are_sorted_and_numbers_by_value():
    assert in_order(["b", "B", "a", "a"]) == ["B", "a", "b"]
    assert in_order(["10", "9", "-1"]) == ["-1", "9", "10"]
    assert in_order(["10", "9", "x"]) == ["10", "9", "x"]


def test_names_that_differ_by_case():
    assert differing_by_case(["AI", "ML", "ai", "Straße", "STRASSE"]) == [("AI", "ai"), ("Straße", "STRASSE")]


def test_label_matrix():
    matrix = LabelLists.of([("c", "a"), (), ("b",)]).matrix(["a", "b", "c"])
    assert matrix.dtype == np.int32
    assert matrix.has_sorted_indices
    assert matrix.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert LabelLists.of([]).matrix(["a"]).shape == (0, 1)


@pytest.mark.parametrize(
    "text", ["[" * 5000 + "]" * 5000, f"[{'9' * 5000}", "[" + "-" * 100_000 + "1]", "['a'\0]", "[(1,]"]
)
def test_what_only_looks_like_a_list_is_told_in_short(text):
    with pytest.raises(ValueError, match="look like a list but are not one") as caught:
        read_cell(text if text.endswith("]") else f"{text}x]")
    assert len(str(caught.value)) < 200


def test_a_backslash_in_a_list_in_a_text_is_no_reason_for_advice():
    assert read_cell(r"['a\d']") == (r"a\d",)


def test_a_label_that_is_anything_else_is_told_in_short():
    deep: list[object] = []
    for _ in range(900):
        deep = [deep]
    with pytest.raises(ValueError, match="neither a string nor an integer") as caught:
        read_cell([deep])
    assert len(str(caught.value)) < 200


def test_names_of_thousands_of_digits_are_names():
    assert in_order(["9" * 5000, "10", "9"]) == ["10", "9", "9" * 5000]
