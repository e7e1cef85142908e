"""Review: training labels that are probably wrong or missing, by out-of-fold probabilities and the other labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from abalone.evaluation.out_of_fold import OutOfFold

LEAST = 1e-4  # probabilities are kept this far from 0 and 1, so that they have logits
UNLIKELY = float(logit(LEAST))
# A given label is compared with the other documents of its label as well: rare labels have low probabilities, also
# where they are right. Of 479 wrong labels planted into Reuters-21578 (tf-idf, three seeds) the average precision is
# 93 without this, 95 to 96 at 0.15 to 0.35, and 93 to 94 at 0.5.
TYPICAL = 0.25
# A missing label is the more worth finding the rarer it is: the odds are divided by the root of its documents. On such
# errors (two seeds) the average precision is 67.2 and 66.1 without this, 68.6 and 66.5 with it, and 63.3 and 59.9 where
# the odds are divided by the documents themselves.
WORTH = 0.5
FEWEST = 10  # documents and labels that a regression is fitted to; with fewer, the model's probability decides alone
PAIRS_AT_MOST = 2_000_000  # that a regression of eight numbers is fitted to
SAME = 1e-9  # the spread of numbers that differ by rounding alone


@dataclass(frozen=True, eq=False)
class Suspects:
    """Pairs of a training document and a label that is doubted, wrong and missing ones in turn.

    The most doubtful wrong ones come first; of the missing ones, those of rare labels before equally doubtful others.

    In turn, because doubts of the two kinds cannot be compared: one says that a label which a person has given is
    improbable, the other that one which nobody has given is probable. There is no telling which error is the commoner.

    Args:
        documents: [m], rows of the out-of-fold predictions.
        labels: [m], columns.
        given: [m] of bool: whether the document has the label now. It is suspected to be wrong then, else missing.
        doubts: [m], how doubtful it is, from 0 to 1: for a missing label, the probability that the document has it,
            by the model and by its other labels; for a given one, the probability that it has not.
        probabilities: [m], out of fold, by the model alone.
    """

    documents: np.ndarray
    labels: np.ndarray
    given: np.ndarray
    doubts: np.ndarray
    probabilities: np.ndarray

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, chosen: slice | np.ndarray) -> "Suspects":
        return Suspects(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def likely(self) -> "Suspects":
        """Return those that are more probably an error than not."""
        return self[self.doubts > 0.5]


def find_suspects(answers: OutOfFold, frequencies: Sequence[int] | np.ndarray) -> Suspects:
    """Rank all labels of the training documents, given or not, by how doubtful they are.

    A model's probability leaves out what the annotator has said about the document's other labels. A logistic
    regression puts both together: it predicts whether a label is given from the model's probability, how many other
    labels are given, and how probable they and those not given are. It is fitted to all labels at once, on the other
    folds. So a document that has lost its only label stands out, as does a label added to one that had its own.

    Args:
        answers: predictions for each document by a model that was not trained on it.
        frequencies: [L], training documents of each label.

    Labels that no model could know when it scored their documents (`OutOfFold.untaught`) are never called wrong.
    """
    said = answers.probabilities
    documents = np.repeat(np.arange(said.shape[0]), np.diff(said.indptr))  # [m], as are all below
    labels, probabilities = said.indices.astype(np.int64), said.data.astype(np.float64)
    given = _is_given(answers, documents, labels)
    evidence = _evidence(documents, probabilities, given, len(answers))  # [m, features]
    belief = _belief(evidence, given, _parts(answers)[documents])
    typical = _means(belief[given], labels[given], answers.num_labels)[labels]
    doubts = np.where(given, TYPICAL * typical - belief, belief)  # as log-odds
    worth = doubts - np.where(given, 0.0, WORTH * np.log1p(np.asarray(frequencies))[labels])
    kept = np.flatnonzero(~(given & np.isin(labels, answers.untaught(frequencies))))
    order = kept[_in_turn(worth[kept], given[kept])]
    return Suspects(documents, labels, given, expit(doubts), probabilities)[order]


def _in_turn(worth: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Return an order in which the pair of each kind that is most worth a look comes first, then the second; [m]."""
    turn = np.empty(len(worth), dtype=np.int64)
    for kind in (given, ~given):
        own = np.flatnonzero(kind)
        turn[own[np.argsort(-worth[own], kind="stable")]] = np.arange(len(own))
    return np.lexsort((~given, turn))


def _is_given(answers: OutOfFold, documents: np.ndarray, labels: np.ndarray) -> np.ndarray:
    truth, width = answers.labels.tocoo(), answers.num_labels
    given: np.ndarray = np.isin(documents * width + labels, truth.row.astype(np.int64) * width + truth.col)
    return given


def _evidence(documents: np.ndarray, probabilities: np.ndarray, given: np.ndarray, count: int) -> np.ndarray:
    """Return what is known of each pair beside whether its label is given, [m, 7].

    Args:
        documents: [m], sorted.
        probabilities: [m].
        given: [m] of bool.
        count: documents in all.
    """
    own = logit(probabilities.clip(LEAST, 1 - LEAST))
    others = np.bincount(documents, given, count)[documents] - given
    alone = others == 0
    open_mass = np.where(given, 0.0, probabilities)
    expected = np.bincount(documents, open_mass, count)[documents] - open_mass  # labels, among those not given
    best_given = _best_of_others(documents, np.where(given, own, UNLIKELY), count)
    best_open = _best_of_others(documents, np.where(given, UNLIKELY, own), count)
    features = (own, alone, alone * own, np.log1p(others), np.log(expected.clip(0) + 0.02), best_given, best_open)
    return np.column_stack(features).astype(np.float64)


def _best_of_others(documents: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Return the greatest value among the other pairs of the same document, [m]; `UNLIKELY` where there is none."""
    best, second = (np.full(count, UNLIKELY) for _ in range(2))
    np.maximum.at(best, documents, values)
    at_best = np.flatnonzero(values == best[documents])
    leaders = at_best[np.unique(documents[at_best], return_index=True)[1]]  # one a document
    rest = values.copy()
    rest[leaders] = UNLIKELY
    np.maximum.at(second, documents, rest)
    found: np.ndarray = best[documents]
    found[leaders] = second[documents[leaders]]
    return found


def _belief(evidence: np.ndarray, given: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Return the logit of each pair's label by a regression that is fitted to the other parts, [m]."""
    from sklearn.linear_model import LogisticRegression

    belief = evidence[:, 0].copy()
    for part in np.unique(parts):
        own, others = parts == part, np.flatnonzero(parts != part)
        if min(np.count_nonzero(given[others]), np.count_nonzero(~given[others])) < FEWEST:
            continue
        if len(others) > PAIRS_AT_MOST:
            others = np.random.default_rng(0).choice(others, PAIRS_AT_MOST, replace=False)
        centre, spread = evidence[others].mean(axis=0), evidence[others].std(axis=0)
        spread[spread < SAME] = 1.0
        regression = LogisticRegression(max_iter=500).fit((evidence[others] - centre) / spread, given[others])
        belief[own] = regression.decision_function((evidence[own] - centre) / spread)
    return belief


def _parts(answers: OutOfFold) -> np.ndarray:
    """Return the fold of each document, or one of two halves where only one fold was scored; [n]."""
    if answers.num_folds > 1:
        return answers.folds
    halves: np.ndarray = np.unique(answers.documents, return_inverse=True)[1] % 2  # copies of a text are together
    return halves


def _means(values: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    """Return the mean of the values of each label, [L]; 0 where it has none."""
    means: np.ndarray = np.bincount(labels, values, count) / np.bincount(labels, minlength=count).clip(min=1)
    return means
