"""Progress of everything slow: one bar on stderr, only in a terminal, only after two seconds.

A job of many parts, such as training, shows one display for the whole of it; the bars of its parts then stay away, and
tell the display what they are doing (`overall`).
"""

import math
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TypeVar

from abalone.launch import is_main

if TYPE_CHECKING:
    from rich.progress import Progress

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

    def skip(self, kind: str, units: float = math.inf) -> None:
        """Say that so much of a kind of work, or all that is left of it, need not be done."""
        ...

    def figures(self, text: str) -> None:
        """Show a few numbers beside the bar, such as the loss."""
        ...

    def left(self) -> float | None:
        """Return the seconds the rest will take, or None while nobody can tell."""
        ...


class _Nobody:
    """Stands in where no whole job is shown, or where kinds of work are not told apart."""

    def begin(self, part: str) -> None: ...
    def done(self, kind: str, units: float) -> None: ...
    def skip(self, kind: str, units: float = math.inf) -> None: ...
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


class Bar(_Nobody):
    """A bar over items that are all alike; it appears in a terminal after two seconds, and goes when it is stopped.

    Args:
        description: what is going on.
        total: number of items, where it is known.
        shown: whether it appears at all.
    """

    def __init__(self, description: str, total: float | None, *, shown: bool = True) -> None:
        self.reached = 0.0
        self._progress = _progress() if shown else None
        self._shown = False
        self._due = monotonic() + PATIENCE
        if self._progress is not None:
            self._task = self._progress.add_task(description, total=total)

    def reach(self, items: float) -> None:
        """Say how many items are done by now."""
        self.reached = items
        if self._progress is not None and (now := monotonic()) >= self._due:
            if not self._shown:
                self._progress.start()
                self._shown = True
            self._progress.update(self._task, completed=items)
            self._due = now + REFRESH

    def stop(self) -> None:
        """Take it away."""
        if self._progress is not None and self._shown:
            self._progress.stop()


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
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    bar = Bar(description, total)
    try:
        for done, item in enumerate(iterable):
            bar.reach(done)
            yield item
    finally:
        bar.stop()


@contextmanager
def whole(description: str, total: float | None = None, *, shown: bool = True) -> Iterator[Bar]:
    """Show one bar over a work in parts, which show none of their own.

    Whoever does the parts says where it stands with `reach`, and what works within a part may call `advance`.

    Args:
        description, total: as in `track`.
        shown: whether there is a bar at all; results that are printed as they come are enough to look at.
    """
    bar = Bar(description, total, shown=shown)
    try:
        with as_parts_of(bar):
            yield bar
    finally:
        bar.stop()


def advance(items: float) -> None:
    """Say that so many more items are done, if there is a bar over all of them."""
    bar = overall()
    if isinstance(bar, Bar):
        bar.reach(bar.reached + items)


def _progress() -> "Progress | None":
    """Make a bar in the terminal, if there is one and it is this process that speaks."""
    from rich.console import Console

    console = Console(stderr=True)
    if not (console.is_terminal and is_main()):
        return None
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),  # it may be the name of a file
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True)
