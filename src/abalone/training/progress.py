"""The progress of a whole training run: one bar in a terminal, a line now and then in a log."""

import logging
import math
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from abalone.launch import is_main
from abalone.progress import Timetable, spoken

log = logging.getLogger(__name__)

REFRESH = 0.5  # seconds between updates of the bar
FIRST_LINE, LONGEST_SILENCE = 60.0, 1800.0  # seconds: a log gets a line after 1, 2, 4, … minutes, then every half hour
CERTAIN = 5.0  # seconds of measured work after which a total is told that was not known at the start
# Seconds left, fewer of which are not told: what ends a run is guessed where it has not been done before.
WORTH_TELLING = 10.0
WARM_UP = 20  # batches on a GPU that compile, record and tune; they say nothing about those that follow


class RunProgress:
    """Shows how much of a run is done and how long the rest takes: all stages together, not one epoch.

    Args:
        timetable: the planned work.
        title: "Training on NVIDIA H200", for the line that tells the total.
        told: whether somebody has told the total already.
        warm_up: batches of each kind that are not typical of the others.
    """

    def __init__(self, timetable: Timetable, title: str, *, told: bool, warm_up: int = 0) -> None:
        self._timetable, self._title, self._told, self._warm_up = timetable, title, told, warm_up
        self._begun: dict[str, int] = {}  # batches by kind of work
        self._part, self._figures = "", ""
        self._shown, self._next_line = 0.0, FIRST_LINE
        console = Console(stderr=True)
        self._in_terminal = console.is_terminal and is_main()
        # 80 columns hold it all: the longest part has 23 characters.
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[figures]}"),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not self._in_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("Training", total=1.0, figures="", left="")

    def __enter__(self) -> "RunProgress":
        self._timetable.start()
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, part: str) -> None:
        """Say what is being done now."""
        self._part = part
        self._show(now=True)

    def figures(self, text: str) -> None:
        """Show a few numbers beside the bar."""
        self._figures = text

    def skip(self, kind: str, units: float = math.inf) -> None:
        """Take work off the plan."""
        self._timetable.skip(kind, units)

    def done(self, kind: str, units: float) -> None:
        """Count work that was done, and say how far the run is where that is due."""
        self._begun[kind] = self._begun.get(kind, 0) + 1
        self._timetable.done(kind, units, typical=self._begun[kind] > self._warm_up)
        self._show()
        self._tell()

    def left(self) -> float | None:
        """Return the seconds that the rest will take; None before anything was measured, and for the last few."""
        left = self._timetable.left
        return left if self._timetable.measured and left >= WORTH_TELLING else None

    def _show(self, *, now: bool = False) -> None:
        elapsed, left = self._timetable.elapsed, self._timetable.left
        if not self._in_terminal or not (now or elapsed - self._shown >= REFRESH):
            return
        self._shown = elapsed
        known: dict[str, Any] = {"left": ""}
        if self._timetable.measured:
            told = f"{spoken(left)} left" if left >= WORTH_TELLING else "almost done"
            known = {"completed": elapsed, "total": elapsed + left or 1.0, "left": told}
        self._bar.update(self._task, description=self._part, figures=self._figures, **known)

    def _tell(self) -> None:
        elapsed, left = self._timetable.elapsed, self.left()
        if left is None or not is_main():
            return
        if not self._told and elapsed >= CERTAIN:
            self._told = True
            log.info("%s: about %s left", self._title, spoken(left))
        elif elapsed >= self._next_line:
            self._next_line = min(2 * elapsed, elapsed + LONGEST_SILENCE)
            if not self._in_terminal:
                figures = f", {self._figures}" if self._figures else ""
                share = elapsed / (elapsed + left)
                log.info("%s%s; %.0f%% done, about %s left", self._part, figures, 100 * share, spoken(left))
