"""From kept logits to scores: experts mixed in, decisions fitted out of fold, test scored once with each."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

import abalone.evaluation
from abalone.data.corpus import Corpus
from abalone.evaluation.decision import Decision, Thresholds
from abalone.evaluation.metrics import evaluate
from abalone.evaluation.mixing import fit_decision
from abalone.evaluation.out_of_fold import OutOfFold
from abalone.files.atomic import written_whole
from abalone.recipes import recipe
from abalone.training.folds import divide, held_out_labels
from benchmarks.recipe.train import FROZEN, Run, logits_file, read_words, words_file

METRICS = {"micro_f1": "micro-F1", "macro_f1": "macro-F1", "macro_f1_tail": "rarest third"}
CUTS = np.arange(1, 100) / 100  # tried where one cut serves all labels


class Composition(NamedTuple):
    """A model and the experts that are mixed in, in this order; without a contender, words alone.

    Args:
        named: whether the lexical expert has learnt the label names.
    """

    contender: str | None
    experts: tuple[str, ...] = ()
    named: bool = True


BOTH = ("lexical", "neighbours")  # in the order of the pipeline
DEFAULT, PLAIN, WORDS = "default", "bce", "tf-idf + SVM"
ROWS = {
    WORDS: Composition(None),
    f"{WORDS} without names": Composition(None, named=False),
    PLAIN: Composition("bce"),
    "bce + lexical expert": Composition("bce", ("lexical",)),
    "bce + both": Composition("bce", BOTH),
    "msc+db": Composition("msc+db"),
    "msc+db + neighbours": Composition("msc+db", ("neighbours",)),
    "msc+db + lexical expert": Composition("msc+db", ("lexical",)),
    "msc+db + both": Composition("msc+db", BOTH),
    "default without experts": Composition("default"),
    "default, neighbours only": Composition("default", ("neighbours",)),
    "default, lexical expert only": Composition("default", ("lexical",)),
    DEFAULT: Composition("default", BOTH),
    "unnamed without experts": Composition("unnamed"),
    "unnamed, lexical expert only": Composition("unnamed", ("lexical",), named=False),
    "unnamed": Composition("unnamed", BOTH, named=False),
    f"{FROZEN} without experts": Composition(FROZEN),
    FROZEN: Composition(FROZEN, ("lexical",)),
    f"{FROZEN} + neighbours": Composition(FROZEN, BOTH),
}
"""What is compared, by the name in tables and summaries."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """Decisions from out-of-fold documents alone, and what they are worth there.

    Args:
        decision: with a threshold for each label.
        one_cut: the same probabilities with one threshold for all labels, as most papers have it.
        out_of_fold: what was said of each document, by thresholds from the other folds.
    """

    decision: Decision
    one_cut: Decision
    out_of_fold: OutOfFold

    def save(self, file: Path, key: str) -> None:
        """Write them to a file, with the key of what they are made of."""
        made = json.dumps([self.decision.to_dict(), self.one_cut.to_dict()])
        answers = np.frombuffer(self.out_of_fold.to_bytes(), dtype=np.uint8)
        file.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(file) as stream:
            np.savez(stream, key=key, decisions=made, out_of_fold=answers)

    @classmethod
    def read(cls, file: Path, key: str) -> "Fitted | None":
        """Return what `save` wrote; nothing where it was made of something else."""
        if not file.exists():
            return None
        with np.load(file) as stored:
            if str(stored["key"]) != key:
                return None
            decision, one_cut = (Decision.from_dict(each) for each in json.loads(str(stored["decisions"])))
            return cls(decision, one_cut, OutOfFold.from_bytes(stored["out_of_fold"].tobytes()))


class Bench:
    """The logits of one corpus in a folder, and what becomes of them.

    Args:
        corpus: its training split holds all documents for training and validation; test is scored once.
        folder: where `train` has kept logits.
        runs: of this corpus, those that there are logits of.
    """

    def __init__(self, corpus: Corpus, folder: Path, runs: Sequence[Run]) -> None:
        self.corpus, self.folder, self.runs, self.name = corpus, folder, runs, runs[0].corpus
        self.frequencies = np.array(corpus.stats().frequencies)  # [L]
        counts = {story["config"]["folds"] for stories in self.stories.values() for story in stories}
        if len(counts) > 1:
            raise ValueError(f"models of {self.name} have {sorted(counts)} folds; train them with the same number")
        (self.folds,) = counts
        for named in (True, False):
            if not words_file(folder, self.name, self.folds, named).exists():
                read_words(self.name, corpus, folder, self.folds, named)
        self.held_out = held_out_labels(corpus.train, divide(corpus.train, self.folds))

    @cached_property
    def stories(self) -> dict[str, list[dict[str, Any]]]:
        """Return how the models of each contender were made."""
        found: dict[str, list[dict[str, Any]]] = {}
        for run in self.runs:
            found.setdefault(run.contender, []).append({"seed": run.seed, **_story(logits_file(self.folder, run))})
        return found

    def seeds(self, row: str) -> list[int]:
        """Return the seeds that a row has; words know none, so that one stands for all."""
        contender = ROWS[row].contender
        return [0] if contender is None else [story["seed"] for story in self.stories.get(contender, ())]

    @property
    def rows(self) -> list[str]:
        """Return the rows of which there is a model."""
        return [row for row in ROWS if self.seeds(row)]

    @property
    def leader(self) -> str:
        """Return the row that the others are compared with."""
        return FROZEN if FROZEN in self.stories else DEFAULT

    @property
    def target(self) -> Path:
        """Return the folder of the tables; `fast` has tables of its own, since it has other folds."""
        return self.folder / (f"{self.name}-{FROZEN}" if self.leader == FROZEN else self.name)

    def fit(self, row: str, seed: int) -> Fitted:
        """Fit the decision to the out-of-fold documents as training does, unless that has been done."""
        logits, experts = self._logits(row, seed, "held out")
        key = self._key(logits, *experts.values())
        plain = re.sub(r"\W+", "-", row)
        file = self.folder / "logits" / "decisions" / f"{self.name}_{plain}_{seed}.npz"
        kept = Fitted.read(file, key)
        if kept is not None:
            return kept
        held, settings = self.held_out, recipe()
        decision = fit_decision(logits, experts, held["learnable"], self.frequencies, settings)
        probabilities = decision.probabilities(logits, experts)  # [n, L]
        one_cut = replace(decision, thresholds=best_cut(probabilities, held["learnable"]))
        answers = OutOfFold.of(held["documents"], held["folds"], held["labels"], probabilities, settings)
        made = Fitted(decision, one_cut, answers)
        made.save(file, key)
        return made

    def given(self, row: str, seed: int, decision: Decision) -> csr_array:
        """Return the labels [n, L] that a decision gives to the test documents."""
        return csr_array(decision.labels(decision.probabilities(*self._logits(row, seed, "test"))))

    def test_scores(self, given: csr_array) -> dict[str, float]:
        """Return what labels [n, L] of the test documents are worth."""
        return in_percent(evaluate(self.corpus.test.labels, given, frequencies=self.frequencies))

    def out_of_fold_scores(self, answers: OutOfFold) -> dict[str, float]:
        """Return what the answers about documents trained on are worth."""
        return in_percent(answers.scores(self.frequencies))

    def _logits(self, row: str, seed: int, split: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the logits [n, L] of the classifier and of each expert; those of no other split are read."""
        contender, experts, named = ROWS[row]
        words = words_file(self.folder, self.name, self.folds, named)
        if contender is None:
            return _read(words, f"{split} lexical"), {}
        own = logits_file(self.folder, Run(self.name, contender, seed))
        said = {each: _read(words if each == "lexical" else own, f"{split} {each}") for each in experts}
        return _read(own, f"{split} head"), said

    def _key(self, *logits: np.ndarray) -> str:
        """Return a name for everything that a decision follows from: logits, truth, settings, and the code."""
        held, settings = self.held_out, recipe()
        digest = hashlib.sha256(repr((settings.calibrate, settings.thresholds, settings.at_least_one)).encode())
        for matrix in (held["labels"], held["learnable"]):
            digest.update(matrix.indptr.astype(np.int64).tobytes() + matrix.indices.astype(np.int64).tobytes())
        for array in (held["documents"], held["folds"], *logits):
            digest.update(np.ascontiguousarray(array).tobytes())
        for file in sorted(Path(*abalone.evaluation.__path__).glob("*.py")):
            digest.update(file.read_bytes())
        return digest.hexdigest()


def best_cut(probabilities: np.ndarray, labels: csr_array) -> Thresholds:
    """Return the one threshold for all labels with the highest macro-F1, the lowest of equals.

    Args:
        probabilities: [n, L], of documents that were not trained on.
        labels: [n, L], of the same.
    """
    every = [Thresholds(np.full(labels.shape[1], cut)) for cut in CUTS]
    at_least_one = recipe().at_least_one
    return max(every, key=lambda cut: evaluate(labels, cut.apply(probabilities, at_least_one))["macro_f1"])


def in_percent(scores: dict[str, float]) -> dict[str, float]:
    """Return the metrics of the tables."""
    return {metric: round(100 * scores[metric], 3) for metric in METRICS}


def _read(file: Path, name: str) -> np.ndarray:
    with np.load(file) as stored:
        logits: np.ndarray = stored[name].astype(np.float32)
    return logits


def _story(file: Path) -> dict[str, Any]:
    with np.load(file) as stored:
        story: dict[str, Any] = json.loads(str(stored["story"]))
    return story
