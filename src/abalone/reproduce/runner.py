"""Runs whatever is wanted and not yet done, several at once, and keeps what is finished."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from abalone.data.corpus import Corpus
from abalone.errors import InputError
from abalone.files.atomic import remove_folder
from abalone.reproduce.grid import Run, Scored
from abalone.reproduce.results import Record, Results
from abalone.reproduce.rows import ROWS
from abalone.reproduce.work import Task
from abalone.reproduce.workers import LOG, Failure, make_workers


@dataclass
class Outcome:
    """What came of it."""

    finished: int = 0
    left: int = 0  # wanted, but not started: no time left, or the pre-training it starts from is missing
    failures: list[Failure] = field(default_factory=list)


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

    A run that fails does not end the others; one that was interrupted goes on from its checkpoints.

    Args:
        wanted: the runs that are needed as far as these results tell; asked again after every one, since what
            fine-tuning starts from is chosen by results.
        corpus: what to train and score on.
        results: what is done; every finished run is added.
        encoder: the fingerprint of the encoder that runs begin with.
        jobs: runs at a time.
        stop_after: minutes after which no run is started any more.
        tell: takes a line about every run.
    """
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    deadline = None if stop_after is None else time.monotonic() + 60 * stop_after
    outcome, running, failed = Outcome(), dict[str, Task](), dict[str, Failure]()
    planned, told, logs_told = len(wanted(_Everything())), set[str](), False

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
                    tell(f"{jobs} runs at a time; each writes to a {LOG} of its own in {task.folder.parent}")
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
            tell(f"[{done}/{planned}] {_in_words(task, made)}")
    outcome.failures = list(failed.values())
    over = sum(results.get(run) is not None or results.key(run) in failed for run in wanted(results))
    outcome.left = planned - over
    return outcome


class _Everything:
    """As if every run were finished: all are wanted then, also those whose start is still to be chosen."""

    def validation_micro_f1(self, run: Run) -> float:
        return 1.0


def next_task(runs: Sequence[Run], results: Results, taken: set[str], encoder: str | None) -> Task | None:
    """The first run that is neither done nor taken and can start; fine-tuning needs the encoder it starts from.

    Where that encoder is gone, because the result came from another machine, its pre-training is done again first.
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


def _in_words(task: Task, made: Record) -> str:
    scores = made["scores"]["validation"]["half"]
    again = " (again, for its encoder)" if task.again else ""
    f1 = f"micro-F1 {100 * scores['micro_f1']:.2f}, macro-F1 {100 * scores['macro_f1']:.2f}"
    return f"{task.run}{again}: {f1} on validation; {made['seconds']:.0f} s"
