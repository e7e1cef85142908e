"""Out-of-fold predictions: for each training document, those of a model that was not trained on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from safetensors.numpy import load, save
from scipy.sparse import csr_array

from abalone.config import Config
from abalone.data.hashes import text_hashes
from abalone.errors import InputError
from abalone.evaluation.bootstrap import Interval, draw_scores
from abalone.evaluation.decision import Thresholds
from abalone.evaluation.matrices import (
    EVERY,
    Computed,
    Index,
    Labels,
    Scores,
    check_same_shape,
    column_blocks,
    of_documents,
    read_labels,
    read_one_per_label,
    read_probability_scores,
    row_blocks,
)
from abalone.evaluation.metrics import CUTOFFS, LabelScore, evaluate, label_thirds, per_label, ranking_scores
from abalone.evaluation.thresholds import fit_thresholds

OUT_OF_FOLD = "out_of_fold.safetensors"  # in a model folder
WHERE = "out of fold"  # what scores are called that are of these answers
# The probability from which a pair of a document and a label is kept though it is neither true nor given. With tf-idf
# on 6,000 documents, that is 13 pairs and 88 bytes a document for 53 labels of arXiv, 2.9 and 29 for 90 of Reuters; a
# model that knows more keeps less. At 0.005 it would be 21 pairs and 3.8 (without those of `TOP`).
FLOOR = np.float32(0.01)
# Below it, so many of a label's most probable documents are kept, or twice as many as carry it: all documents of a rare
# label can lie below. The best macro-F1 in hindsight of the rarest third of Reuters is 35.5 (tf-idf, three folds); by
# what is kept it is 34.8, and without these documents it would be 31.1.
TOP = 20
MOST_FOLDS = 2**16
RANKING = (*(f"precision_at_{k}" for k in CUTOFFS), "ranking_loss", "mean_average_precision")
TRUE, GIVEN = 1, 2  # bits of a pair's mark in the file


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Hold the predictions for each training document by a model that was not trained on it.

    They are saved with the model, without the texts. Weights of the mixture and temperatures are a few numbers, fitted
    on all documents; there is one threshold per label, so thresholds are fitted for each fold on the other folds.

    A label whose documents all lie in one fold (a single document, or one and its copies) was unknown to the model that
    scored this fold. Its predictions count as they are, nearly always misses: these scores cannot tell how well the
    finished model, which was trained on the documents, finds the next one. `untaught` names these labels.

    Args:
        documents: [n] of uint64, `text_hashes` of the texts, in the order of training. A document that was never held
            out is not listed.
        folds: [n] of uint16, the fold of the document: the model that scored it was trained on the others.
        labels: [n, L], 0/1, the truth.
        probabilities: [n, L] of float32, sparse: pairs that reach the floor of the label, all true ones and all given
            ones.
        given: [n, L], 0/1, the labels that reach thresholds fitted without the document's own fold.
        floors: [L] of float32, `FLOOR` or less: every pair of at least so much is kept.
        rest: [L] of float32, the mean probability of the pairs below the floor that are not given.
        ranking: the scores that need every probability, by their names in `RANKING`; taken before any was left out.
    """

    documents: np.ndarray
    folds: np.ndarray
    labels: csr_array
    probabilities: csr_array
    given: csr_array
    floors: np.ndarray
    rest: np.ndarray
    ranking: Mapping[str, float]

    def __post_init__(self) -> None:
        documents, labels = self.labels.shape
        for name in ("documents", "folds"):
            if getattr(self, name).shape != (documents,):
                raise InputError(f"{name} must have one entry for each of the {documents} documents")
        read_one_per_label("floors", self.floors, labels)
        read_one_per_label("rest", self.rest, labels)
        check_same_shape("labels", self.labels, "probabilities", self.probabilities)
        check_same_shape("labels", self.labels, "given", self.given)
        if set(self.ranking) != set(RANKING):
            raise InputError(f"ranking must hold {', '.join(RANKING)}, got {', '.join(self.ranking)}")

    @classmethod
    def of(
        cls,
        texts: Sequence[str] | np.ndarray,
        folds: Sequence[int] | np.ndarray,
        labels: Labels,
        probabilities: Scores,
        config: Config,
        *,
        learnable: Labels | None = None,
    ) -> "OutOfFold":
        """Decide the labels of each document by thresholds from the other folds, and keep what is worth keeping.

        With a single fold, thresholds are fitted on one half of the documents and applied to the other, and the other
        way round. Where the other documents carry no label at all, thresholds are 0.5.

        Args:
            texts: the documents, or their `text_hashes`; [n].
            folds: [n], integers from 0, the fold that each document was in.
            labels: [n, L], 0/1.
            probabilities: [n, L], after mixture and calibration, each row from the model that had not seen the
                document; an array or computed block by block.
            config: what is wanted: `thresholds`, `calibrate`, `at_least_one`.
            learnable: what thresholds are fitted to, [n, L], if it is not `labels`: these without labels that the
                judge of the document had not seen.
        """
        hashed = isinstance(texts, np.ndarray) and texts.dtype == np.uint64
        documents = np.array(texts) if hashed else text_hashes(texts)  # [n]
        truth, probabilities = read_labels("labels", labels), read_probability_scores("probabilities", probabilities)
        check_same_shape("labels", truth, "probabilities", probabilities)
        held_out = _read_folds(folds, truth.shape[0])
        if len(documents) != len(held_out):
            raise InputError(f"there are {len(documents)} texts, and labels for {len(held_out)}")
        parts = held_out if held_out.min() < held_out.max() else _two_parts(documents)
        known = truth if learnable is None else read_labels("learnable", learnable)
        check_same_shape("labels", truth, "learnable", known)
        cuts = _cuts_of_others(parts, known, probabilities, config)
        floors = _floors(probabilities, np.bincount(truth.indices, minlength=truth.shape[1]))
        counts, columns, kept, marks = [], [], [], []
        total, pairs = np.zeros(truth.shape[1]), np.zeros(truth.shape[1], dtype=np.int64)  # [L] both, of the rest
        for rows in row_blocks(truth.shape):
            block = probabilities[rows, EVERY]  # [r, L], as are all below
            given = _applied(cuts, parts[rows], block, config.at_least_one)
            rounded = block.astype(np.float32)  # what is read back must fall on the same side of the floor
            firm = (rounded >= floors) | given
            true = truth[rows].toarray().astype(bool)
            stored = firm | true
            counts.append(stored.sum(axis=1))
            columns.append(np.nonzero(stored)[1])
            kept.append(rounded[stored])
            marks.append((TRUE * true + GIVEN * given)[stored])
            total += np.where(firm, 0.0, block).sum(axis=0)
            pairs += np.count_nonzero(~firm, axis=0)
        return cls._of_pairs(
            documents,
            held_out,
            *(np.concatenate(part) for part in (counts, columns, kept, marks)),
            floors=floors,
            rest=(total / np.maximum(pairs, 1)).astype(np.float32),
            ranking=ranking_scores(truth, probabilities),
        )

    @classmethod
    def _of_pairs(
        cls,
        documents: np.ndarray,
        folds: np.ndarray,
        counts: np.ndarray,
        columns: np.ndarray,
        probabilities: np.ndarray,
        marks: np.ndarray,
        *,
        floors: np.ndarray,
        rest: np.ndarray,
        ranking: Mapping[str, float],
    ) -> "OutOfFold":
        """Build it from the pairs that are kept: `counts` [n] a document, and column, probability and mark of each."""
        indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])  # [n + 1]
        shape = (len(documents), len(rest))

        def marked(bit: int) -> csr_array:
            chosen = (marks & bit) > 0
            before = np.concatenate([[0], np.cumsum(chosen)])[indptr]
            return csr_array((np.ones(before[-1], np.int8), columns[chosen], before), shape=shape)

        said = csr_array((probabilities, columns, indptr), shape=shape)
        return cls(documents, folds, marked(TRUE), said, marked(GIVEN), floors, rest, ranking)

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def num_labels(self) -> int:
        """The number of labels, L."""
        return int(self.labels.shape[1])

    @property
    def num_folds(self) -> int:
        """Return how many folds there were; 1 where a single part was held out."""
        return len(np.unique(self.folds))

    def rows(self, texts: Sequence[str]) -> np.ndarray:
        """Return where each text is among the documents, the first of its copies, and -1 where it is not; [m]."""
        known, first = np.unique(self.documents, return_index=True)
        wanted = text_hashes(texts)
        place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.where(known[place] == wanted, first[place], -1)

    def untaught(self, frequencies: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the labels whose documents all lie in one fold, so that no model that scored them knew them; [U].

        Args:
            frequencies: [L], training documents of each label: with a single fold, most are not listed here.
        """
        by_label = self.labels.T.tocsr()  # [L, n]
        support = np.diff(by_label.indptr)
        known = np.maximum(read_one_per_label("frequencies", np.asarray(frequencies), self.num_labels), support)
        largest = np.zeros(self.num_labels, dtype=np.int64)
        for fold in np.unique(self.folds):
            largest = np.maximum(largest, np.bincount(self.labels[self.folds == fold].indices, minlength=len(largest)))
        return np.flatnonzero((support > 0) & (largest >= known))

    def scores(self, frequencies: Sequence[int] | np.ndarray | None = None) -> dict[str, float]:
        """Return scores as `evaluate` does; `frequencies` [L] add those of head, medium and tail."""
        known = None if frequencies is None else np.asarray(frequencies)
        return evaluate(self.labels, self.given, frequencies=known) | dict(self.ranking)

    def by_label(
        self,
        label_names: Sequence[str],
        frequencies: Sequence[int] | np.ndarray | None = None,
        thresholds: np.ndarray | None = None,
    ) -> list[LabelScore]:
        """Score each label, as `per_label` does; thresholds, of the finished model, are only shown."""
        known = None if frequencies is None else np.asarray(frequencies)
        return per_label(self.labels, self.given, tuple(label_names), known, thresholds)

    def intervals(self, frequencies: Sequence[int] | np.ndarray) -> dict[str, Interval]:
        """Return 95 % bootstrap intervals over the documents, of micro-F1 and of macro-F1 overall and by third."""
        return draw_scores(self.labels, self.given, label_thirds(np.asarray(frequencies))).intervals()

    def said(self) -> Computed:
        """Return the probabilities of all pairs [n, L], computed block by block.

        Pairs below the floor that are not given have their mean, label by label: their sum is right and all rank the
        same, so that a true pair gains nothing from being stored.
        """

        def block(rows: Index, columns: Index) -> np.ndarray:
            some: Any = self._firm[rows]  # scipy's types know no slice of columns
            part = some[:, columns].tocoo()
            dense = np.repeat(self.rest[columns][None, :], part.shape[0], axis=0)
            dense[part.row, part.col] = part.data
            return dense

        return Computed(self.labels.shape, block)

    @cached_property
    def _firm(self) -> csr_array:
        """The pairs that `said` has as they are: those that reach the floor, and all that are given; [n, L]."""
        said = self.probabilities
        firm = said.data >= self.floors[said.indices]
        firm[_places(said, self.given)] = True
        before = np.concatenate([[0], np.cumsum(firm)])[said.indptr]
        return csr_array((said.data[firm], said.indices[firm], before), shape=said.shape)

    def to_bytes(self) -> bytes:
        """Return the content of its file."""
        said = self.probabilities
        marks = np.zeros(len(said.data), dtype=np.uint8)
        marks[_places(said, self.labels)] += TRUE
        marks[_places(said, self.given)] += GIVEN
        small = _index_type(self.num_labels)
        return save(
            {
                "documents": self.documents,
                "folds": self.folds,
                "counts": np.diff(said.indptr).astype(small),
                "columns": said.indices.astype(small),
                "probabilities": said.data,
                "marks": marks,
                "floors": self.floors,
                "rest": self.rest,
                "ranking": np.array([self.ranking[name] for name in RANKING]),
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> "OutOfFold":
        """Read the content of its file; arrays that do not fit together are refused."""
        try:
            stored = load(content)
        except Exception as error:  # safetensors has errors of its own, and numpy others for types that it lacks
            raise InputError(f"{OUT_OF_FOLD} is not a safetensors file: {error}") from error
        try:
            _refuse_unfit(stored)
        except KeyError as error:
            raise InputError(f"{OUT_OF_FOLD} lacks {error}") from None
        except ValueError as error:
            raise InputError(f"{OUT_OF_FOLD}: {error}") from None
        pairs = (stored[name] for name in ("documents", "folds", "counts", "columns", "probabilities", "marks"))
        ranking = dict(zip(RANKING, stored["ranking"].tolist(), strict=True))
        return cls._of_pairs(*pairs, floors=stored["floors"], rest=stored["rest"], ranking=ranking)


def _read_folds(folds: Sequence[int] | np.ndarray, documents: int) -> np.ndarray:
    found = np.asarray(folds)
    if found.shape != (documents,) or not np.issubdtype(found.dtype, np.integer):
        raise InputError(f"folds must be an integer for each of {documents} documents, got {found.dtype} {found.shape}")
    if found.min() < 0 or found.max() >= MOST_FOLDS:
        raise InputError(f"folds must be from 0 to {MOST_FOLDS - 1}, got {found.min()} to {found.max()}")
    return found.astype(np.uint16)


def _two_parts(documents: np.ndarray) -> np.ndarray:
    """Return 0 or 1 for each document [n], as many of each as can be; copies of a text are in the same part."""
    return np.asarray(np.unique(documents, return_inverse=True)[1] % 2, np.uint16)


def _cuts_of_others(
    parts: np.ndarray, truth: csr_array, probabilities: Scores, config: Config
) -> dict[int, Thresholds]:
    """Fit thresholds for each part on the documents of the others."""
    cuts = {}
    for part in np.unique(parts).tolist():
        others = np.flatnonzero(parts != part)
        known, scores = truth[others], of_documents(probabilities, others)
        cuts[part] = Thresholds(np.full(truth.shape[1], 0.5))
        if known.nnz:
            cuts[part] = fit_thresholds(scores, known, objective=config.thresholds, calibrated=config.calibrate)
    return cuts


def _applied(
    cuts: Mapping[int, Thresholds], parts: np.ndarray, probabilities: np.ndarray, at_least_one: bool
) -> np.ndarray:
    """Return each document's labels by the thresholds of its part, bool [n, L]; parts [n], probabilities [n, L]."""
    given = np.zeros(probabilities.shape, dtype=bool)
    for part in np.unique(parts).tolist():
        given[parts == part] = cuts[part].apply(probabilities[parts == part], at_least_one=at_least_one)
    return given


def _floors(probabilities: Scores, support: np.ndarray) -> np.ndarray:
    """Return each label's floor, [L] of float32: `FLOOR`, or lower, so that enough documents reach it; support [L]."""
    documents = probabilities.shape[0]
    most = np.minimum(np.maximum(2 * support, TOP), documents - 1)  # [L]
    floors = []
    for columns in column_blocks(probabilities.shape):
        ascending = np.sort(probabilities[EVERY, columns].astype(np.float32), axis=0)  # [n, C]
        below = ascending[documents - 1 - most[columns], np.arange(ascending.shape[1])]  # the first that is left out
        floors.append(np.nextafter(below, np.float32(1)))  # with its equals: a label may score the same everywhere
    kept: np.ndarray = np.minimum(np.concatenate(floors), FLOOR)
    return kept


def _places(pattern: csr_array, part: csr_array) -> np.ndarray:
    """Return the place of each stored pair of `part` [n, L] among those of `pattern` [n, L]; both in order."""
    keys = [
        np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)) * np.int64(matrix.shape[1]) + matrix.indices
        for matrix in (pattern, part)
    ]
    if not np.isin(keys[1], keys[0]).all():
        raise InputError("a label that is true or given has no probability")
    return np.searchsorted(keys[0], keys[1])


def _index_type(labels: int) -> type[np.unsignedinteger]:
    """Return the integer type that counts and names labels in the file."""
    return np.uint8 if labels < 2**8 else np.uint16 if labels < 2**16 else np.uint32


def _refuse_unfit(stored: Mapping[str, np.ndarray]) -> None:
    """Raise unless these are the arrays that `to_bytes` writes: products follow the indices wherever they point."""
    documents, labels, pairs = (len(np.atleast_1d(stored[name])) for name in ("documents", "rest", "columns"))
    small = _index_type(labels)
    expected = {
        "documents": (np.uint64, documents),
        "folds": (np.uint16, documents),
        "counts": (small, documents),
        "columns": (small, pairs),
        "probabilities": (np.float32, pairs),
        "marks": (np.uint8, pairs),
        "floors": (np.float32, labels),
        "rest": (np.float32, labels),
        "ranking": (np.float64, len(RANKING)),
    }
    for name, (kind, length) in expected.items():
        found = stored[name]
        if found.dtype != kind or found.shape != (length,):
            raise InputError(f"{name} are {found.dtype} of shape {found.shape} instead of {np.dtype(kind)} ({length},)")
    if not documents or not labels:
        raise InputError(f"it is about {documents} documents and {labels} labels")
    ends = np.cumsum(stored["counts"], dtype=np.int64)
    if ends[-1] != pairs:
        raise InputError(f"the documents have {ends[-1]} pairs together, and {pairs} are listed")
    if stored["columns"].max(initial=0) >= labels:
        raise InputError(f"columns name label {stored['columns'].max()}, and there are {labels} labels")
    rising = np.diff(stored["columns"].astype(np.int64)) > 0
    rising[ends[(ends > 0) & (ends < pairs)] - 1] = True  # where the next document begins
    if not rising.all():
        raise InputError("the columns of a document are not in order")
    for name in ("probabilities", "floors", "rest", "ranking"):
        if not np.all((stored[name] >= 0) & (stored[name] <= 1)):  # written so that NaN is refused too
            raise InputError(f"{name} must lie in [0, 1]")
    if stored["marks"].max(initial=0) > TRUE + GIVEN:
        raise InputError(f"marks must be at most {TRUE + GIVEN}, got {stored['marks'].max()}")
