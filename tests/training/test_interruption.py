"""Ctrl-C: held back until the state is whole, unless somebody insists."""

import os
import signal
import threading

import pytest

import abalone.training.interruption as interruption_module
from abalone.training.interruption import TrainingInterrupted, finish_step_first


@pytest.fixture(autouse=True)
def ordinary_handler():
    """Python's own, whatever the tests were started with; and it must be there again afterwards."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_nothing_happens_unless_asked():
    with finish_step_first() as interruption:
        assert not interruption.asked
        interruption.obey("never said")


def test_it_waits_for_the_end_of_the_step():
    done = []

    def work() -> None:
        with finish_step_first() as interruption:
            press_ctrl_c()
            done.append("the step")
            assert interruption.asked
            interruption.obey("saved in the folder")
            done.append("too much")

    with pytest.raises(TrainingInterrupted, match="saved in the folder"):
        work()
    assert done == ["the step"]


def test_it_is_ctrl_c_to_whoever_catches_that():
    assert issubclass(TrainingInterrupted, KeyboardInterrupt)
    assert not issubclass(TrainingInterrupted, Exception)  # so that nobody takes it for an error


def test_told_twice_in_a_moment_is_told_once():
    with finish_step_first() as interruption:
        press_ctrl_c()
        press_ctrl_c()
        assert interruption.asked


def test_a_second_one_stops_at_once(monkeypatch):
    monkeypatch.setattr(interruption_module, "SAME_REQUEST", -1.0)
    done = []

    def work() -> None:
        with finish_step_first():
            press_ctrl_c()
            done.append("the first")
            press_ctrl_c()
            done.append("too much")

    with pytest.raises(KeyboardInterrupt) as stop:
        work()
    assert done == ["the first"]
    assert not isinstance(stop.value, TrainingInterrupted)


def test_the_handler_is_put_back_after_an_error():
    with pytest.raises(ZeroDivisionError), finish_step_first():
        raise ZeroDivisionError
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c()


def test_the_handler_of_a_caller_is_put_back():
    heard = []
    signal.signal(signal.SIGINT, lambda *_: heard.append("caller"))
    with finish_step_first() as interruption:
        press_ctrl_c()
    assert (interruption.asked, heard) == (True, [])
    press_ctrl_c()
    assert heard == ["caller"]
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
