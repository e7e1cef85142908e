"""Accuracy of the times that training announces, against the time it then took.

`python -m benchmarks.times` trains on a part of each corpus, with every recipe that trains beside an encoder. Moments
without a shown time, such as the last seconds, do not count. With `--cpu-time` the clock is the CPU time of this
process, which then has one thread: so it can be measured on a busy machine too, where the time that is left changes as
neighbours come and go.
"""

import os
import tempfile
import time
import warnings
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from abalone.data.corpus import Corpus, Split
from abalone.data.load import load_corpus
from abalone.data.store import take
from abalone.recipes import recipe
from abalone.training import pipeline
from abalone.training.estimate import Estimate, timed
from abalone.training.pipeline import fit
from abalone.training.progress import RunProgress
from benchmarks.measure import Line, show

WITHIN = 1 / 3  # of what it took: as far as a time may be off
# Documents and settings: a few minutes each on two cores.
RUNS = {"rare": (300, {"max_length": 96, "epochs": 2}), "fast": (3_000, {})}


@dataclass
class Told:
    """The times that a run announced.

    Args:
        total: seconds, announced before the first step; None without an announcement.
        moments: (seconds on the clock, seconds left) as they were shown.
        ended: seconds on the clock.
    """

    clock: Callable[[], float]
    started: float = 0.0
    total: float | None = None
    moments: list[tuple[float, float]] = field(default_factory=list)
    ended: float = 0.0

    def on_estimate(self, estimate: Estimate) -> None:
        """Record the total; work before its announcement is not part of it."""
        self.started, self.total = self.clock(), estimate.seconds

    @property
    def taken(self) -> float:
        """Seconds from the announcement to the end."""
        return self.ended - self.started

    def off(self) -> list[tuple[float, float]]:
        """Return announced and true seconds of the moments that were off by more than a third of the truth."""
        pairs = [(left, self.ended - now) for now, left in self.moments]
        return [(left, true) for left, true in pairs if abs(left - true) > WITHIN * true]


@contextmanager
def listening(told: Told) -> Iterator[None]:
    """Record every time that would be shown, without a terminal."""
    done = RunProgress.done

    def noting(self: RunProgress, kind: str, units: float) -> None:
        done(self, kind, units)
        left = self.left()
        if left is not None:
            told.moments.append((told.clock(), left))

    with mock.patch.object(RunProgress, "done", noting):
        yield


def part_of(corpus: Corpus, documents: int) -> Corpus:
    """Return some of the documents for training and validation, chosen at random, with the labels they carry."""
    whole = corpus.with_validation_in_train()
    rows = np.sort(np.random.default_rng(0).permutation(len(whole.train))[:documents])
    labels = whole.train.labels[rows]
    kept = np.flatnonzero(np.asarray(labels.sum(axis=0)).ravel())
    train = Split(take(whole.train.texts, rows), labels[:, kept])
    nothing = Split([], train.labels[:0])
    return Corpus(train, nothing, nothing, tuple(whole.label_names[column] for column in kept), name=whole.name)


def line_of(name: str, corpus: Corpus, documents: int, settings: dict[str, int], clock: Callable[[], float]) -> Line:
    """Train once, and return the line of the table: how far the times were off."""
    with tempfile.TemporaryDirectory() as folder:
        told = Told(clock, started=clock())
        by_clock = mock.patch.object(pipeline, "timed", partial(timed, clock=clock))
        with listening(told), by_clock, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a part of a corpus gives models of which much could be said
            fit(recipe(name, **settings), part_of(corpus, documents), Path(folder), on_estimate=told.on_estimate)
        told.ended = clock()
    off = told.off()
    worst = max(off, key=lambda pair: abs(pair[0] - pair[1]), default=None)
    for left, true in off:
        print(f"  told {left:.1f} s, true {true:.1f} s")
    total = "–" if told.total is None else f"{told.total:.0f} s"
    ratio = "–" if told.total is None else f"{told.total / told.taken:.2f}×"
    what = f"{corpus.name}, {name}: moments off by over a third: {len(off)} of {len(told.moments)}"
    if worst is not None:
        what += f", worst {worst[0]:.0f} s told, {worst[1]:.0f} s true"
    return Line(what, f"{told.taken:.0f} s", total, ratio, "0.67 to 1.33×")


def main() -> None:
    """Train on a part of each given corpus, and of the bundled one."""
    parser = ArgumentParser("python -m benchmarks.times", description=__doc__)
    parser.add_argument("--reuters", help="the archive of Reuters-21578")
    parser.add_argument("--arxiv54", help="the folder of arxiv54")
    parser.add_argument("--cpu-time", action="store_true", help="by the CPU time of this process, with one thread")
    asked = parser.parse_args()
    clock = time.monotonic
    if asked.cpu_time:
        clock = time.process_time
        torch.set_num_threads(1)
        os.environ["LOKY_MAX_CPU_COUNT"] = "1"  # tf-idf is fitted in this process
    corpora = [load_corpus("arxiv-sample")]
    if asked.reuters:
        corpora.append(load_corpus("reuters", path=asked.reuters))
    if asked.arxiv54:
        corpora.append(load_corpus(asked.arxiv54))
    lines = [line_of(name, corpus, *RUNS[name], clock) for corpus in corpora for name in RUNS]
    show("Times that training tells; plain = what it took, ours = what was told before the first step", lines)


if __name__ == "__main__":
    main()
