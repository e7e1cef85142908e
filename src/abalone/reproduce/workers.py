"""Who does the runs: this process, or several beside each other on one machine.

Processes rather than threads, each with its own view of the device: small encoders leave most of a GPU idle, and a
process that dies takes one run with it, not all.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Protocol, Self

from abalone.data.corpus import Corpus
from abalone.reproduce.results import Record
from abalone.reproduce.work import Task, carry_out

LOG, ERROR = "log.txt", "error.txt"
LAST_STEP = 60.0  # seconds that an interrupted process has to finish its step and save


@dataclass(frozen=True)
class Failure:
    """A run that raised, or whose process died."""

    task: Task
    message: str
    trace: str = ""


Completion = tuple[Task, Record | Failure]


class Workers(Protocol):
    """Takes tasks as long as there is room, and gives them back done."""

    @property
    def room(self) -> int:
        """How many more tasks can be taken now."""
        ...

    def submit(self, task: Task) -> None:
        """Take a task."""
        ...

    def next(self) -> Completion:
        """Wait for a task to be done."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def make_workers(jobs: int, corpus: Corpus, corpus_key: str) -> Workers:
    """This process for one job at a time, else as many processes as jobs."""
    return Alone(corpus, corpus_key) if jobs == 1 else Crew(jobs, corpus, corpus_key)


class Alone:
    """Does each task in this process, when asked for the next outcome."""

    def __init__(self, corpus: Corpus, corpus_key: str) -> None:
        self.corpus, self.corpus_key = corpus, corpus_key
        self._task: Task | None = None

    @property
    def room(self) -> int:
        """One, or none while a task waits."""
        return 0 if self._task else 1

    def submit(self, task: Task) -> None:
        """Take a task."""
        self._task = task

    def next(self) -> Completion:
        """Do the task."""
        task, self._task = self._task, None
        if task is None:
            raise RuntimeError("there is no task to do")
        return task, _attempt(task, partial(carry_out, task, self.corpus, self.corpus_key, jobs=1))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class Crew:
    """Processes that each hold the corpus and do one task after the other. One that dies is replaced."""

    def __init__(self, jobs: int, corpus: Corpus, corpus_key: str) -> None:
        self.jobs, self.corpus, self.corpus_key = jobs, corpus, corpus_key
        self._busy: dict[Connection, tuple[SpawnProcess, Task]] = {}
        self._idle: list[tuple[Connection, SpawnProcess]] = []

    @property
    def room(self) -> int:
        """Processes that are not at work, started or not."""
        return self.jobs - len(self._busy)

    def submit(self, task: Task) -> None:
        """Hand a task to an idle process."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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


def _serve(connection: Connection, corpus: Corpus, corpus_key: str, jobs: int) -> None:
    """What a process of the crew does: tasks, until there are no more."""
    import torch

    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C in the terminal reaches the parent alone, which passes it on once
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(max(1, torch.get_num_threads() // jobs))
    with suppress(KeyboardInterrupt, EOFError):
        while (task := connection.recv()) is not None:
            connection.send(_attempt(task, partial(_logged, task, corpus, corpus_key, jobs)))


def _logged(task: Task, corpus: Corpus, corpus_key: str, jobs: int) -> Record:
    """Do a task with what it prints in a file of its own: bars of several processes would garble the terminal."""
    task.folder.mkdir(parents=True, exist_ok=True)
    with (task.folder / LOG).open("a", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
        return carry_out(task, corpus, corpus_key, jobs)


def _attempt(task: Task, work: Callable[[], Record]) -> Record | Failure:
    try:
        return work()
    except Exception as error:
        trace = traceback.format_exc()
        with suppress(OSError):
            task.folder.mkdir(parents=True, exist_ok=True)
            (task.folder / ERROR).write_text(trace, encoding="utf-8")
        return Failure(task, f"{type(error).__name__}: {error}", trace)


def _end_with_parent() -> None:
    """Else the processes of a command that was killed would train on beside those of the command that resumes it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
