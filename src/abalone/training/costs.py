"""What the parts of a run cost on this machine: measured where that is quick, guessed from measured constants else."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from abalone.data.corpus import Corpus
from abalone.data.store import take
from abalone.encoder.text_encoder import TextEncoder
from abalone.evaluation.crossfit_probe import CrossFitProbe
from abalone.evaluation.mixing import ENOUGH
from abalone.evaluation.tfidf import TermCounts
from abalone.progress import Timetable
from abalone.recipes import recipe
from abalone.training.open_settings import HELD_OUT, settled, trained_shares
from abalone.training.run import TrainingRun

READ = "read"  # the kind of work that is tokens × layers, forward

# Seconds on one core of an AMD EPYC of 2024, quiet: `python -m benchmarks.times` tells whether they hold elsewhere.
A_TOKEN = 4e-5  # through a layer of width 384, for the guess until something is measured
GPU_TOKEN = 2e-8  # the same on an H200
COUNTED_CHARACTER = 3.8e-7  # counting words and pieces of words
FITTED_CHARACTER = 1.9e-8  # fitting tf-idf + SVM, by label
PARALLEL = 5e7  # characters × labels: fewer are fitted in one process
PROBE_STEP, PROBED_FEATURE = 4e-4, 3.9e-8  # a step of cross-fitted probes, and by label and width
GRID_FEATURE = 7.6e-8  # probes with every setting of the paper, by document, label and width
AN_EXPERT, DECIDED_PAIR = 0.25, 1.1e-5  # the decision, for each expert: as such, and by document and label
SAMPLE = 200  # documents whose words are counted to see how fast the processor is


def measure_slowness(corpus: Corpus, clock: Callable[[], float] = time.monotonic) -> float:
    """Return how slow this processor is beside the one that the constants are from, busy neighbours included.

    Not by what the encoder takes: a processor with bf16 reads twice as fast, and fits no faster.
    """
    documents = len(corpus.train)
    rows = np.arange(0, documents, max(documents // SAMPLE, 1))
    texts = take(corpus.train.texts, rows)
    TermCounts.of(texts[:5], min_df=1, with_pieces=True)  # the first time is not typical
    before = clock()
    TermCounts.of(texts, min_df=1, with_pieces=True)
    characters = sum(map(len, texts))
    return (clock() - before) / (COUNTED_CHARACTER * characters) if characters else 1.0


@dataclass(frozen=True)
class Costs:
    """Seconds that parts of the work take here.

    Args:
        token: a token through a layer, forward.
        measured: whether that was, rather than guessed.
        slowness: of one core, as `measure_slowness` tells.
        cores: that share work which can be shared.
        on_cpu: whether the probes are fitted by the processor too.
        width: of the encoder.
        characters: of the mean document.
    """

    token: float
    measured: bool
    slowness: float
    cores: int
    on_cpu: bool
    width: int
    characters: float

    @classmethod
    def here(
        cls, timetable: Timetable, corpus: Corpus, encoder: TextEncoder, device: torch.device, slowness: float
    ) -> "Costs":
        """Take what was measured, and guess the rest."""
        on_cpu, width = device.type == "cpu", encoder.hidden_size
        guess = (A_TOKEN if on_cpu else GPU_TOKEN) * (width / 384) ** 2
        token = timetable.cost(READ, guess)
        documents = len(corpus.train)
        looked_at = range(0, documents, max(documents // 1000, 1))
        mean = sum(len(corpus.train.texts[row]) for row in looked_at) / max(len(looked_at), 1)
        return cls(token, token != guess, slowness, torch.get_num_threads(), on_cpu, width, mean)

    @property
    def counted(self) -> float:
        """Of a document whose words are counted, in one thread."""
        return self.slowness * COUNTED_CHARACTER * self.characters

    def words(self, corpus: Corpus) -> float:
        """Of a document that a tf-idf expert is fitted to."""
        labels, characters = len(corpus.label_names), self.characters * len(corpus.train)
        cores = self.cores if characters * labels > PARALLEL else 1
        return self.slowness * FITTED_CHARACTER * labels * self.characters / cores

    def grid_probe(self, corpus: Corpus) -> float:
        """Of fitting the probes of the paper once, with every setting."""
        pairs = len(corpus.train) * len(corpus.label_names)
        return self._shared(GRID_FEATURE * pairs * self.width)

    def probe(self, corpus: Corpus, folds: int) -> float:
        """Of fitting cross-fitted probes to one fold, with one of their settings."""
        probe = CrossFitProbe()
        documents = len(corpus.train) * (1 - (HELD_OUT if folds < 2 else 1 / folds))
        steps = max(probe.epochs * documents / probe.batch_size, probe.least_steps)
        a_step = PROBE_STEP + PROBED_FEATURE * len(corpus.label_names) * self.width
        return self._shared(steps * a_step) / len(probe.settings)

    def decision(self, corpus: Corpus, documents: float, experts: int) -> float:
        """Of weights, temperatures and thresholds, fitted to so many documents."""
        pairs = min(documents * len(corpus.label_names), ENOUGH)
        return self.slowness * max(experts, 0.5) * (AN_EXPERT + DECIDED_PAIR * pairs)

    def fast(self, run: TrainingRun, corpus: Corpus, depth: int) -> float:
        """Of the recipe `fast`: it reads the first tokens of each document, and fits the rest to each fold and all."""
        settings = recipe("fast")
        documents = len(corpus.train) + len(corpus.validation)
        folds = settled(settings, documents, on_cpu=self.on_cpu).folds or 0
        lengths = [feed.lengths for feed in (run.train, run.validation) if feed is not None]
        tokens = float(np.minimum(np.concatenate(lengths), settings.max_length).sum())
        words = documents * (self.counted + trained_shares(folds) * self.words(corpus))
        probes = (folds * len(CrossFitProbe().settings) + 1) * self.probe(corpus, folds)
        return tokens * depth * self.token + words + probes + self.decision(corpus, documents, 1)

    def _shared(self, seconds: float) -> float:
        """Of work with matrices, which all cores or the GPU do."""
        return self.slowness * seconds / self.cores if self.on_cpu else seconds / 100
