"""How long a long job takes in all: its work by kind, what a unit of each costs, and what is left. Without torch."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

FADING = 60.0  # seconds of work after which a measurement counts half: a neighbour comes or goes


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

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
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
