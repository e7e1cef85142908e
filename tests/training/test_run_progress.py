"""One display over a whole run, by a clock that only the test moves."""

import logging

import pytest
from rich.console import Console

from abalone.cli.app import _tell
from abalone.cli.train import _epochs_told
from abalone.progress import NOBODY, Timetable, as_parts_of, overall, track
from abalone.training import progress
from abalone.training.progress import RunProgress
from moved_clock import Clock


@pytest.fixture
def clock():
    return Clock()


def display_of(clock: Clock, batches: int = 1000, **options) -> RunProgress:
    table = Timetable(clock)
    table.plan("training", batches, guess=1.0)
    return RunProgress(table, "Training on 2 CPU cores", **{"told": True, **options})


def lines_of(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_log_gets_a_line_after_a_minute_and_then_ever_more_seldom(clock, caplog):
    caplog.set_level(logging.INFO, "abalone.training")
    with display_of(clock) as display:
        display.begin("Training 1/5")
        display.figures("loss 0.5000")
        told_at = []
        for _ in range(500):
            clock.now += 1.5
            before = len(caplog.records)
            display.done("training", 1)
            told_at += [clock.now] * (len(caplog.records) - before)
    assert told_at == [60.0, 120.0, 240.0, 480.0]
    assert lines_of(caplog)[0] == "Training 1/5, loss 0.5000; 4% done, about 24 min left"


def test_silence_is_never_longer_than_half_an_hour(clock, caplog):
    caplog.set_level(logging.INFO, "abalone.training")
    with display_of(clock, 100_000) as display:
        for _ in range(400):
            clock.now += 60
            display.done("training", 1)
    assert len(caplog.records) == 6 + (400 - 32) // 30


def test_a_total_that_was_not_known_at_the_start_is_told_once_it_is(clock, caplog):
    caplog.set_level(logging.INFO, "abalone.training")
    with display_of(clock, told=False, warm_up=2) as display:
        for seconds in (40.0, 3.0, 1.0, 1.0):  # the first compile, and say nothing
            clock.now += seconds
            display.done("training", 1)
    assert lines_of(caplog) == ["Training on 2 CPU cores: about 17 min left"]


def test_the_bar_and_its_time_fit_into_80_columns(clock, monkeypatch, capsys):
    monkeypatch.setattr(
        progress, "Console", lambda stderr: Console(stderr=stderr, force_terminal=True, width=80, color_system=None)
    )
    with display_of(clock, 20_000) as display:
        display.begin("Encoding the neighbours")
        display.figures("loss 10.1234")
        clock.now += 1.0
        display.done("training", 1)
    shown = capsys.readouterr().err
    (line,) = {line.strip() for line in shown.replace("\r", "\n").splitlines() if "left" in line and "loss" in line}
    assert "Encoding the neighbours" in line
    assert "6 h left" in line
    assert "…" not in line


def test_parts_tell_the_display_and_show_no_bar_of_their_own(clock, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("abalone.progress.PATIENCE", 0.0)
    begun = []
    display = display_of(clock)
    monkeypatch.setattr(display, "begin", begun.append)
    with as_parts_of(display):
        assert overall() is display
        assert list(track(range(3), "Encoding validation")) == [0, 1, 2]
    assert begun == ["Encoding validation"]
    assert overall() is NOBODY
    assert capsys.readouterr().err == ""


def test_lines_are_written_above_the_bar(clock, monkeypatch, capsys):
    """Click finds the terminal behind the stream that rich puts in its place, unless it is given that stream."""
    monkeypatch.setattr(
        progress, "Console", lambda stderr: Console(stderr=stderr, force_terminal=True, width=80, color_system=None)
    )
    with display_of(clock) as display:
        display.begin("Training 1/5")
        with _epochs_told():
            logging.getLogger("abalone.training.loop").info("Training 1/5: done")
        _tell("warning", "a slow disk", "yellow")
    shown = capsys.readouterr().err
    for line in ("Training 1/5: done", "warning: a slow disk"):
        assert shown[: shown.index(line)].endswith("\x1b[2K")  # the bar's line is erased before
