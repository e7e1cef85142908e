"""One progress bar for everything slow: on stderr, only in a terminal, only after two seconds."""

from collections.abc import Iterable, Iterator, Sized
from time import monotonic
from typing import TypeVar

from abalone.launch import is_main

T = TypeVar("T")

PATIENCE = 2.0  # seconds a person waits without wondering
REFRESH = 0.1  # seconds between updates, so that counting costs nothing beside the work itself


def track(iterable: Iterable[T], description: str, total: float | None = None) -> Iterator[T]:
    """Yield from `iterable`, with a progress bar once it has taken longer than two seconds.

    Args:
        iterable: the work, one item a step.
        description: what is going on, for example "Reading papers.jsonl".
        total: number of items, where it is known and `iterable` has no length.
    """
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
