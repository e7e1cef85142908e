"""Ctrl-C in training: finish the step, save, then stop."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SAME_REQUEST = 1.0  # seconds: some programs tell a process and then its whole group, so that it is told twice


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C, with a message that says where the checkpoint is."""


class Interruption:
    """Whether somebody has asked to stop."""

    def __init__(self) -> None:
        self.asked = False

    def obey(self, message: str) -> None:
        """Stop here if asked; the state is whole and saved at this point."""
        if self.asked:
            raise TrainingInterrupted(message)


@contextmanager
def finish_step_first() -> Iterator[Interruption]:
    """Hold Ctrl-C back until `obey`; a second one stops at once, as a person may have a reason."""
    interruption = Interruption()
    asked_at = 0.0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal asked_at
        if not interruption.asked:
            interruption.asked, asked_at = True, time.monotonic()
        elif time.monotonic() - asked_at > SAME_REQUEST:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield interruption  # signals reach the main thread only
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)  # None: not set from Python
