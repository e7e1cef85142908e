"""Ctrl-C and SIGTERM: held back until the state is whole, unless somebody insists, and never lost."""

import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from abalone.training.interruption import (
    SAME_REQUEST,
    Interruption,
    TrainingInterrupted,
    TrainingTerminated,
    finish_step_first,
    told_to_stop,
)
from patience import PATIENCE

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")


@pytest.fixture(autouse=True)
def ordinary_handlers():
    """Python's own, whatever the tests were started with; and they must be there again afterwards."""
    ordinary = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in ordinary.items()}
    yield
    assert {number: signal.getsignal(number) for number in ordinary} == ordinary
    for number, handler in before.items():
        signal.signal(number, handler)


def tell(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


KINDS = [(signal.SIGINT, TrainingInterrupted), (signal.SIGTERM, TrainingTerminated)]


def test_nothing_happens_unless_asked():
    with finish_step_first() as interruption:
        assert not interruption.asked
        interruption.obey("never said")


@pytest.mark.parametrize(("number", "kind"), KINDS)
def test_it_waits_for_the_end_of_the_step(number, kind):
    done = []

    def work() -> None:
        with finish_step_first() as interruption:
            tell(number)
            done.append("the step")
            assert interruption.asked
            interruption.obey("saved in the folder")
            done.append("too much")

    with pytest.raises(kind) as stop:
        work()
    assert str(stop.value) == "saved in the folder"
    assert done == ["the step"]


@pytest.mark.parametrize(("terminated", "kind"), [(True, TrainingTerminated), (False, TrainingInterrupted)])
def test_what_another_process_was_told_ends_this_one_alike(terminated, kind):
    interruption = Interruption()
    interruption.join_in(terminated=terminated)
    assert interruption.terminated == terminated
    with pytest.raises(kind, match="saved in the folder"):
        interruption.obey("saved in the folder")


def test_they_are_what_ends_a_program():
    assert issubclass(TrainingInterrupted, KeyboardInterrupt)
    assert issubclass(TrainingTerminated, SystemExit)
    assert TrainingTerminated("saved").code == 0
    for kind in (TrainingInterrupted, TrainingTerminated):
        assert not issubclass(kind, Exception)  # so that nobody takes it for an error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_twice_in_a_moment_is_told_once(number, monkeypatch):
    """As `timeout` does: the process, then its whole group.

    The second is waited for, and not left for after a call that looks at no signals, such as a long write.
    """
    waited, done = [], []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        tell(number)

    monkeypatch.setattr("abalone.training.interruption.time", SimpleNamespace(sleep=wait))

    def work() -> None:
        with finish_step_first() as interruption:
            tell(number)
            done.append("saved")
            interruption.obey("told once")

    with pytest.raises((TrainingInterrupted, TrainingTerminated), match="told once"):
        work()
    assert (waited, done) == ([SAME_REQUEST], ["saved"])


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, TrainingTerminated)])
def test_a_second_one_stops_at_once(number, kind):
    done = []

    def work() -> None:
        with finish_step_first():
            tell()
            done.append("the first")
            tell(number)
            done.append("too much")

    with pytest.raises(kind) as stop:
        work()
    assert done == ["the first"]
    assert not isinstance(stop.value, TrainingInterrupted)


def test_asked_in_the_last_moment_is_not_lost():
    with pytest.raises(TrainingInterrupted), finish_step_first():
        tell()  # and no step comes after it


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, TrainingTerminated)])
def test_outside_of_a_step_it_stops_at_once(number, kind):
    done = []

    def work() -> None:
        with told_to_stop():
            with finish_step_first():
                done.append("a stage")
            tell(number)
            done.append("too much")

    with pytest.raises(kind):
        work()
    assert done == ["a stage"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("number", "kind"), KINDS)
def test_lost_in_a_destructor_it_stops_the_next_step(number, kind):
    """What is raised there is printed and forgotten by Python; the request is not."""

    class Closing:
        def __del__(self) -> None:
            tell(number)
            time.sleep(0)  # a moment for Python to see it

    done = []

    def work() -> None:
        with told_to_stop():
            Closing()
            done.append("between the stages")
            with finish_step_first() as interruption:
                done.append("a step")
                interruption.obey("after all")
                done.append("too much")

    with pytest.raises(kind, match="after all"):
        work()
    assert done == ["between the stages", "a step"]


def test_the_handlers_are_put_back_after_an_error():
    with pytest.raises(ZeroDivisionError), finish_step_first():
        raise ZeroDivisionError
    with pytest.raises(KeyboardInterrupt):
        tell()


def test_the_handlers_of_a_caller_are_put_back():
    heard = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: heard.append(number))

    def work() -> None:
        with finish_step_first() as interruption:
            tell(signal.SIGTERM)  # which the caller has a use for
            assert (interruption.asked, heard) == (False, [signal.SIGTERM])
            tell(signal.SIGINT)
            assert (interruption.asked, heard) == (True, [signal.SIGTERM])

    with pytest.raises(TrainingInterrupted):
        work()
    tell(signal.SIGINT)
    assert heard == [signal.SIGTERM, signal.SIGINT]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_in_another_thread_it_leaves_signals_alone():
    seen = []

    def work() -> None:
        with finish_step_first() as interruption:
            seen.append(signal.getsignal(signal.SIGINT))
            interruption.obey("never said")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_terminated_a_program_says_so_and_ends_well():
    program = (
        "import os, signal; from abalone.training.interruption import finish_step_first\n"
        "with finish_step_first() as interruption:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    interruption.obey('it can go on')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout) == (0, "")
    first, last = ended.stderr.strip().splitlines()
    assert first.startswith("stopping: the step is finished and saved first")
    assert last == "it can go on"
