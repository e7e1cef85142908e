"""Progress of everything slow: one bar on stderr, only in a terminal, only after two seconds.

A job of many parts, such as training, shows one display for the whole of it; the bars of its parts then stay away, and
tell the display what they are doing (`overall`).
"""

from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Protocol, TypeVar

from abalone.launch import is_main

T = TypeVar("T")

PATIENCE = 2.0  # seconds a person waits without wondering
REFRESH = 0.1  # seconds between updates, so that counting costs nothing beside the work itself


class Overall(Protocol):
    """What shows the progress of a whole job."""

    def begin(self, part: str) -> None:
        """Say what is being done now, for example "Encoding validation"."""
        ...

    def done(self, kind: str, units: float) -> None:
        """Say that so much of a kind of work was done since the last word."""
        ...

    def skip(self, kind: str, share: float = 1.0) -> None:
        """Say that this share of what is left of a kind of work need not be done."""
        ...

    def figures(self, text: str) -> None:
        """Show a few numbers beside the bar, such as the loss."""
        ...

    def left(self) -> float | None:
        """Return the seconds the rest will take, or None while nobody can tell."""
        ...


class _Nobody:
    """Stands in where no whole job is shown."""

    def begin(self, part: str) -> None: ...
    def done(self, kind: str, units: float) -> None: ...
    def skip(self, kind: str, share: float = 1.0) -> None: ...
    def figures(self, text: str) -> None: ...
    def left(self) -> float | None: ...


NOBODY = _Nobody()
_current: ContextVar[Overall] = ContextVar("overall", default=NOBODY)


def overall() -> Overall:
    """Return the display of the job that this work is a part of; one that shows nothing if there is none."""
    return _current.get()


@contextmanager
def as_parts_of(display: Overall) -> Iterator[None]:
    """Let everything slow that is done meanwhile tell this display."""
    before = _current.set(display)
    try:
        yield
    finally:
        _current.reset(before)


def track(iterable: Iterable[T], description: str, total: float | None = None) -> Iterator[T]:
    """Yield from `iterable`, with a progress bar once it has taken longer than two seconds.

    Args:
        iterable: the work, one item a step.
        description: what is going on, for example "Reading papers.jsonl".
        total: number of items, where it is known and `iterable` has no length.
    """
    if overall() is not NOBODY:
        overall().begin(description)
        yield from iterable
        return

    from rich.console import Console

    console = Console(stderr=True)
    if not (console.is_terminal and is_main()):
        yield from iterable
        return

    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    progress = Progress(*columns, console=console, transient=True)
    task = progress.add_task(description, total=total)
    due = monotonic() + PATIENCE
    shown = False
    try:
        for done, item in enumerate(iterable):
            if (now := monotonic()) >= due:
                if not shown:
                    progress.start()
                    shown = True
                progress.update(task, completed=done)
                due = now + REFRESH
            yield item
    finally:
        if shown:
            progress.stop()
