"""One progress bar for everything slow: on stderr, only in a terminal, only after two seconds."""

from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from abalone.launch import is_main

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")

PATIENCE = 2.0  # seconds a person waits without wondering
REFRESH = 0.1  # seconds between updates, so that counting costs nothing beside the work itself

_whole: "list[Bar]" = []  # the bar of a work in parts, while there is one


class Bar:
    """A bar that appears in a terminal after two seconds, and goes when it is stopped.

    Args:
        description: what is going on.
        total: of the work, where it is known.
        shown: whether it appears at all.
    """

    def __init__(self, description: str, total: float | None, *, shown: bool = True) -> None:
        self.done = 0.0
        self._progress = _progress() if shown else None
        self._shown = False
        self._due = monotonic() + PATIENCE
        if self._progress is not None:
            self._task = self._progress.add_task(description, total=total)

    def reach(self, done: float) -> None:
        """Say how much is done by now."""
        self.done = done
        if self._progress is not None and (now := monotonic()) >= self._due:
            if not self._shown:
                self._progress.start()
                self._shown = True
            self._progress.update(self._task, completed=done)
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
    if _whole:
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
    _whole.append(bar)
    try:
        yield bar
    finally:
        _whole.remove(bar)
        bar.stop()


def advance(done: float) -> None:
    """Say that so much more of a work in parts is done, if there is one."""
    if _whole:
        _whole[-1].reach(_whole[-1].done + done)


def _progress() -> "Progress | None":
    """A bar in the terminal, if there is one and it is this process that speaks."""
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
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True)
