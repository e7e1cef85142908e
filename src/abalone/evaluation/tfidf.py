"""tf-idf of words, pairs of words and pieces of words: of known terms, and the counts that the terms are chosen from.

Written out here, so that a model can be read and asked without scikit-learn, whose import takes longer than all else
that `abalone predict FILE.onnx` does. For words and pairs it is what scikit-learn's fitted `TfidfVectorizer` does.
Terms of many texts are counted once for all models that are fitted to some of them.
"""

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise

import numpy as np
from scipy.sparse import csr_array, hstack

from abalone.errors import InputError

WORD = re.compile(r"\b\w\w+\b")
# Pieces are taken from words, of one letter too, and from runs of punctuation, which emojis are to `re`: a piece lies
# within one of them, so what it says can be shown as said by that word.
UNIT = re.compile(r"\w+|[^\w\s]+")
# Letters of a piece. Macro-F1 above words and pairs alone, means over draws of 8 and 16 documents a label (Reuters,
# arXiv) and of 500 abstracts, and the cost of fitting: 4 letters +2.6 and 2.6 times; 3 to 5 letters +2.2 and 6 times;
# beginnings and endings of 3 to 5 letters +2.0 and 2.3 times; scikit-learn's `char_wb`, which leaves punctuation at
# its word, of 4 letters +2.0 and 2.7 times, of 3 to 5 +2.2 and 6 times. Rows of length 1 of words and of pieces side
# by side +2.4, with 0.7 of the weight on pieces +1.8; one row of both together is best and simplest.
LETTERS = 4
REMEMBERED, SHORT = 1 << 15, 32  # units whose pieces are remembered, and their longest: some megabytes


def words_and_pairs(text: str) -> Iterator[str]:
    """Yield the words of a text in lower case, then the pairs of neighbouring ones."""
    words = WORD.findall(text.lower())
    return chain(words, map(" ".join, pairwise(words)))


def units(text: str) -> list[str]:
    """Return what pieces are taken from."""
    return UNIT.findall(text.lower())


def pieces(unit: str) -> list[str]:
    """Return every run of letters in a unit with a space on either side; the whole where it is shorter than a run.

    A word shorter than a run has none: it is a term already.

    Example:
        >>> pieces("words"), pieces("!"), pieces("to")
        ([' wor', 'word', 'ords', 'rds '], [' ! '], [])
    """
    if len(unit) < LETTERS and WORD.fullmatch(unit):
        return []
    padded = f" {unit} "
    return [padded[start : start + LETTERS] for start in range(max(len(padded) - LETTERS, 0) + 1)]


@dataclass(frozen=True, eq=False)
class Tfidf:
    """From texts to rows of length 1, an entry for each term that occurs: (1 + log count) · idf.

    Args:
        terms: words and pairs of neighbouring words in lower case, each once.
        idf: [F], what each counts; first the terms, then the pieces.
        pieces: of words, each once.

    Example:
        >>> words = Tfidf(["apple", "red", "red apple"], np.array([1.0, 1.0, 2.0]))
        >>> words.rows(["Red apple, red apple."]).toarray().round(2).tolist()
        [[0.41, 0.41, 0.82]]
    """

    terms: list[str]
    idf: np.ndarray
    pieces: list[str] | tuple[()] = ()

    def __post_init__(self) -> None:
        for kind, known, places in (("terms", self.terms, self._places), ("pieces", self.pieces, self._piece_places)):
            if len(places) != len(known):
                raise InputError(f"{len(known)} {kind} must differ, and {len(places)} of them do")
        if self.idf.shape != (len(self.terms) + len(self.pieces),):
            raise InputError(
                f"{len(self.terms)} terms and {len(self.pieces)} pieces do not go with idf {self.idf.shape}"
            )

    @cached_property
    def _places(self) -> dict[str, int]:
        return {term: place for place, term in enumerate(self.terms)}

    @cached_property
    def _piece_places(self) -> dict[str, int]:
        return {piece: place for place, piece in enumerate(self.pieces, len(self.terms))}

    @cached_property
    def _places_of_unit(self) -> "_OfUnit":
        return _OfUnit(self._piece_places)

    def rows(self, texts: Sequence[str], *, by_word: bool = False) -> csr_array:
        """Return the rows of texts, [n, F]; a text without a known term has a row of zeros.

        Args:
            texts: n of them.
            by_word: leave pieces out, so that only texts that share a word have something in common.
        """
        counted = [self._counted(text, by_word) for text in texts]
        starts = np.cumsum([0, *map(len, counted)])
        columns = np.fromiter(chain.from_iterable(counted), np.int32, starts[-1])
        counts = np.fromiter(chain.from_iterable(each.values() for each in counted), np.float64, starts[-1])
        rows = csr_array((counts, columns, starts), shape=(len(texts), len(self.idf)))
        rows.sort_indices()  # so that sums over a row round the same, whatever the order of its words
        return self.weighed(rows)

    def weighed(self, counts: csr_array) -> csr_array:
        """Return the rows of texts in which the terms are counted already, [n, F], the terms of a row in order."""
        values = (1 + np.log(counts.data)) * self.idf[counts.indices]
        of_entry = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        values /= np.sqrt(np.bincount(of_entry, values**2, counts.shape[0]))[of_entry]
        return csr_array((values, counts.indices, counts.indptr), shape=counts.shape)

    def _counted(self, text: str, by_word: bool) -> Counter[int]:
        places = map(self._places.get, words_and_pairs(text))
        if self.pieces and not by_word:
            within = map(self._places_of_unit.__getitem__, units(text))
            counts = Counter(chain(places, chain.from_iterable(within)))
        else:
            counts = Counter(places)
        counts.pop(None, None)  # all terms that are not known
        return counts  # type: ignore[return-value]  # there is no None left


class _OfUnit(dict[str, list[int]]):
    """Known pieces of a unit by their places; those of short units are remembered, as most occur again and again."""

    def __init__(self, places: dict[str, int]) -> None:
        super().__init__()
        self._places = places

    def __missing__(self, unit: str) -> list[int]:
        known = [self._places[piece] for piece in pieces(unit) if piece in self._places]
        if len(unit) <= SHORT:
            if len(self) >= REMEMBERED:
                self.clear()
            self[unit] = known
        return known


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
    """The terms that `LexicalModel` learns from, counted once in all texts; sparse, to hold a million texts.

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
            raise InputError(f"terms of fewer than {self.min_df} texts are not counted, so min_df cannot be {min_df}")
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
                raise InputError(f"{len(wanted) - len(chosen)} terms of the model are not counted: other texts were")
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
