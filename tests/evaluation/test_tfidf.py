import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from abalone import load_corpus
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
]


def fitted(texts):
    """The original, fitted, and the same as `Tfidf`."""
    original = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2).fit(texts)
    return original, Tfidf(original.get_feature_names_out().tolist(), original.idf_)


@pytest.mark.parametrize("texts", [load_corpus("arxiv-sample").train.texts[:150], ODD * 2], ids=["abstracts", "odd"])
def test_it_is_the_vectorizer_of_scikit_learn(texts):
    original, ours = fitted(texts)
    asked = [*texts, *ODD, " ".join(texts[:3])]
    expected = original.transform(asked)
    rows = ours.rows(asked)
    assert rows.shape == expected.shape
    assert (rows != expected).nnz == 0  # to the last bit


def test_no_texts_and_no_terms():
    assert Tfidf(["word"], np.ones(1)).rows([]).shape == (0, 1)
    assert Tfidf([], np.empty(0)).rows(["a word", ""]).shape == (2, 0)


@pytest.mark.parametrize(("terms", "numbers"), [(["a", "b"], 1), (["a"], 2), (["a", "a"], 2)])
def test_parts_that_do_not_fit_are_refused(terms, numbers):
    with pytest.raises(
        ValueError, match=rf"{len(terms)} terms, . of them different, do not go with idf \({numbers},\)"
    ):
        Tfidf(terms, np.ones(numbers))
