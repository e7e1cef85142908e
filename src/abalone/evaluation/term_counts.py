"""The terms of many texts, counted once for all models that are fitted to some of them."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, hstack

from abalone.evaluation.tfidf import Tfidf, pieces, units, words_and_pairs

# Characters of all texts up to which pieces of words are counted too. Macro-F1 that they add, means over three draws
# (`python -m benchmarks.recipe.words`): Reuters, 8 and 16 documents a label, 500, 6,216: +5.4, +2.5, +4.1, +1.1; arXiv
# abstracts, 8 and 16 a label, 500, 2,000, 8,000 (11 million characters): +2.7, +1.4, +1.6, +1.5, +0.7; all 37,840 (51
# million): −0.8, for twice the time.
CHARACTERS = 20_000_000
# Share of the documents above which a piece is left out. Such pieces tell little and are a third of all entries.
# Macro-F1 that pieces add on Reuters, 500 of it, 2,000 and 4,800 abstracts, and the cost of fitting: 0.1, +2.0 and 2.0
# times; 0.2, +2.2 and 2.6 times; no limit, +1.8 and 3.1 times.
TOO_COMMON = 0.2


@dataclass(frozen=True, eq=False)
class Counted:
    """How often each term occurs in each text.

    Args:
        terms: [V], in alphabetical order.
        matrix: [n, V] of int32, the terms of a text in order.
    """

    terms: list[str]
    matrix: csr_array

    @classmethod
    def of(cls, documents: Iterable[Iterable[str]]) -> "Counted":
        """Count the terms of each document."""
        places: defaultdict[str, int] = defaultdict()
        places.default_factory = places.__len__  # the next free one
        columns, counts, starts = array("i"), array("i"), array("q", [0])
        for document in documents:
            found = Counter(map(places.__getitem__, document))
            columns.extend(found)
            counts.extend(found.values())
            starts.append(len(columns))
        parts = np.asarray(counts), np.asarray(columns), np.asarray(starts)
        return cls(list(places), csr_array(parts, shape=(len(starts) - 1, len(places))))

    def at_least(self, min_df: int) -> "Counted":
        """Return the terms that occur in so many texts, in alphabetical order."""
        chosen = np.flatnonzero(_document_frequencies(self.matrix) >= min_df).tolist()
        chosen.sort(key=self.terms.__getitem__)
        return Counted([self.terms[place] for place in chosen], _columns(self.matrix, chosen))


@dataclass(frozen=True, eq=False)
class TermCounts:
    """What `LexicalModel` learns from, counted once in all texts; sparse, so that it can be of a million.

    Args:
        words: and pairs of neighbouring words.
        pieces: of words.
        min_df: the texts in which a term must occur to be counted at all.
    """

    words: Counted
    pieces: Counted
    min_df: int

    @classmethod
    def of(cls, texts: Sequence[str], *, min_df: int = 2, with_pieces: bool | None = None) -> "TermCounts":
        """Count terms, those of fewer than `min_df` texts left out; pieces by default if there is not too much text."""
        words = Counted.of(map(words_and_pairs, texts)).at_least(min_df)
        if not (sum(map(len, texts)) <= CHARACTERS if with_pieces is None else with_pieces):
            return cls(words, Counted([], words.matrix[:, :0]), min_df)
        by_unit = Counted.of(map(units, texts))  # a word is taken to pieces once, wherever it occurs
        of_unit = Counted.of(map(pieces, by_unit.terms))
        counts = csr_array(by_unit.matrix @ of_unit.matrix)  # [n, pieces]
        return cls(words, Counted(of_unit.terms, counts).at_least(min_df), min_df)

    def __len__(self) -> int:
        return self.words.matrix.shape[0]

    def fitted(self, rows: np.ndarray, min_df: int, max_features: int) -> tuple[Tfidf, csr_array]:
        """Return tf-idf as the texts `rows` have it, and the rows [n, F] of these.

        Args:
            rows: [n], of the texts.
            min_df: in how many of them a term must occur.
            max_features: the most frequent terms of each kind that are kept.
        """
        if min_df < self.min_df:
            raise ValueError(f"terms of fewer than {self.min_df} texts are not counted, so min_df cannot be {min_df}")
        terms, counts, frequencies = [], [], []
        for kind, most in ((self.words, len(rows)), (self.pieces, int(TOO_COMMON * len(rows)))):
            matrix = kind.matrix[rows]
            occurs = _document_frequencies(matrix)
            chosen = np.flatnonzero((occurs >= min_df) & (occurs <= most))
            if len(chosen) > max_features:
                totals = np.bincount(matrix.indices, matrix.data, len(kind.terms))[chosen]
                chosen = np.sort(chosen[np.argsort(-totals, kind="stable")[:max_features]])
            terms.append([kind.terms[place] for place in chosen])
            counts.append(_columns(matrix, chosen))
            frequencies.append(occurs[chosen])
        idf = np.log((len(rows) + 1) / (np.concatenate(frequencies) + 1)) + 1
        tfidf = Tfidf(terms[0], idf, terms[1])
        return tfidf, tfidf.weighed(_in_order(hstack(counts)))

    def rows(self, rows: np.ndarray, tfidf: Tfidf) -> csr_array:
        """Return tf-idf rows [n, F] of the texts `rows`; `tfidf` must have been fitted to texts among those counted."""
        counts = []
        for kind, known in ((self.words, tfidf.terms), (self.pieces, tfidf.pieces)):
            wanted = set(known)
            chosen = [place for place, term in enumerate(kind.terms) if term in wanted]
            if len(chosen) != len(wanted):
                raise ValueError(f"{len(wanted) - len(chosen)} terms of the model are not counted: other texts were")
            counts.append(_columns(kind.matrix[rows], chosen))
        return tfidf.weighed(_in_order(hstack(counts)))


def _document_frequencies(matrix: csr_array) -> np.ndarray:
    return np.bincount(matrix.indices, minlength=matrix.shape[1])


def _columns(matrix: csr_array, chosen: Sequence[int] | np.ndarray) -> csr_array:
    return _in_order(matrix[:, np.asarray(chosen, dtype=np.int64)])


def _in_order(matrix: csr_array) -> csr_array:
    """Return it with the indices of each row ascending, and in 32 bits where they fit, which scikit-learn wants."""
    matrix = csr_array(matrix)
    matrix.sort_indices()
    index = np.int32 if matrix.nnz <= np.iinfo(np.int32).max else np.int64
    return csr_array((matrix.data, matrix.indices.astype(index), matrix.indptr.astype(index)), shape=matrix.shape)
