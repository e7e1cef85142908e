"""The bar of a training epoch: loss, speed, time left."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from abalone.launch import is_main

REFRESH = 0.5  # seconds; a step may be much shorter, and looking waits for the device


class EpochBar:
    """Shows how an epoch goes, on stderr and only in a terminal.

    Args:
        title: for example "Pre-training 3/80".
        batches: of the epoch.
        done: batches that a resumed epoch has behind it.
    """

    def __init__(self, title: str, batches: int, done: int = 0) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not (console.is_terminal and is_main()),
            transient=True,
        )
        self._task = self._progress.add_task(title, total=batches, completed=done, figures="")
        self._started = self._shown = time.monotonic()
        self._documents = 0

    def __enter__(self) -> "EpochBar":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def due(self, documents: int) -> bool:
        """Whether it is time to show something new, now that so many more documents are done."""
        self._documents += documents
        return time.monotonic() - self._shown >= REFRESH

    def update(self, batches: int, loss: float) -> None:
        """Tell how far it is: batches done in the epoch, mean loss so far."""
        self._shown = time.monotonic()
        speed = self._documents / (self._shown - self._started)
        self._progress.update(self._task, completed=batches, figures=f"loss {loss:.4f} · {speed:,.0f} documents/s")
