"""A few hundred fuzz cases, always the same ones; `make fuzz` runs thousands, others every night."""

import threading
import time

import pytest
from hypothesis import strategies as st

from abalone.errors import DataError
from fuzz_targets import TARGETS
from fuzzing import Target, assert_clear, only_clear_errors, run_cases
from patience import PATIENCE


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.small])
def test_any_input_gives_a_result_or_a_clear_error(name, tmp_path):
    assert run_cases(name, TARGETS[name], TARGETS[name].small, tmp_path) == TARGETS[name].small


def broken(number, place):
    with only_clear_errors(DataError):
        {}["not there"]


def hanging(number, place):
    with only_clear_errors(DataError):
        while True:
            pass


def waiting(number, place):
    with only_clear_errors(DataError):
        threading.Event().wait()


def hungry(number, place):
    with only_clear_errors(DataError):
        bytearray(1 << 40)


@pytest.mark.parametrize(
    ("check", "told"),
    [(broken, "not there"), (hanging, "still running"), (waiting, "stuck"), (hungry, "MemoryError")],
)
def test_what_is_neither_is_found(check, told, tmp_path, monkeypatch):
    monkeypatch.setattr("fuzzing.PATIENCE", 0.2 if check is waiting else PATIENCE)
    with pytest.raises(AssertionError, match=told):
        run_cases("x", Target(check, small=1, seconds=0.2), 3, tmp_path)


def test_neither_preparing_nor_waiting_counts_as_the_time_of_a_case(tmp_path):
    def work():
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass

    target = Target(lambda numbers, place: time.sleep(0.2), small=1, seconds=0.1, prepare=work)
    assert run_cases("x", target, 1, tmp_path) == 1


def test_what_values_bring_to_light_is_found(tmp_path):
    target = Target(lambda value, place: 1 // (value - 7), small=1, values=st.integers(0, 9))
    with pytest.raises(ZeroDivisionError):
        run_cases("x", target, 100, tmp_path)


def test_a_case_can_be_repeated_by_its_name(tmp_path, monkeypatch):
    seen = []
    target = Target(lambda numbers, place: seen.append(numbers.random()), small=1)
    assert run_cases("x", target, 5, tmp_path) == 5
    monkeypatch.setenv("FUZZ_CASE", "x:0:3")
    assert run_cases("x", target, 5, tmp_path) == 1
    assert seen[5] == seen[3]
    assert run_cases("another", target, 5, tmp_path) == 0


@pytest.mark.parametrize("message", ["", " ", "x" * 5000, "a\x1b[31m", "about something else"])
def test_messages_that_are_not_clear(message):
    with pytest.raises(AssertionError):
        assert_clear(message, about="file.csv")
    assert_clear("file.csv:3: no text", about="file.csv")
