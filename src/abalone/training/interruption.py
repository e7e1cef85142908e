"""Ctrl-C and SIGTERM: finish the step, save a checkpoint, then end with advice on how to resume."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any

# Seconds. Some programs tell a process and then its whole group (`timeout` does), so that it is told twice.
SAME_REQUEST = 0.2


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C, with a message that says where the checkpoint is."""


class TrainingTerminated(SystemExit):
    """SIGTERM, with the same message. Whoever does not catch it ends with status 0: the work is saved, not failed."""

    def __init__(self, message: str = "") -> None:
        super().__init__(0)
        self.message = message

    def __str__(self) -> str:
        return self.message


class Interruption:
    """A request to stop, and the exception that answers it."""

    def __init__(self) -> None:
        self.asked = False
        self._stop: Callable[[str], BaseException] = TrainingInterrupted
        self._holders = 0
        self._settling = False

    @property
    def terminated(self) -> bool:
        """Return whether it was SIGTERM that asked."""
        return self._stop is TrainingTerminated

    def join_in(self, *, terminated: bool) -> None:
        """Take over a request that another process of the same run has received."""
        self.asked = True
        self._stop = TrainingTerminated if terminated else TrainingInterrupted

    def obey(self, message: str) -> None:
        """Stop here if asked; the state is whole and saved at this point."""
        if self.asked:
            raise self._stop(message)

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Let a first request wait for `obey` within this block, or for its end at the latest."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
        self.obey("")

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self._settling:
            return  # the other half of a request that came twice
        stop: Callable[[], BaseException] = TrainingTerminated if number == signal.SIGTERM else KeyboardInterrupt
        if self.asked:
            raise stop()  # asked again: a person may have a reason not to wait
        self.asked = True
        self._stop = TrainingTerminated if number == signal.SIGTERM else TrainingInterrupted
        # The second half is waited for here. Were it left for later, it could find this thread in a call that takes
        # seconds, such as writing the checkpoint, be seen only after that, and pass for somebody who asks again.
        self._settling = True
        time.sleep(SAME_REQUEST)
        self._settling = False
        if not self._holders:
            # Should this be lost, as what is raised in a destructor is, then `asked` still stops the next step.
            raise stop()
        with suppress(OSError):  # past `sys.stderr`, in which this thread may be writing just now
            os.write(2, b"\nstopping: the step is finished and saved first (a second time stops at once)\n")


_listening: Interruption | None = None  # of the main thread, which alone is told of signals


@contextmanager
def told_to_stop() -> Iterator[Interruption]:
    """Listen for Ctrl-C and SIGTERM; within another such block it is the same `Interruption`.

    A signal raises `KeyboardInterrupt` or `TrainingTerminated` at once, except where it is `held_back`. A program that
    handles SIGTERM itself goes on doing so.
    """
    global _listening
    if threading.current_thread() is not threading.main_thread():
        yield Interruption()
        return
    if _listening is not None:
        yield _listening
        return
    with ExitStack() as handlers:
        _listening = Interruption()
        try:
            _install(handlers, signal.SIGINT, _listening)
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                _install(handlers, signal.SIGTERM, _listening)
            yield _listening
        except TrainingTerminated as stop:
            print(stop, *getattr(stop, "__notes__", ()), sep="\n  ", file=sys.stderr)  # Python says no word of it
            raise
        finally:
            _listening = None


@contextmanager
def finish_step_first() -> Iterator[Interruption]:
    """Hold a request back until `obey`; a second one stops at once."""
    with told_to_stop() as interruption, interruption.held_back():
        yield interruption


def _install(handlers: ExitStack, number: signal.Signals, interruption: Interruption) -> None:
    before: Any = signal.signal(number, interruption.note)
    handlers.callback(signal.signal, number, signal.SIG_DFL if before is None else before)  # None: not set from Python
