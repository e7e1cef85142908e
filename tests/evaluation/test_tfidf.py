import pickle
import re

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from abalone import load_corpus
from abalone.evaluation import tfidf
from abalone.evaluation.tfidf import Tfidf

ODD = [
    "",
    "   ",
    "a b c",
    "one",
    "WORD word Word",
    "snake_case 3.14 x² ½ don't",
    "größe Ελλάδα ΣΑΣ İstanbul книга",
    "词 语词 词语",
    "so good!!! 😀👍🏽 :-) …?!",
    "👨‍👩‍👧\x1c\u2028tabs\tand\u00a0spaces\u200bnone",
]


def fitted(texts):
    """The original, fitted, and the same as `Tfidf`."""
    original = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2).fit(texts)
    return original, Tfidf(original.get_feature_names_out().tolist(), original.idf_)


def fitted_with_pieces(texts):
    """Words and pairs, and character 4-grams within longer words or runs of punctuation, all by scikit-learn."""
    words = CountVectorizer(ngram_range=(1, 2)).build_analyzer()
    within = CountVectorizer(analyzer="char_wb", ngram_range=(4, 4)).build_analyzer()

    def terms(text):
        apart = " ".join(re.findall(r"\b\w\b|\w{4,}|[^\w\s]+", text.lower()))
        return [*(f"0{word}" for word in words(text)), *(f"1{piece}" for piece in within(apart))]

    original = TfidfVectorizer(analyzer=terms, sublinear_tf=True, min_df=2).fit(texts)
    known = original.get_feature_names_out().tolist()
    kinds = [[term[1:] for term in known if term[0] == mark] for mark in "01"]
    return original, Tfidf(kinds[0], original.idf_, kinds[1])


@pytest.mark.parametrize("fit", [fitted, fitted_with_pieces])
@pytest.mark.parametrize("texts", [load_corpus("arxiv-sample").train.texts[:150], ODD * 2], ids=["abstracts", "odd"])
def test_it_is_the_vectorizer_of_scikit_learn(texts, fit):
    original, ours = fit(texts)
    asked = [*texts, *ODD, " ".join(texts[:3])]
    expected = original.transform(asked)
    rows = ours.rows(asked)
    assert rows.shape == expected.shape
    assert (rows != expected).nnz == 0  # to the last bit


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("a", [" a "]),
        ("😀", [" 😀 "]),
        ("!!", [" !! "]),
        ("an", []),  # is a word itself
        ("and", []),
        ("four", [" fou", "four", "our "]),
        ("words", [" wor", "word", "ords", "rds "]),
    ],
)
def test_pieces_of_a_unit(unit, expected):
    assert tfidf.pieces(unit) == expected


def test_units_are_words_and_runs_of_punctuation():
    assert tfidf.units("It's a_b: GREAT!!! 😀👍 x") == ["it", "'", "s", "a_b", ":", "great", "!!!", "😀👍", "x"]


@pytest.mark.parametrize(("remembered", "short"), [(1, 32), (3, 32), (1 << 15, 0)])
def test_pieces_that_are_not_remembered_are_found_again(monkeypatch, remembered, short):
    _, ours = fitted_with_pieces(ODD * 2)
    expected = ours.rows(ODD).toarray()
    monkeypatch.setattr(tfidf, "REMEMBERED", remembered)
    monkeypatch.setattr(tfidf, "SHORT", short)
    fresh = Tfidf(ours.terms, ours.idf, ours.pieces)
    for _ in range(2):
        assert np.array_equal(fresh.rows(ODD).toarray(), expected)
    assert len(fresh._places_of_unit) <= remembered
    assert all(len(unit) <= short for unit in fresh._places_of_unit)


def test_rows_by_word_leave_pieces_out():
    words, whole = Tfidf(["word"], np.ones(1)), Tfidf(["word"], np.array([1.0, 3.0]), [" wor"])
    texts = ["a word", "worst"]
    assert whole.rows(texts, by_word=True).toarray().tolist() == [[1, 0], [0, 0]]
    assert words.rows(texts).toarray().tolist() == [[1], [0]]
    assert whole.rows(texts).toarray()[1].tolist() == [0, 1]


def test_it_can_be_pickled_when_it_has_read():
    _, ours = fitted_with_pieces(ODD * 2)
    expected = ours.rows(ODD).toarray()
    assert np.array_equal(pickle.loads(pickle.dumps(ours)).rows(ODD).toarray(), expected)


def test_no_texts_and_no_terms():
    assert Tfidf(["word"], np.ones(1)).rows([]).shape == (0, 1)
    assert Tfidf([], np.empty(0)).rows(["a word", ""]).shape == (2, 0)


@pytest.mark.parametrize(
    ("terms", "pieces", "numbers", "message"),
    [
        (["a", "b"], [], 1, r"2 terms and 0 pieces do not go with idf \(1,\)"),
        (["a"], [], 2, r"1 terms and 0 pieces do not go with idf \(2,\)"),
        (["a"], ["b"], 1, r"1 terms and 1 pieces do not go with idf \(1,\)"),
        (["a", "a"], [], 2, "2 terms must differ, and 1 of them do"),
        (["a"], ["b", "b", "c"], 4, "3 pieces must differ, and 2 of them do"),
    ],
)
def test_parts_that_do_not_fit_are_refused(terms, pieces, numbers, message):
    with pytest.raises(ValueError, match=message):
        Tfidf(terms, np.ones(numbers), pieces)
