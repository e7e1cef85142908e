"""Execution of the runs that tables need: one after the other, or in several processes on one machine."""

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Self

import torch

from abalone.config import Config
from abalone.data.corpus import Corpus
from abalone.errors import InputError
from abalone.files.atomic import alone_in, remove_folder
from abalone.reproduce.fingerprints import encoder_fingerprint
from abalone.reproduce.grid import ROWS, Experiment, Grid, Run, Scored, wanted_runs
from abalone.reproduce.results import RESULTS, CorpusCard, Record, Results
from abalone.reproduce.task import Task, carry_out

LOG, ERROR = "log.txt", "error.txt"
LAST_STEP = 60.0  # seconds that an interrupted process has to finish its step and save


@dataclass(frozen=True)
class Failure:
    """A run that raised, or whose process died."""

    task: Task
    message: str


Completion = tuple[Task, Record | Failure]


@dataclass
class Outcome:
    """Counts of finished and open runs, and the failures."""

    finished: int = 0
    left: int = 0  # wanted, but not started: no time left, or the pre-training it starts from is missing
    failures: list[Failure] = field(default_factory=list)


def run_experiments(
    experiments: Sequence[Experiment],
    corpus: Corpus,
    grid: Grid,
    base: Config,
    folder: Path,
    *,
    published: str | None = None,
    jobs: int = 1,
    stop_after: float | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Do the runs that the experiments need and `folder` does not have.

    Args:
        experiments: the tables.
        corpus: the documents to train and score on.
        grid: the values to try.
        base: the settings that rows and grid do not decide.
        folder: the folder of the results.
        published: the name of the corpus in the paper, if it is one of the paper's.
        jobs, stop_after, tell: as for `execute`.
    """
    for name, split in corpus.splits():
        if not len(split):
            raise InputError(f"the {name} split of {corpus.name} is empty, and tables need all three splits")
    reads = any(row.kind != "lexical" for experiment in experiments for row in experiment.needed)
    encoder = encoder_fingerprint(base.encoder) if reads else None
    with alone_in(folder):
        card = CorpusCard.of(corpus, base, published)
        card.save(folder)
        results = Results(folder / RESULTS, card.fingerprint)
        if encoder is not None:
            results.refuse_other_encoder(base.encoder, encoder)
        wanted = partial(wanted_runs, experiments, grid, base)
        return execute(wanted, corpus, results, encoder=encoder, jobs=jobs, stop_after=stop_after, tell=tell)


def execute(
    wanted: Callable[[Scored], Sequence[Run]],
    corpus: Corpus,
    results: Results,
    *,
    encoder: str | None = None,
    jobs: int = 1,
    stop_after: float | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Do every wanted run that has no result yet.

    A run that fails does not end the others; one that was interrupted continues from its checkpoints.

    Args:
        wanted: returns the runs that are needed, given these results; called again after every run, since the
            pre-training that fine-tuning starts from is chosen by results.
        corpus: the documents to train and score on.
        results: the stored results; every finished run is added.
        encoder: the fingerprint of the encoder that runs begin with.
        jobs: runs at a time.
        stop_after: minutes after which no run is started any more.
        tell: takes a line about every run.
    """
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    deadline = None if stop_after is None else time.monotonic() + 60 * stop_after
    outcome, running, failed = Outcome(), dict[str, Task](), dict[str, Failure]()
    planned, told, logs_told = len(wanted(_AllFinished())), set[str](), False

    def late() -> bool:
        return deadline is not None and time.monotonic() >= deadline

    with make_workers(jobs, corpus, results.corpus) as workers:
        while True:
            while workers.room and not late():
                task = next_task(wanted(results), results, running.keys() | failed.keys(), encoder)
                if task is None:
                    break
                if jobs > 1 and not logs_told:
                    logs_told = True
                    tell(f"{jobs} runs at a time; each writes to its own {LOG} in {task.folder.parent}")
                running[task.key] = task
                workers.submit(task)
            if not running:
                break
            task, made = workers.next()
            del running[task.key]
            if isinstance(made, Failure):
                failed[task.key] = made
                tell(f"failed: {task.run}: {made.message}")
                continue
            if not task.again:
                results.append(task.run, made)
                outcome.finished += 1
            remove_folder(task.folder)
            for warning in made["warnings"]:
                if warning not in told:
                    told.add(warning)
                    tell(f"note: {warning}")
            done = sum(results.get(run) is not None for run in wanted(results))
            tell(f"[{done}/{planned}] {_progress(task, made)}")
    outcome.failures = list(failed.values())
    over = sum(results.get(run) is not None or results.key(run) in failed for run in wanted(results))
    outcome.left = planned - over
    return outcome


class _AllFinished:
    """Scores as if every run were finished: then all are wanted, also those whose start is still to be chosen."""

    def validation_micro_f1(self, run: Run) -> float:
        return 1.0


def next_task(runs: Sequence[Run], results: Results, taken: set[str], encoder: str | None) -> Task | None:
    """Return the first run that is neither done nor taken and can start; fine-tuning needs the encoder it starts from.

    Where that encoder is missing, because the result came from another machine, its pre-training is done again first.
    """
    output = results.path.parent.resolve()
    for run in runs:
        key = results.key(run)
        if key in taken or results.get(run) is not None:
            continue
        task = Task(run, key, output, encoder)
        if run.starts_from is None:
            return task
        start = ROWS[run.row].starts_from
        assert start is not None
        before = Run(start, run.starts_from, keep_encoder=True)
        pretraining = Task(before, results.key(before), output, encoder, again=results.get(before) is not None)
        if pretraining.encoder_folder.is_dir():
            return replace(task, starts_from=pretraining.encoder_folder)
        if pretraining.key not in taken:
            return pretraining
    return None


def _progress(task: Task, made: Record) -> str:
    scores = made["scores"]["validation"]["half"]
    again = " (again, for its encoder)" if task.again else ""
    f1 = f"micro-F1 {100 * scores['micro_f1']:.2f}, macro-F1 {100 * scores['macro_f1']:.2f}"
    return f"{task.run}{again}: {f1} on validation; {made['seconds']:.0f} s"


class Sequential:
    """Runs each task in this process, when asked for the next result."""

    def __init__(self, corpus: Corpus, corpus_key: str) -> None:
        self.corpus, self.corpus_key = corpus, corpus_key
        self._task: Task | None = None

    @property
    def room(self) -> int:
        """How many more tasks can be submitted now."""
        return 0 if self._task else 1

    def submit(self, task: Task) -> None:
        """Take a task."""
        self._task = task

    def next(self) -> Completion:
        """Run the task."""
        task, self._task = self._task, None
        if task is None:
            raise RuntimeError("no task was submitted")
        return task, _attempt(task, partial(carry_out, task, self.corpus, self.corpus_key, jobs=1))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class ProcessPool:
    """Processes that each hold the corpus and run one task after the other. One that dies is replaced.

    Processes rather than threads, each with its own view of the device: small encoders leave most of a GPU idle. Not
    `concurrent.futures`, whose pool is broken for all runs when one process dies.
    """

    def __init__(self, jobs: int, corpus: Corpus, corpus_key: str) -> None:
        self.jobs, self.corpus, self.corpus_key = jobs, corpus, corpus_key
        self._busy: dict[Connection, tuple[SpawnProcess, Task]] = {}
        self._idle: list[tuple[Connection, SpawnProcess]] = []

    @property
    def room(self) -> int:
        """How many more tasks can be submitted now: to processes that are idle or not yet started."""
        return self.jobs - len(self._busy)

    def submit(self, task: Task) -> None:
        """Send a task to an idle process."""
        while self._idle:
            connection, process = self._idle.pop()
            with suppress(OSError):  # it may have died in the meantime
                connection.send(task)
                break
        else:
            connection, process = self._start()
            connection.send(task)
        self._busy[connection] = process, task

    def next(self) -> Completion:
        """Wait for the first process that is done, or dead."""
        connection = wait(list(self._busy))[0]
        assert isinstance(connection, Connection)
        process, task = self._busy.pop(connection)
        try:
            outcome = connection.recv()
        except (EOFError, ConnectionResetError):
            process.join()
            return task, Failure(task, f"its process died (exit code {process.exitcode})")
        self._idle.append((connection, process))
        return task, outcome

    def _start(self) -> tuple[Connection, SpawnProcess]:
        # Spawned, not forked: CUDA and threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self.corpus, self.corpus_key, self.jobs))
        process.start()
        theirs.close()  # so that the end of the process is the end of the connection
        return ours, process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for connection, _ in self._idle:
            with suppress(OSError):
                connection.send(None)
        for process, _ in self._busy.values():
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, signal.SIGINT)  # finishes its step and saves
        for process in [*(process for _, process in self._idle), *(process for process, _ in self._busy.values())]:
            process.join(LAST_STEP)
            if process.is_alive():
                process.kill()
                process.join()


def make_workers(jobs: int, corpus: Corpus, corpus_key: str) -> Sequential | ProcessPool:
    """Return this process as the worker of a single job, else a pool with a process for each."""
    return Sequential(corpus, corpus_key) if jobs == 1 else ProcessPool(jobs, corpus, corpus_key)


def _serve(connection: Connection, corpus: Corpus, corpus_key: str, jobs: int) -> None:
    """Run tasks in a process of the pool, until there are no more."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C in the terminal reaches the parent alone, which passes it on once
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(max(1, torch.get_num_threads() // jobs))
    with suppress(KeyboardInterrupt, EOFError):
        while (task := connection.recv()) is not None:
            connection.send(_attempt(task, partial(_logged, task, corpus, corpus_key, jobs)))


def _logged(task: Task, corpus: Corpus, corpus_key: str, jobs: int) -> Record:
    """Run a task with its output in its own file: progress bars of several processes would garble the terminal."""
    task.folder.mkdir(parents=True, exist_ok=True)
    with (task.folder / LOG).open("a", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
        return carry_out(task, corpus, corpus_key, jobs)


def _attempt(task: Task, work: Callable[[], Record]) -> Record | Failure:
    try:
        return work()
    except Exception as error:
        with suppress(OSError):
            task.folder.mkdir(parents=True, exist_ok=True)
            (task.folder / ERROR).write_text(traceback.format_exc(), encoding="utf-8")
        return Failure(task, f"{type(error).__name__}: {error}")


def _end_with_parent() -> None:
    """Exit when the parent does: else processes of a killed command would train on beside those that resume it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
