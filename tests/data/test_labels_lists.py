import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from abalone.data.labels import LabelCells, LabelLists, find_separators, in_order, split_cell

ROWS = [("b", "a"), (), ("a", "c", "a"), ("c",)]
documents = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=5).map(tuple), max_size=12)


def matrix_of(rows, names) -> csr_array:
    """Return the labels of documents as 0/1, [rows, names], document by document."""
    columns = [sorted({names.index(name) for name in row}) for row in rows]
    bounds = np.cumsum([0, *map(len, columns)], dtype=np.int32)
    indices = np.array([column for own in columns for column in own], dtype=np.int32)
    return csr_array((np.ones(len(indices), dtype=np.int32), indices, bounds), shape=(len(rows), len(names)))


def test_they_are_a_sequence_of_tuples():
    lists = LabelLists.of(ROWS)
    assert list(lists) == ROWS
    assert (lists[-1], lists[1:3]) == (("c",), ROWS[1:3])
    with pytest.raises(IndexError, match="document 4 of 4"):
        lists[4]


@given(documents, st.lists(st.sampled_from("abcdxy"), unique=True))
def test_matrices_are_those_of_plain_lists(rows, names):
    lists = LabelLists.of(rows)
    known = [[name for name in row if name in names] for row in rows]
    for matrix, wanted in ((lists.matrix(names), known), (lists.matrix(lists.carried()), rows)):
        columns = names if wanted is known else in_order(name for row in rows for name in row)
        expected = matrix_of(wanted, columns)
        assert matrix.shape == expected.shape
        for part in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(matrix, part), getattr(expected, part))
            assert getattr(matrix, part).dtype == np.int32


@given(documents, st.data())
def test_some_of_them(rows, data):
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), unique=True)) if rows else []
    lists = LabelLists.of(rows)
    assert list(lists.select(np.array(chosen, dtype=np.int64))) == [rows[row] for row in chosen]
    assert lists.lengths().tolist() == [len(row) for row in rows]


def test_lists_over_arrays_are_fixed():
    lists = LabelLists(["x", "y"], *LabelLists.of([("a", "b"), ("b",)]).arrays())
    assert list(lists) == [("x", "y"), ("y",)]
    with pytest.raises(TypeError, match="fixed"):
        lists.append(["x"])


cells = st.lists(st.one_of(st.text("ab;,| ", max_size=8), st.tuples(st.sampled_from("ab;"))), max_size=8)


@given(cells, st.sampled_from([None, ";", "", " "]))
def test_cells_are_split_as_if_all_were_at_hand(cells, separator):
    lists = LabelLists()
    with LabelCells(separator, lists) as waiting:
        for cell in cells:
            waiting.append(cell)
        found = waiting.split()
    expected = find_separators(cells) if separator is None else []
    assert found == expected
    used = separator if separator is not None else (expected[0] if expected else None)
    assert list(lists) == [split_cell(cell, used) for cell in cells]
