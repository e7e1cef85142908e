"""Which label is given where another is meant."""

from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.sparse import csr_array
from scipy.spatial.distance import squareform

from abalone.evaluation.matrices import Labels, read_labels

SHOWN_LABELS = 16  # more rows and columns than this cannot be read
SHOWN_PAIRS = 200


@dataclass(frozen=True, eq=False)
class Confusion:
    """Counts of documents; a document with several errors counts once in every pair of them.

    Args:
        instead: [L, L], row a, column b: a is meant and not given, b is given and not meant.
        together: [L, L], a and b are both meant.
        only_missed: [L], a is meant and not given, and nothing else is given wrongly.
        only_given: [L], b is given and not meant, and nothing that is meant is missing.
    """

    instead: csr_array
    together: csr_array
    only_missed: np.ndarray
    only_given: np.ndarray

    def pairs(self, limit: int = SHOWN_PAIRS) -> list[tuple[int, int, int, int]]:
        """(meant, given, documents, documents that carry both), the most frequent first."""
        counts = self.instead.tocoo()
        order = np.lexsort((counts.col, counts.row, -counts.data))[:limit]
        meant, given = counts.row[order], counts.col[order]
        both = np.asarray(self.together[meant, given]).ravel() if order.size else np.zeros(0)
        columns = (meant, given, counts.data[order], both)
        return list(zip(*(column.astype(int).tolist() for column in columns), strict=True))

    def most_confused(self, limit: int = SHOWN_LABELS) -> list[int]:
        """Labels of the most frequent pairs, at most `limit`, those that occur together beside each other."""
        chosen: dict[int, None] = {}
        for meant, given, _, _ in self.pairs():
            if len(chosen | {meant: None, given: None}) <= limit:
                chosen |= {meant: None, given: None}
        return _by_kinship(np.array(sorted(chosen), dtype=np.int64), self.together)


def confusion(truth: Labels, predictions: Labels) -> Confusion:
    """Count which errors fall on the same documents.

    With several labels a document, no error says which other one it goes with. A missed label and a wrongly given one
    of the same document are taken for a pair; errors without a partner are counted apart.

    Args:
        truth, predictions: 0/1, [n, L].
    """
    true, given = read_labels("truth", truth), read_labels("predictions", predictions)
    hits = true.multiply(given).tocsr()
    missed, wrong = (true - hits).tocsr(), (given - hits).tocsr()  # [n, L] both
    missed.eliminate_zeros()
    wrong.eliminate_zeros()
    nothing_missed, nothing_wrong = np.diff(missed.indptr) == 0, np.diff(wrong.indptr) == 0  # [n] both
    return Confusion(
        instead=(missed.T @ wrong).tocsr(),
        together=(true.T @ true).tocsr(),
        only_missed=np.asarray(missed[nothing_wrong].sum(axis=0)).ravel(),
        only_given=np.asarray(wrong[nothing_missed].sum(axis=0)).ravel(),
    )


def _by_kinship(labels: np.ndarray, together: csr_array) -> list[int]:
    """Labels in an order that puts those with much in common side by side."""
    if len(labels) < 3:
        return [int(label) for label in labels]
    both = together[labels][:, labels].toarray().astype(np.float64)  # [K, K]
    own = np.diag(both)
    either = own[:, None] + own[None, :] - both
    distance = 1 - both / np.maximum(either, 1)  # Jaccard
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform(distance, checks=False), method="average", optimal_ordering=True)
    return [int(labels[place]) for place in leaves_list(tree)]
