"""tf-idf of words and pairs of words that are known already: what scikit-learn's fitted `TfidfVectorizer` does.

Written out here, so that a model can be read and asked without scikit-learn, whose import takes longer than all else
that `abalone predict FILE.onnx` does.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise

import numpy as np
from scipy.sparse import csr_array

WORD = re.compile(r"\b\w\w+\b")


@dataclass(frozen=True, eq=False)
class Tfidf:
    """From texts to rows of length 1, an entry for each term that occurs: (1 + log count) · idf.

    Args:
        terms: [F], words and pairs of neighbouring words in lower case, each once.
        idf: [F], what each counts.

    Example:
        >>> words = Tfidf(["apple", "red", "red apple"], np.array([1.0, 1.0, 2.0]))
        >>> words.rows(["Red apple, red apple."]).toarray().round(2).tolist()
        [[0.41, 0.41, 0.82]]
    """

    terms: list[str]
    idf: np.ndarray

    def __post_init__(self) -> None:
        if len(self._places) != len(self.terms) or self.idf.shape != (len(self.terms),):
            raise ValueError(
                f"{len(self.terms)} terms, {len(self._places)} of them different, do not go with idf {self.idf.shape}"
            )

    @cached_property
    def _places(self) -> dict[str, int]:
        return {term: place for place, term in enumerate(self.terms)}

    def rows(self, texts: Sequence[str]) -> csr_array:
        """[n, F]; a text without a known term has a row of zeros."""
        counted = [self._counted(text) for text in texts]
        starts = np.cumsum([0, *map(len, counted)])
        columns = np.fromiter(chain.from_iterable(counted), np.int64, starts[-1])
        counts = np.fromiter(chain.from_iterable(each.values() for each in counted), np.float64, starts[-1])
        rows = csr_array((counts, columns, starts), shape=(len(texts), len(self.terms)))
        rows.sort_indices()  # so that sums over a row round the same, whatever the order of its words
        rows.data = (1 + np.log(rows.data)) * self.idf[rows.indices]
        of_entry = np.repeat(np.arange(len(texts)), np.diff(starts))
        rows.data /= np.sqrt(np.bincount(of_entry, rows.data**2, len(texts)))[of_entry]
        return rows

    def _counted(self, text: str) -> Counter[int]:
        words = WORD.findall(text.lower())
        counts = Counter(map(self._places.get, chain(words, map(" ".join, pairwise(words)))))
        counts.pop(None, None)  # all terms that are not known
        return counts  # type: ignore[return-value]  # there is no None left
