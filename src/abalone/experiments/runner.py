"""Runs whatever is wanted and not yet done, several at once, and keeps what is finished."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from abalone.data.corpus import Corpus
from abalone.experiments.grid import Run
from abalone.experiments.results import Record, Results
from abalone.experiments.rows import ROWS
from abalone.experiments.work import Task, encoder_folder, forget
from abalone.experiments.workers import Failure, make_workers

LOCK = ".lock"


@dataclass
class Outcome:
    """What came of it."""

    finished: int = 0
    left: int = 0  # wanted, and not started for want of time
    failures: list[Failure] = field(default_factory=list)


def execute(
    wanted: Callable[[], Sequence[Run]],
    corpus: Corpus,
    results: Results,
    *,
    jobs: int = 1,
    stop_after: float | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Do every wanted run that has no result yet.

    A run that fails does not end the others; one that was interrupted goes on from its checkpoints.

    Args:
        wanted: the runs that are needed as far as is known now; asked again after every result, since what
            fine-tuning starts from is chosen by results.
        corpus: what to train and score on.
        results: what is done; every finished run is added.
        jobs: runs at a time.
        stop_after: minutes after which no run is started any more.
        tell: takes a line about every run.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    deadline = None if stop_after is None else time.monotonic() + 60 * stop_after
    outcome, running, failed = Outcome(), dict[str, Task](), dict[str, Failure]()
    told: set[str] = set()

    def late() -> bool:
        return deadline is not None and time.monotonic() >= deadline

    with make_workers(jobs, corpus, results.corpus) as workers:
        while True:
            while workers.room and not late():
                task = next_task(wanted(), results, running.keys() | failed.keys())
                if task is None:
                    break
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
            forget(task.key)
            for warning in made["warnings"]:
                if warning not in told:
                    told.add(warning)
                    tell(f"note: {warning}")
            runs = wanted()
            done = sum(results.get(run) is not None for run in runs)
            tell(f"[{done}/{len(runs)}] {_in_words(task, made)}")
    outcome.failures = list(failed.values())
    outcome.left = sum(results.get(run) is None and results.key(run) not in failed for run in wanted())
    return outcome


def next_task(runs: Sequence[Run], results: Results, taken: set[str]) -> Task | None:
    """The first run that is neither done nor taken and can start; fine-tuning needs the encoder it starts from.

    Where that encoder is gone, because the result came from another machine, its pre-training is done again first.
    """
    for run in runs:
        key = results.key(run)
        if key in taken or results.get(run) is not None:
            continue
        if run.starts_from is None:
            return Task(run, key)
        start = ROWS[run.row].starts_from
        assert start is not None
        parent = Run(start, run.starts_from, keep_encoder=True)
        parent_key = results.key(parent)
        if encoder_folder(parent_key).is_dir():
            return Task(run, key, parent_key)
        if parent_key not in taken:
            return Task(parent, parent_key, again=results.get(parent) is not None)
    return None


def _in_words(task: Task, made: Record) -> str:
    scores = made["scores"]["validation"]["half"]
    again = " (again, for its encoder)" if task.again else ""
    f1 = f"micro-F1 {100 * scores['micro_f1']:.2f}, macro-F1 {100 * scores['macro_f1']:.2f}"
    return f"{task.run}{again}: {f1} on validation; {made['seconds']:.0f} s"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep a second command out of the folder while this one works in it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # a system without file locks has to do without
        yield
        return
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another process is filling {folder}; wait for it, or give another --output") from None
        try:
            yield
        finally:
            with suppress(OSError):
                (folder / LOCK).unlink()
