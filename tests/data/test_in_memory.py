"""Texts and labels as Python objects: what is taken, in which order, and what is refused."""

import numpy as np
import pytest
from scipy.sparse import bsr_array, coo_array, csc_matrix, csr_array

from abalone.data.in_memory import corpus_of, is_matrix, known_labels, label_lists, read_texts
from abalone.data.store import MappedTexts, TextWriter

TEXTS = [f"text {number}" for number in range(40)]
LISTS = [["b", "a"] if number % 2 else ["c"] for number in range(40)]
MATRIX = np.array([[1, 1, 0] if number % 2 else [0, 0, 1] for number in range(40)])


def test_lists_and_matrices_make_the_same_corpus():
    of_lists = corpus_of(TEXTS, LISTS)
    assert of_lists.label_names == ("a", "b", "c")
    for matrix in (MATRIX, MATRIX.astype(bool), MATRIX.astype(float), csc_matrix(MATRIX), coo_array(MATRIX)):
        corpus = corpus_of(TEXTS, matrix, label_names=["a", "b", "c"])
        for (_, one), (_, other) in zip(corpus.splits(), of_lists.splits(), strict=True):
            assert list(one.texts) == list(other.texts)
            assert one.labels.dtype == np.int32
            np.testing.assert_array_equal(one.labels.toarray(), other.labels.toarray())


def test_tables_bring_the_names_of_their_columns():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(MATRIX, columns=["a", "b", "c"])
    of_lists = corpus_of(TEXTS, LISTS, (["v"], [["c"]]))
    for given in (table, table.astype(bool), table.astype("Int64"), table.set_index(table.index[::-1])):
        corpus = corpus_of(TEXTS, given, (["v"], table[["c", "b", "a"]][:1]))
        assert corpus.label_names == of_lists.label_names
        np.testing.assert_array_equal(corpus.train.labels.toarray(), of_lists.train.labels.toarray())
        np.testing.assert_array_equal(corpus.validation.labels.toarray(), of_lists.validation.labels.toarray())
    assert corpus_of(TEXTS, table[["c", "b", "a"]]).label_names == ("c", "b", "a")
    assert corpus_of(TEXTS, table, label_names=["b", "c", "a"]).label_names == ("b", "c", "a")
    with pytest.warns(UserWarning, match="no training document carries b: left out"):
        assert known_labels(table[1:3], ["c", "a"]).toarray().tolist() == [[0, 1], [1, 0]]


def test_tables_that_hold_no_labels():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(TypeError, match=r"one column per label, here labels .* lists of names, give that column"):
        corpus_of(TEXTS, pandas.DataFrame({"labels": LISTS}))
    with pytest.raises(ValueError, match="must hold 0 and 1 only, found 2"):
        corpus_of(TEXTS, pandas.DataFrame(MATRIX * 2))
    with pytest.raises(ValueError, match="labels that are not among label_names: c"):
        corpus_of(TEXTS, pandas.DataFrame(MATRIX, columns=["a", "b", "c"]), label_names=["a", "b"])
    assert corpus_of(TEXTS, pandas.DataFrame({"labels": LISTS})["labels"]).label_names == ("a", "b", "c")


def test_a_tenth_is_set_aside_by_seed():
    corpus = corpus_of(TEXTS, LISTS, seed=1)
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == (36, 4, 0)
    assert set(corpus.train.texts) | set(corpus.validation.texts) == set(TEXTS)
    assert list(corpus_of(TEXTS, LISTS, seed=1).validation.texts) == list(corpus.validation.texts)
    assert any(
        list(corpus_of(TEXTS, LISTS, seed=seed).validation.texts) != list(corpus.validation.texts) for seed in range(5)
    )


def test_validation_that_is_given_is_taken():
    corpus = corpus_of(TEXTS, LISTS, (["v"], [["a"]]))
    assert (list(corpus.train.texts), list(corpus.validation.texts)) == (TEXTS, ["v"])
    assert corpus.validation.labels.toarray().tolist() == [[1, 0, 0]]


def test_columns_without_names_are_numbered():
    assert corpus_of(TEXTS, MATRIX).label_names == ("0", "1", "2")


def test_what_is_given_is_not_changed():
    given = csr_array((np.array([1.0, 0.0, 1.0]), np.array([0, 1, 1]), np.array([0, 2, 3])), shape=(2, 2))
    corpus_of(["a", "b"], given, (["v"], given[:1]))
    assert given.data.tolist() == [1.0, 0.0, 1.0]
    unsorted = csr_array((np.ones(2), np.array([1, 0]), np.array([0, 2, 2])), shape=(2, 2))
    corpus_of(["a", "b"], unsorted)
    assert unsorted.indices.tolist() == [1, 0]
    labels = [["b", "a", "a"], ["a"]]
    corpus_of(["a", "b"], labels)
    assert labels == [["b", "a", "a"], ["a"]]


def test_labels_unseen_in_training_are_named_and_left_out():
    with pytest.warns(UserWarning, match="no training document carries news, sport: left out of the scores"):
        matrix = known_labels([["sport", "a"], ["news"], ["b"]], ["a", "b"])
    assert matrix.toarray().tolist() == [[1, 0], [0, 0], [0, 1]]


def test_lists_of_a_matrix():
    assert label_lists(csr_array(MATRIX[:2]), ["a", "b", "c"]) == [["c"], ["a", "b"]]
    assert label_lists(csr_array((0, 3)), ["a", "b", "c"]) == []


def test_what_is_a_matrix():
    assert is_matrix(MATRIX)
    assert is_matrix(csr_array(MATRIX))
    assert not is_matrix(LISTS)
    assert not is_matrix(np.array([["a"], ["b", "c"]], dtype=object))


def test_texts_of_any_collection():
    assert read_texts(("a", "b")) == ("a", "b")
    assert read_texts(np.array(["a", "b"])) == ["a", "b"]
    assert read_texts(word for word in ["a", "b"]) == ["a", "b"]
    assert read_texts([]) == []
    assert read_texts(np.array([["a"], ["b"]])) == ["a", "b"]


def test_texts_that_a_memory_map_holds_make_the_same_corpus_and_stay_there(tmp_path):
    with TextWriter(tmp_path / "texts") as writer:
        for text in TEXTS:
            writer.append(text)
    mapped = MappedTexts(tmp_path / "texts")
    corpus, in_memory = corpus_of(mapped, LISTS), corpus_of(TEXTS, LISTS)
    for (_, one), (_, other) in zip(corpus.splits(), in_memory.splits(), strict=True):
        assert list(one.texts) == list(other.texts)
    assert isinstance(corpus.train.texts, MappedTexts)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a text", r"got one text; put it in a list: \[text\]"),
        (["a", None], "text 1 is NoneType, not a string"),
        (["a", float("nan")], "text 1 is float, not a string"),
        ([b"a"], "text 0 is bytes, not a string"),
    ],
)
def test_texts_that_are_none(texts, message):
    with pytest.raises(TypeError, match=message):
        read_texts(texts)


@pytest.mark.parametrize("kind", [set, frozenset, dict.fromkeys], ids=["set", "frozenset", "dict"])
def test_texts_and_labels_without_an_order_are_refused(kind):
    with pytest.raises(TypeError, match=r"texts is a \w+, and texts and labels belong together by their order: give a"):
        corpus_of(kind(TEXTS), LISTS)
    with pytest.raises(TypeError, match=r"texts is a \w+, and"):
        read_texts(kind(TEXTS))
    labels = kind(map(tuple, LISTS))
    for refused in (lambda: corpus_of(TEXTS[:2], labels), lambda: known_labels(labels, ["a", "b", "c"])):
        with pytest.raises(TypeError, match=r"labels is a \w+, and texts and labels"):
            refused()
    assert corpus_of(dict.fromkeys(TEXTS).keys(), [set(row) for row in LISTS]).label_names == ("a", "b", "c")


@pytest.mark.parametrize("form", [csr_array, csc_matrix, bsr_array, coo_array])
def test_indices_that_point_out_of_a_label_matrix_are_not_followed(form):
    labels = form(MATRIX)
    for array in labels.coords if form is coo_array else [labels.indices]:
        array[-1] = 10**8
        with pytest.raises(ValueError, match="the label matrix is damaged"):
            corpus_of(TEXTS, labels)
        with pytest.raises(ValueError, match="the label matrix is damaged"):
            known_labels(labels, ["a", "b", "c"])


def test_half_a_character_in_a_text_is_refused():
    with pytest.raises(ValueError, match="text 1 has half a surrogate pair at position 3"):
        read_texts(["x", "x \udc80"])


def test_half_a_character_in_a_label_is_refused():
    names = ["a", "b\ud800"]
    message = r"the label 'b\\ud800' has half a surrogate pair at position 2"
    for refused in (
        lambda: corpus_of(["x", "y"], [["a"], ["b\ud800"]]),
        lambda: corpus_of(["x", "y"], MATRIX[:2, :2], label_names=names),
        lambda: known_labels([["b\ud800"]], ["a"]),
    ):
        with pytest.raises(ValueError, match=message):
            refused()


@pytest.mark.parametrize("empty", ["", " \n"])
def test_an_empty_text_is_refused_by_its_number(empty):
    with pytest.raises(ValueError, match="text 1 is empty"):
        read_texts(["a", empty, "b"])


def test_texts_of_a_table_stand_in_its_only_column():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"text": TEXTS, "date": "today"})
    assert read_texts(table[["text"]]) == TEXTS
    assert list(corpus_of(table[["text"]], LISTS, (table[["text"]][:1], LISTS[:1])).train.texts) == TEXTS
    with pytest.raises(TypeError, match=r"texts has the columns text, date: .* for example df\['text'\]"):
        corpus_of(table, LISTS)
    with pytest.raises(TypeError, match=r"texts has the shape \(40, 2\)"):
        read_texts(table.to_numpy())


@pytest.mark.parametrize("row", ["a", None, 3, ["a", None], [1], [["a"]], float("nan")], ids=repr)
def test_labels_that_are_no_lists_of_names(row):
    """Wherever they come: to train on, to validate or to score."""
    labels = [["a"], row]
    message = "the labels of text 1 must be a list of names, got "
    with pytest.raises(TypeError, match=message):
        corpus_of(["x", "y"], labels)
    with pytest.raises(TypeError, match=message):
        corpus_of(["x", "y"], [["a"], ["a"]], (["x", "y"], labels))
    with pytest.raises(TypeError, match=message):
        known_labels(labels, ["a"])


@pytest.mark.parametrize(
    ("labels", "names", "kind", "message"),
    [
        (MATRIX[:2], ["a", "b"], ValueError, "the label matrix has 3 columns for 2 label names"),
        (MATRIX[:2] * 2, None, ValueError, "must hold 0 and 1 only, found 2"),
        (
            csr_array(([1, 1, 1], [0, 0, 1], [0, 2, 3]), shape=(2, 2)),
            None,
            ValueError,
            "must hold 0 and 1 only, found 2",
        ),
        (np.array([[np.nan, 1], [0, 1]]), None, ValueError, "must hold 0 and 1 only, found nan"),
        (MATRIX[:3], None, ValueError, "2 texts but 3 rows of labels"),
        ([["a"]], None, ValueError, "2 texts but 1 rows of labels"),
        (np.array([0, 1]), None, TypeError, "the labels of text 0 must be a list of names, got "),
        ([["a"], ["z"]], ["a", "b"], ValueError, "labels that are not among label_names: z"),
        (MATRIX[:2], ["a", "b", "a"], ValueError, "label_names holds a name twice: a"),
        (MATRIX[:2], "abc", TypeError, "label_names must be a list of names, got 'abc'"),
        (MATRIX[:2], [0, 1, 2], TypeError, r"label_names must be a list of names, got \[0, 1, 2\]"),
    ],
)
def test_labels_and_names_that_do_not_fit(labels, names, kind, message):
    with pytest.raises(kind, match=message):
        corpus_of(["x", "y"], labels, label_names=names)
