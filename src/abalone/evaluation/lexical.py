"""The lexical expert: word counts and one linear SVM a label, in about a minute on two cores.

It is what people use today, so it is the baseline to beat. And it knows words that decide rare labels, which an
encoder has seen too seldom, so it is worth mixing in (`abalone.evaluation.mixing`).
"""

import hashlib
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors
from scipy.sparse import csr_array, vstack
from scipy.special import expit

from abalone.data.store import take
from abalone.errors import InputError, readable
from abalone.evaluation import matrices
from abalone.evaluation.calibration import PlattScaling
from abalone.evaluation.matrices import Computed, Index, Labels, Scores, held, read_labels
from abalone.evaluation.tfidf import TermCounts, Tfidf
from abalone.files.atomic import written_whole
from abalone.files.schema import NUMBER, misfit

TENSORS, SETTINGS = "lexical.safetensors", "lexical.json"
FORMAT = 2  # of the two files; raised when an older reader would misread them. 1 knew no pieces of words
SHAPE = {
    "settings": {"max_features": int, "min_df": int, "c": NUMBER, "seed": int},
    "link": {field.name: NUMBER for field in fields(PlattScaling)},
    "documents": int,
    "sha256": str,
    "terms": [str],
    "pieces?": [str],
}
BLOCK = 4096  # documents scored at a time, so that only their tf-idf rows are held beside the result
MAX_ITERATIONS = 2000  # real corpora take under a hundred
SMALL = 2e7  # tf-idf entries × labels: less is fitted before other processes would have started
# Share of a label's squared weights that is kept. On arXiv abstracts that is a fifth of the entries, and validation
# average precision stays within 0.1 points for the head, medium and tail third of the labels alike.
KEPT = 0.95


class LexicalModel:
    """tf-idf over words, pairs of neighbouring words and pieces of words, and a linear SVM (squared hinge) per label.

    A label that no training document carries, or every one, has nothing to be learnt from: its logit is the same for
    all texts, log((n⁺ + ½)/(n − n⁺ + ½)). So is every label's if no word occurs often enough to be counted.

    Args:
        max_features: the most frequent words and pairs that are kept; and as many pieces.
        min_df: in how many documents one must occur; 2, so that a label with two documents has words.
        c: inverse strength of the regularisation. Of 0.1 … 2, larger is better on Reuters and smaller on arXiv
            abstracts; at 0.5 both are within a point of their best average precision. Mean macro-F1 over both, whole,
            in part and few-shot, beside 0.5: −0.5 at 0.25, −0.1 at 1 and 2. Weights for rare labels add nothing: +0.1
            if positives weigh √(n⁻/n⁺), −0.1 if n⁻/n⁺, and take up to twice as long.
        seed: of the solver; the same seed gives the same weights, whatever `jobs` is.
        jobs: processes to fit in; one a core by default, or this one alone if there is little to do.

    Example:
        >>> texts = ["red apple", "green apple", "red car", "green car"] * 5
        >>> fruit = np.array([[1], [1], [0], [0]] * 5)
        >>> model = LexicalModel().fit(texts, fruit)
        >>> (model.predict_proba(["an apple", "a car"]) > 0.5).tolist()
        [[True], [False]]
    """

    def __init__(
        self, *, max_features: int = 200_000, min_df: int = 2, c: float = 0.5, seed: int = 0, jobs: int | None = None
    ) -> None:
        for name, value in (("max_features", max_features), ("min_df", min_df), ("c", c), ("jobs", jobs)):
            if value is not None and not value > 0:
                raise InputError(f"{name} must be above 0, got {value}")
        self.max_features, self.min_df, self.c, self.seed, self.jobs = max_features, min_df, c, seed, jobs
        self.link = PlattScaling()
        self._learnt: _Learnt | None = None

    def fit(self, texts: Sequence[str], labels: Labels) -> "LexicalModel":
        """Learn from documents with labels [n, L].

        Logits are made by the default `PlattScaling` until `calibrate` fits one to held-out documents.
        """
        truth = _read_documents(texts, labels)
        return self._fit(TermCounts.of(texts, min_df=self.min_df), np.arange(len(texts)), truth)

    def fit_counts(self, counts: TermCounts, rows: np.ndarray, labels: Labels) -> "LexicalModel":
        """Learn from some of the documents that are counted, as `fit` would from these alone.

        Only whether there are pieces of words is decided by all that are counted, so that models of several folds and
        of all documents are alike.

        Args:
            counts: of all documents.
            rows: [n], which of them to learn from.
            labels: [n, L], of these.
        """
        return self._fit(counts, rows, _read_labels(labels, len(rows)))

    def _fit(self, counts: TermCounts, rows: np.ndarray, truth: csr_array) -> "LexicalModel":
        # Here and below, so that a model can be read and asked without it.
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.utils.parallel import Parallel, delayed

        tfidf, features = counts.fitted(rows, self.min_df, self.max_features)  # [n, F]
        if not features.shape[1]:
            reason = f"no word occurs in {self.min_df} of the {len(rows)} texts"
            warnings.warn(f"{reason}, so each label gets the same score on all texts", stacklevel=3)
        by_label = truth.T.tocsr()  # [L, n]
        # In processes, not threads: the solver draws from one sequence of random numbers in a whole process.
        jobs = 1 if features.nnz * truth.shape[1] < SMALL else self.jobs or -1
        fits = Parallel(n_jobs=jobs)(
            delayed(_fit_label)(features, by_label[[label]].toarray()[0], self.c, self.seed)
            for label in range(truth.shape[1])
        )
        coefficients, bias, converged = zip(*fits, strict=True)
        if not all(converged):
            warnings.warn(
                f"{converged.count(False)} of {len(converged)} labels did not converge in {MAX_ITERATIONS} iterations; "
                f"their scores are usable, but lower c (now {self.c}) to be sure",
                ConvergenceWarning,
                stacklevel=3,
            )
        weights = csr_array(vstack(coefficients).T)  # [F, L]
        self._learnt = _Learnt(tfidf, weights, np.array(bias), np.diff(by_label.indptr), len(rows))
        self.link = PlattScaling()
        return self

    def calibrate(self, texts: Sequence[str], labels: Labels) -> "LexicalModel":
        """Fit the `PlattScaling` to documents that were not trained on, with labels [n, L].

        Of many documents and labels some, evenly spread, are enough for its four numbers.
        """
        learnt, truth = self._fitted(), _read_documents(texts, labels)
        if truth.shape[1] != len(learnt.positives):
            raise InputError(f"labels must have {len(learnt.positives)} columns as in fit, got shape {truth.shape}")
        varied = ~learnt.constant
        if varied.any():
            rows = np.arange(0, len(texts), math.ceil(truth.shape[0] * truth.shape[1] / matrices.AT_ONCE))
            positive = truth[rows].toarray()[:, varied] == 1
            decisions = learnt.decisions(take(texts, rows))[:, varied]
            self.link = PlattScaling.fitted(decisions, positive, learnt.log_odds[varied])
        return self

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """Return logits [n, L] in float32, to be read like a neural classifier's."""
        learnt = self._fitted()
        _check_texts(texts)
        logits = np.empty((len(texts), len(learnt.positives)), dtype=np.float32)
        for start in range(0, len(texts), BLOCK):
            block = slice(start, start + BLOCK)
            logits[block] = self.link.logits(learnt.decisions(texts[block]), learnt.log_odds)
        logits[:, learnt.constant] = learnt.log_odds[learnt.constant]
        return logits

    def decisions_of(self, counts: TermCounts, rows: np.ndarray) -> np.ndarray:
        """Return the SVMs' decision values of counted documents, [n, L] in float32, for `PlattScaling`.

        Args:
            counts: those that the model was fitted to a part of.
            rows: [n], which documents.
        """
        learnt = self._fitted()
        features = counts.rows(rows, learnt.tfidf)  # [n, F]
        decisions = np.empty((len(rows), len(learnt.positives)), dtype=np.float32)
        for start in range(0, len(rows), BLOCK):
            decisions[start : start + BLOCK] = learnt.decided(features[start : start + BLOCK])
        return decisions

    def logits_in_blocks(self, texts: Sequence[str]) -> Scores:
        """Return `scores`, computed block by block where documents and labels are many."""
        learnt = self._fitted()
        shape = len(texts), len(learnt.positives)
        if shape[0] * shape[1] <= matrices.AT_ONCE:
            return self.scores(texts)
        _check_texts(texts)
        starts = range(0, len(texts), BLOCK)
        return self._computed(csr_array(vstack([learnt.tfidf.rows(texts[start : start + BLOCK]) for start in starts])))

    def logits_of(self, counts: TermCounts, rows: np.ndarray) -> Scores:
        """Return `logits_in_blocks` of counted documents; arguments as `decisions_of`."""
        return held(self._computed(counts.rows(rows, self._fitted().tfidf)))

    def _computed(self, features: csr_array) -> Computed:
        """Return the logits of tf-idf rows [n, F], [n, L]."""
        learnt = self._fitted()
        by_label = learnt.weights.T.tocsr()  # [L, F]

        def block(rows: Index, columns: Index) -> np.ndarray:
            decisions = (features[rows] @ by_label[columns].T).toarray() + learnt.bias[columns]
            log_odds, constant = learnt.log_odds[columns], learnt.constant[columns]
            logits = self.link.logits(decisions, log_odds).astype(np.float32)
            logits[:, constant] = log_odds[constant]
            return logits

        return Computed((features.shape[0], len(learnt.positives)), block)

    def rows(self, texts: Sequence[str]) -> csr_array:
        """Return tf-idf rows of length 1 of whole words alone, [n, F]; zeros for a text without a known word."""
        return self._fitted().tfidf.rows(texts, by_word=True)

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        """Return probabilities [n, L], σ of the scores."""
        probabilities: np.ndarray = expit(self.scores(texts))
        return probabilities

    def save(self, folder: str | Path) -> None:
        """Write `lexical.safetensors` and `lexical.json` into `folder`, each whole or not at all."""
        for name, content in self.contents().items():
            with written_whole(Path(folder) / name) as file:
                file.write(content)

    def contents(self) -> dict[str, bytes]:
        """Return the files that `save` writes, by name."""
        learnt = self._fitted()
        weights = {f"weights.{part}": getattr(learnt.weights, part) for part in ("data", "indices", "indptr")}
        tensors = save_tensors(
            {"idf": learnt.tfidf.idf, "bias": learnt.bias, "positives": learnt.positives.astype(np.int64), **weights}
        )
        settings = {
            "format": FORMAT,
            "settings": {"max_features": self.max_features, "min_df": self.min_df, "c": self.c, "seed": self.seed},
            "link": asdict(self.link),
            "documents": learnt.documents,
            "sha256": hashlib.sha256(tensors).hexdigest(),
            "terms": learnt.tfidf.terms,
            "pieces": learnt.tfidf.pieces,
        }
        return {TENSORS: tensors, SETTINGS: json.dumps(settings).encode()}

    @classmethod
    def load(cls, folder: str | Path) -> "LexicalModel":
        """Read what `save` wrote; scores are the same to the last bit."""
        return cls.from_contents({name: (Path(folder) / name).read_bytes() for name in (SETTINGS, TENSORS)}, folder)

    @classmethod
    def from_contents(cls, contents: Mapping[str, bytes], folder: str | Path = "") -> "LexicalModel":
        """Read what `contents` returned; `folder` is for messages."""
        stored = _read_settings(contents[SETTINGS], Path(folder) / SETTINGS)
        if hashlib.sha256(contents[TENSORS]).hexdigest() != stored["sha256"]:
            raise InputError(f"{Path(folder) / TENSORS}: damaged, or from another save than {SETTINGS}; save it again")
        tensors = load_tensors(contents[TENSORS])
        tfidf = Tfidf(stored["terms"], tensors["idf"], stored.get("pieces", []))
        weights = csr_array(
            tuple(tensors[f"weights.{part}"] for part in ("data", "indices", "indptr")),
            shape=(len(tfidf.idf), len(tensors["bias"])),
        )
        weights.check_format(full_check=True)  # products follow the indices wherever they point
        model = cls(**stored["settings"])
        model.link = PlattScaling(**stored["link"])
        model._learnt = _Learnt(tfidf, weights, tensors["bias"], tensors["positives"], stored["documents"])
        return model

    @property
    def num_labels(self) -> int:
        """The number of labels, L."""
        return len(self._fitted().positives)

    @property
    def log_odds(self) -> np.ndarray:
        """[L], of the labels' shares in training; finite even if none or all documents carry one."""
        return self._fitted().log_odds

    @property
    def constant(self) -> np.ndarray:
        """[L] of bool, the labels that nothing could be learnt for: their logits are their log-odds."""
        return self._fitted().constant

    def _fitted(self) -> "_Learnt":
        if self._learnt is None:
            from sklearn.exceptions import NotFittedError

            raise NotFittedError("this LexicalModel is not fitted yet; call fit(texts, labels) first")
        return self._learnt


@dataclass(frozen=True, eq=False)
class _Learnt:
    """The fitted parts of a model, as the files hold them."""

    tfidf: Tfidf  # even right after fitting, so that a model read back can only score the same
    weights: csr_array  # [F, L]
    bias: np.ndarray  # [L]
    positives: np.ndarray  # [L], training documents of each label
    documents: int

    @cached_property
    def log_odds(self) -> np.ndarray:
        """[L], of the labels' shares in training; finite even if none or all documents carry one."""
        values: np.ndarray = np.log((self.positives + 0.5) / (self.documents - self.positives + 0.5))
        return values

    @cached_property
    def constant(self) -> np.ndarray:
        """[L], which labels nothing could be learnt for."""
        same: np.ndarray = (self.positives == 0) | (self.positives == self.documents) | (not self.tfidf.idf.size)
        return same

    def decisions(self, texts: Sequence[str]) -> np.ndarray:
        """Return the SVMs' decision values, [n, L]; 0 for constant labels."""
        return self.decided(self.tfidf.rows(texts))

    def decided(self, rows: csr_array) -> np.ndarray:
        """Return `decisions` of tf-idf rows [n, F]."""
        values: np.ndarray = (rows @ self.weights).toarray() + self.bias
        return values


def _fit_label(features: Any, target: np.ndarray, c: float, seed: int) -> tuple[csr_array, float, bool]:
    """Fit weights [1, F] and bias of one label, and say whether they settled; zeros where there is nothing to learn."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    if features.shape[1] == 0 or target.min() == target.max():
        return csr_array((1, features.shape[1]), dtype=np.float32), 0.0, True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # `fit` says it once for all labels
        svm = LinearSVC(C=c, random_state=seed, max_iter=MAX_ITERATIONS).fit(features, target)
    weights = svm.coef_[0]
    descending = np.argsort(-np.abs(weights), kind="stable")
    kept = np.searchsorted(np.cumsum(weights[descending] ** 2), KEPT * (weights @ weights)) + 1
    weights[descending[kept:]] = 0
    return csr_array(weights[None, :].astype(np.float32)), float(svm.intercept_[0]), bool(svm.n_iter_ < MAX_ITERATIONS)


def _read_documents(texts: Sequence[str], labels: Labels) -> csr_array:
    """Check the texts and read their labels [n, L]."""
    _check_texts(texts)
    return _read_labels(labels, len(texts))


def _read_labels(labels: Labels, documents: int) -> csr_array:
    truth = read_labels("labels", labels)
    if documents != truth.shape[0]:
        raise InputError(f"texts and labels must have the same number of rows, got {documents} and {truth.shape}")
    return truth


def _check_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise InputError(f"texts must be a list of strings, got one string: {texts[:40]!r}")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"texts must be strings, got {type(text).__name__} in row {row}: {text!r}")


def _read_settings(content: bytes, path: Path) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = json.loads(content)
        found = stored["format"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{path}: not the settings of a lexical model ({readable(str(error))})") from error
    if found not in range(1, FORMAT + 1):
        raise InputError(f"{path}: format {found}, but this version reads formats 1 to {FORMAT}")
    if wrong := misfit(stored, SHAPE):
        raise InputError(f"{path}: not the settings of a lexical model ({wrong})")
    return stored
