import numpy as np
import pytest
from scipy.sparse import csr_array

from abalone import load_corpus
from abalone.evaluation import matrices
from abalone.evaluation import tfidf as tfidf_module
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.tfidf import TermCounts, pieces, units, words_and_pairs

SAMPLE = load_corpus("arxiv-sample").train
TEXTS = [*SAMPLE.texts[:116], "", "   ", "a b c", "😀 so good!!! 😀😀", "Größe Ελλάδα ΣΑΣ", "语词 词语"]
LABELS = csr_array(SAMPLE.labels[: len(TEXTS)])
ROWS = np.random.default_rng(0).permutation(len(TEXTS))[:80]


@pytest.fixture(scope="module")
def counts():
    return TermCounts.of(TEXTS)


@pytest.mark.parametrize("kind", ["words", "pieces"])
def test_every_term_of_two_texts_is_counted(counts, kind):
    counted = getattr(counts, kind)
    terms = [
        list(words_and_pairs(text)) if kind == "words" else [piece for unit in units(text) for piece in pieces(unit)]
        for text in TEXTS
    ]
    frequencies: dict[str, int] = {}
    for each in terms:
        for term in set(each):
            frequencies[term] = frequencies.get(term, 0) + 1
    assert counted.terms == sorted(term for term, texts in frequencies.items() if texts >= 2)
    places = {term: place for place, term in enumerate(counted.terms)}
    expected = np.zeros((len(TEXTS), len(places)), dtype=int)
    for row, each in enumerate(terms):
        for term in each:
            if term in places:
                expected[row, places[term]] += 1
    assert np.array_equal(counted.matrix.toarray(), expected)
    assert {counted.matrix.dtype, counted.matrix.indices.dtype, counted.matrix.indptr.dtype} == {np.dtype(np.int32)}
    assert counted.matrix.has_sorted_indices


@pytest.mark.parametrize("settings", [{}, {"min_df": 3}, {"max_features": 200}])
def test_a_model_of_some_rows_is_that_of_their_texts_alone(counts, settings):
    model = LexicalModel(**settings).fit_counts(counts, ROWS, LABELS[ROWS])
    alone = LexicalModel(**settings).fit([TEXTS[row] for row in ROWS], LABELS[ROWS])
    assert model.contents() == alone.contents()  # to the last bit


def test_decisions_of_other_rows_are_those_of_their_texts(counts):
    model = LexicalModel().fit_counts(counts, ROWS, LABELS[ROWS])
    others = np.setdiff1d(np.arange(len(TEXTS)), ROWS)[::-1]
    decisions = model.decisions_of(counts, others)
    learnt = model._fitted()
    expected = learnt.decisions([TEXTS[row] for row in others])
    assert decisions.dtype == np.float32
    assert np.array_equal(decisions, expected.astype(np.float32))
    assert model.decisions_of(counts, others[:0]).shape == (0, LABELS.shape[1])


def test_logits_of_other_rows_are_those_of_their_texts(counts, monkeypatch):
    model = LexicalModel().fit_counts(counts, ROWS, LABELS[ROWS])
    others = np.setdiff1d(np.arange(len(TEXTS)), ROWS)
    expected = model.scores([TEXTS[row] for row in others])
    assert np.array_equal(model.logits_of(counts, others), expected)
    monkeypatch.setattr(matrices, "AT_ONCE", 1)
    computed = model.logits_of(counts, others)
    assert isinstance(computed, matrices.Computed)
    assert np.array_equal(computed[3:9, 2:7], expected[3:9, 2:7])


def test_pieces_are_counted_up_to_a_size_of_all_texts_together(counts, monkeypatch):
    characters = sum(map(len, TEXTS))
    monkeypatch.setattr(tfidf_module, "CHARACTERS", characters)
    assert TermCounts.of(TEXTS).pieces.terms == counts.pieces.terms
    monkeypatch.setattr(tfidf_module, "CHARACTERS", characters - 1)
    fewer = TermCounts.of(TEXTS)
    assert (fewer.words.terms, fewer.pieces.terms) == (counts.words.terms, [])
    model = LexicalModel().fit_counts(fewer, ROWS, LABELS[ROWS])  # a part is small enough, but all of it decides
    assert model.decisions_of(fewer, ROWS).shape == LABELS[ROWS].shape
    assert model._fitted().tfidf.pieces == []


def test_a_piece_of_too_many_texts_is_left_out(counts):
    tfidf, features = counts.fitted(ROWS, 2, 200_000)
    rows = counts.pieces.matrix[ROWS]
    shares = dict(zip(counts.pieces.terms, np.bincount(rows.indices, minlength=rows.shape[1]) / len(ROWS), strict=True))
    assert max(shares[piece] for piece in tfidf.pieces) <= tfidf_module.TOO_COMMON < shares[" the"]
    assert "the" in tfidf.terms
    assert features.shape == (len(ROWS), len(tfidf.terms) + len(tfidf.pieces))


def test_the_most_frequent_terms_are_kept_in_alphabetical_order():
    texts = ["b b a c", "b a c", "d d d", "d b"]
    tfidf, _ = TermCounts.of(texts, with_pieces=False).fitted(np.arange(4), 2, 2)
    assert tfidf.terms == []  # letters are no words
    texts = [text.replace("a", "aa").replace("b", "bb").replace("c", "cc").replace("d", "dd") for text in texts]
    counts = TermCounts.of(texts, with_pieces=False)
    assert counts.words.terms == ["aa", "aa cc", "bb", "bb aa", "cc", "dd"]
    assert counts.fitted(np.arange(4), 2, 2)[0].terms == ["bb", "dd"]
    assert counts.fitted(np.arange(4), 2, 3)[0].terms == ["aa", "bb", "dd"]  # of those as frequent, the first


def test_what_was_not_counted_is_refused(counts):
    with pytest.raises(ValueError, match="terms of fewer than 2 texts are not counted, so min_df cannot be 1"):
        LexicalModel(min_df=1).fit_counts(counts, ROWS, LABELS[ROWS])
    model = LexicalModel().fit_counts(counts, ROWS, LABELS[ROWS])
    with pytest.raises(ValueError, match="terms of the model are not counted: other texts were"):
        model.decisions_of(TermCounts.of(["other texts", "other texts"]), np.arange(2))
    with pytest.raises(ValueError, match=r"same number of rows, got 80 and \(79, 53\)"):
        LexicalModel().fit_counts(counts, ROWS, LABELS[ROWS[:-1]])


def test_no_texts_at_all():
    counts = TermCounts.of([])
    assert len(counts) == 0
    assert counts.words.terms == counts.pieces.terms == []
