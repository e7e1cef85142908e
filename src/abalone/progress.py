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


@dataclass
class _Kind:
    """Work of one kind, in units of its own."""

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
    """The work of one or several runs, and how long the rest of it will take.

    Work is planned in units that cost about the same, such as tokens to train on. Whoever does some says so; the time
    since the last word is what it took. All time is somebody's: what happens in between counts to what comes next.

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
        """Add work, with a guess at the seconds a unit takes."""
        known = self._kinds.setdefault(kind, _Kind())
        known.guess = guess
        known.planned += units

    def measure(self, kind: str, units: float, seconds: float) -> None:
        """Say what some units of a kind took, beside the work or within it."""
        if units > 0:
            known = self._kinds.setdefault(kind, _Kind())
            kept = 0.5 ** (seconds / FADING)
            known.units, known.seconds = known.units * kept + units, known.seconds * kept + seconds

    def start(self) -> None:
        """Begin the work now."""
        self._started = self._mark = self._clock()

    def done(self, kind: str, units: float, *, typical: bool = True) -> None:
        """Say that units were done since the last word; `typical` is false where something had to warm up first."""
        now = self._clock()
        if kind in self._kinds:
            self._kinds[kind].done += units
            if typical:
                self.measure(kind, units, now - self._mark)
        self._mark = now

    def skip(self, kind: str, units: float = math.inf) -> None:
        """Take work off the plan: so many units of a kind, or all that is left of it."""
        if kind in self._kinds:
            known = self._kinds[kind]
            known.planned -= min(units, max(known.planned - known.done, 0.0))

    def cost(self, kind: str, default: float = 0.0) -> float:
        """Seconds that a unit of this kind was measured to take; `default` where none was."""
        known = self._kinds.get(kind)
        return known.cost if known is not None and known.units else default

    @property
    def measured(self) -> bool:
        """Whether most of `left` rests on measurements."""
        guessed = sum(kind.left for kind in self._kinds.values() if not kind.units)
        return guessed <= self.left / 2

    @property
    def left(self) -> float:
        """Seconds that the rest will take, as of the last word."""
        return sum(kind.left for kind in self._kinds.values())

    @property
    def elapsed(self) -> float:
        """Seconds since the start, as of the last word."""
        return self._mark - self._started

    @property
    def since(self) -> float:
        """Seconds since the last word: they are taken off what is left."""
        return self._clock() - self._mark


def spoken(seconds: float) -> str:
    """A duration as a person would say it, to about a tenth.

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
