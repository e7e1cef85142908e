"""Progress of slow work: bars on stderr, in a terminal and after two seconds, and how long the rest will take.

A job of many parts, such as training, shows one display for the whole of it; its parts then show no bars of their own,
and tell the display what they do (`overall`). A `Timetable` has its work by kind and what a unit of each costs.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TypeVar

from abalone.launch import is_main

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")

PATIENCE = 2.0  # seconds a person waits without wondering
REFRESH = 0.1  # seconds between updates, so that counting costs nothing beside the work itself
FADING = 60.0  # seconds of work after which a measurement counts half: a neighbour comes or goes


class Overall(Protocol):
    """Show the progress of a whole job."""

    def begin(self, part: str) -> None:
        """Begin a part, for example "Encoding validation"."""
        ...

    def done(self, kind: str, units: float) -> None:
        """Report the units of a kind of work done since the last report."""
        ...

    def skip(self, kind: str, units: float = math.inf) -> None:
        """Take units of a kind of work off the plan, by default all that are left."""
        ...

    def figures(self, text: str) -> None:
        """Show a few numbers beside the bar, such as the loss."""
        ...

    def left(self) -> float | None:
        """Return the seconds that the rest will take, or None while they are unknown."""
        ...


class _Nobody:
    """Show nothing: there is no whole job, or its kinds of work are all one."""

    def begin(self, part: str) -> None: ...
    def done(self, kind: str, units: float) -> None: ...
    def skip(self, kind: str, units: float = math.inf) -> None: ...
    def figures(self, text: str) -> None: ...
    def left(self) -> float | None: ...


NOBODY = _Nobody()
_current: ContextVar[Overall] = ContextVar("overall", default=NOBODY)


def overall() -> Overall:
    """Return the display of the job that this work is a part of, or one that shows nothing."""
    return _current.get()


@contextmanager
def as_parts_of(display: Overall) -> Iterator[None]:
    """Let all slow work within this context report to a display."""
    before = _current.set(display)
    try:
        yield
    finally:
        _current.reset(before)


class Bar(_Nobody):
    """Show a bar over items that take about the same time each, in a terminal and after two seconds.

    Args:
        description: of the work.
        total: number of items, where it is known.
        shown: whether there is a bar at all.
    """

    def __init__(self, description: str, total: float | None, *, shown: bool = True) -> None:
        self.reached = 0.0
        self._progress = _progress() if shown else None
        self._shown = False
        self._due = monotonic() + PATIENCE
        if self._progress is not None:
            self._task = self._progress.add_task(description, total=total)

    def reach(self, items: float) -> None:
        """Set how many items are done."""
        self.reached = items
        if self._progress is not None and (now := monotonic()) >= self._due:
            if not self._shown:
                self._progress.start()
                self._shown = True
            self._progress.update(self._task, completed=items)
            self._due = now + REFRESH

    def stop(self) -> None:
        """Remove the bar."""
        if self._progress is not None and self._shown:
            self._progress.stop()


def track(iterable: Iterable[T], description: str, total: float | None = None) -> Iterator[T]:
    """Yield from `iterable`, with a progress bar once it has taken longer than two seconds.

    Args:
        iterable: the work, one item a step.
        description: of the work, for example "Reading papers.jsonl".
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
    """Show one bar over work in parts, which show none of their own.

    The code that runs the parts calls `reach`; code within a part may call `advance`.

    Args:
        description, total: as in `track`.
        shown: whether there is a bar at all; results printed as they come show the progress themselves.
    """
    bar = Bar(description, total, shown=shown)
    try:
        with as_parts_of(bar):
            yield bar
    finally:
        bar.stop()


def advance(items: float) -> None:
    """Add to the items that are done, if there is a bar over all of them."""
    bar = overall()
    if isinstance(bar, Bar):
        bar.reach(bar.reached + items)


def _progress() -> "Progress | None":
    """Return a bar in the terminal, if there is one and this is the main process."""
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


@dataclass
class _Kind:
    """Hold the work of one kind, in units of its own."""

    guess: float = 0.0  # seconds a unit, until some have been measured
    planned: float = 0.0
    done: float = 0.0
    units: float = 0.0  # measured, older ones faded
    seconds: float = 0.0  # that those took

    @property
    def cost(self) -> float:
        return self.seconds / self.units if self.units else self.guess

    @property
    def left(self) -> float:
        return max(self.planned - self.done, 0.0) * self.cost


class Timetable:
    """Estimate how long the rest of one or several runs will take.

    Work is planned in units that cost about the same, such as tokens to train on. Each report of units done is charged
    with all the time since the last report: what happens in between counts to what comes next.

    Args:
        clock: seconds from any start.

    Example:
        >>> table = Timetable(clock=iter([0.0, 10.0]).__next__)
        >>> table.plan("train", 100, guess=1.0)
        >>> table.start()
        >>> table.done("train", 20)
        >>> table.left
        40.0
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._kinds: dict[str, _Kind] = {}
        self._started = self._mark = 0.0

    def plan(self, kind: str, units: float, guess: float) -> None:
        """Add work, with a guess at the seconds that a unit takes."""
        known = self._kinds.setdefault(kind, _Kind())
        known.guess = guess
        known.planned += units

    def measure(self, kind: str, units: float, seconds: float) -> None:
        """Add a measurement of the seconds that some units took, in the work itself or beside it."""
        if units > 0:
            known = self._kinds.setdefault(kind, _Kind())
            kept = 0.5 ** (seconds / FADING)
            known.units, known.seconds = known.units * kept + units, known.seconds * kept + seconds

    def start(self) -> None:
        """Start the clock."""
        self._started = self._mark = self._clock()

    def done(self, kind: str, units: float, *, typical: bool = True) -> None:
        """Report units done since the last report; `typical` is false if that time includes a warm-up."""
        now = self._clock()
        if kind in self._kinds:
            self._kinds[kind].done += units
            if typical:
                self.measure(kind, units, now - self._mark)
        self._mark = now

    def skip(self, kind: str, units: float = math.inf) -> None:
        """Take units of a kind of work off the plan, by default all that are left."""
        if kind in self._kinds:
            known = self._kinds[kind]
            known.planned -= min(units, max(known.planned - known.done, 0.0))

    def cost(self, kind: str, default: float = 0.0) -> float:
        """Return the measured seconds of a unit of this kind, or `default` if none was measured."""
        known = self._kinds.get(kind)
        return known.cost if known is not None and known.units else default

    @property
    def measured(self) -> bool:
        """Return whether most of `left` rests on measurements."""
        guessed = sum(kind.left for kind in self._kinds.values() if not kind.units)
        return guessed <= self.left / 2

    @property
    def left(self) -> float:
        """Return the seconds that the rest will take, as of the last report."""
        return sum(kind.left for kind in self._kinds.values())

    @property
    def elapsed(self) -> float:
        """Return the seconds from the start to the last report."""
        return self._mark - self._started

    @property
    def since(self) -> float:
        """Return the seconds since the last report, to be taken off those left."""
        return self._clock() - self._mark


def spoken(seconds: float) -> str:
    """Return a duration in words, to about a tenth.

    Example:
        >>> [spoken(s) for s in (0.4, 8, 47, 100, 600, 4000, 25_000, 200_000)]
        ['1 s', '8 s', '45 s', '100 s', '10 min', '1 h 10 min', '7 h', '2 days']
    """
    if seconds < 20:
        return f"{max(round(seconds), 1)} s"
    if seconds < 115:
        step = 5 if seconds < 57.5 else 10
        return f"{step * round(seconds / step)} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 5 * 60:
        hours, tens = divmod(round(seconds / 600), 6)
        return f"{hours} h {10 * tens} min" if tens else f"{hours} h"
    hours = round(seconds / 3600)
    return f"{hours} h" if hours < 48 else f"{round(seconds / 86_400)} days"
