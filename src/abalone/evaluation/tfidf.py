"""tf-idf of terms that are known already: words, pairs of words, and pieces of words.

Written out here, so that a model can be read and asked without scikit-learn, whose import takes longer than all else
that `abalone predict FILE.onnx` does. For words and pairs it is what scikit-learn's fitted `TfidfVectorizer` does.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise

import numpy as np
from scipy.sparse import csr_array

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
                raise ValueError(f"{len(known)} {kind} must differ, and {len(places)} of them do")
        if self.idf.shape != (len(self.terms) + len(self.pieces),):
            raise ValueError(
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
        """[n, F]; a text without a known term has a row of zeros.

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
