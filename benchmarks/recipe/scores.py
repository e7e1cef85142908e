"""From kept logits to scores: experts mixed in, decisions fitted on validation, test scored once with each."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from abalone.data.corpus import Corpus
from abalone.evaluation.blocks import EVERY
from abalone.evaluation.decision import Decision, fit_decision
from abalone.evaluation.metrics import evaluate
from abalone.recipes import recipe
from benchmarks.recipe.train import CONTENDERS, logits_file, words_file

METRICS = {"micro_f1": "micro-F1", "macro_f1": "macro-F1", "macro_f1_tail": "rarest third"}
NAMES = {"bce": "BCE", "msc+bce": "MSC + BCE", "msc": "MSC, probe", "lexical": "tf-idf + SVM"}
EXPERTS = {"neighbours": "neighbours", "lexical": "lexical expert"}
Rows = np.ndarray | slice
MIXED_IN: tuple[tuple[str, ...], ...] = ((), ("neighbours",), ("lexical",), ("lexical", "neighbours"))


@dataclass(frozen=True)
class Composition:
    """A model and what is mixed in.

    Args:
        contender: of `CONTENDERS`, or "lexical", the expert alone.
        experts: mixed in, in this order.
    """

    contender: str
    experts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As the table calls it."""
        return " + ".join((NAMES[self.contender], *(EXPERTS[expert] for expert in self.experts)))


PLAIN, RECIPE = Composition("bce"), Composition("msc+bce", ("lexical", "neighbours"))


@dataclass(frozen=True)
class Scored:
    """What one composition with one seed came to, and what it gave to the test documents."""

    scores: dict[str, float]
    weights: dict[str, float]
    given: np.ndarray  # [n, L] of bool


class Bench:
    """The logits in a folder, and what becomes of them.

    Args:
        corpus: validation fits every decision, test is scored once with each.
        folder: where `train` and `read_words` have kept their logits.
        seeds: of the models.
    """

    def __init__(self, corpus: Corpus, folder: Path, seeds: Sequence[int]) -> None:
        self.corpus, self.folder, self.seeds = corpus, folder, seeds
        self.frequencies = np.array(corpus.stats().frequencies)

    def contenders(self) -> list[str]:
        """Those that have a model of every seed."""
        return [
            name for name in CONTENDERS if all(logits_file(self.folder, name, seed).exists() for seed in self.seeds)
        ]

    def stories(self, contender: str) -> list[dict[str, Any]]:
        """How the models of a contender were made."""
        files = (np.load(logits_file(self.folder, contender, seed)) for seed in self.seeds)
        return [json.loads(str(file["story"])) for file in files]

    def score(self, composition: Composition, seed: int) -> Scored:
        """Fit the decision on validation, and score it there (crosswise) and on test."""
        settings = recipe()
        truth = {name: split.labels for name, split in self.corpus.splits()}
        logits = {split: self._logits(composition.contender, seed, split) for split in ("validation", "test")}
        experts = {
            split: {expert: self._logits(composition.contender, seed, split, expert) for expert in composition.experts}
            for split in logits
        }

        def said(split: str, rows: Rows) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            return logits[split][rows], {name: expert[rows] for name, expert in experts[split].items()}

        def decide(rows: Rows) -> Decision:
            return fit_decision(*said("validation", rows), truth["validation"][rows], self.frequencies, settings)

        crosswise = np.empty(truth["validation"].shape, dtype=bool)
        order = np.random.default_rng(0).permutation(len(crosswise))
        for here, there in ((order[::2], order[1::2]), (order[1::2], order[::2])):
            crosswise[there] = given_by(decide(here), *said("validation", there))
        decision = decide(EVERY)
        given = given_by(decision, *said("test", EVERY))
        at_half = decision.mixture.apply(*said("test", EVERY)) >= 0
        scores = (
            self._scores("test", truth["test"], given)
            | self._scores("test at 0.5", truth["test"], at_half)
            | self._scores("validation, crosswise", truth["validation"], crosswise)
        )
        return Scored(scores, decision.mixture.to_dict(), given)

    def _logits(self, contender: str, seed: int, split: str, of: str = "head") -> np.ndarray:
        if "lexical" in (contender, of):
            file, of = words_file(self.folder), "lexical"
        else:
            file = logits_file(self.folder, contender, seed)
        logits: np.ndarray = np.load(file)[f"{split} {of}"].astype(np.float32)
        return logits

    def _scores(self, where: str, truth: csr_array, given: np.ndarray) -> dict[str, float]:
        found = evaluate(truth, given, frequencies=self.frequencies)
        return {f"{where}: {metric}": round(100 * found[metric], 3) for metric in METRICS}


def given_by(decision: Decision, logits: np.ndarray, experts: dict[str, np.ndarray]) -> np.ndarray:
    """The labels [n, L] that a decision gives."""
    return decision.labels(decision.probabilities(logits, experts))
