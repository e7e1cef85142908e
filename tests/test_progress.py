import math

import pytest

from abalone import progress
from abalone.progress import FADING, Timetable, advance, spoken, track, whole
from moved_clock import Clock


def test_passes_everything_on_in_silence_when_stderr_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    assert list(track(range(5), "Counting")) == [0, 1, 2, 3, 4]
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal


@pytest.mark.usefixtures("terminal")
def test_shows_nothing_before_its_patience_is_over(capsys):
    assert list(track(range(1000), "Counting")) == list(range(1000))
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("total", [None, 30])
def test_shows_a_bar_on_stderr_after_its_patience(capsys, monkeypatch, total):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    assert list(track(iter(range(30)), "Counting", total=total)) == list(range(30))
    out, err = capsys.readouterr()
    assert out == ""
    assert "Counting" in err


@pytest.mark.usefixtures("terminal")
def test_an_abandoned_loop_takes_its_bar_away(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    steps = track(range(30), "Counting")
    next(steps)
    steps.close()
    assert capsys.readouterr().err.endswith("\x1b[2K")  # the line is erased last


@pytest.mark.usefixtures("terminal")
def test_a_work_in_parts_has_one_bar_with_the_total_of_all(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    with whole("Predicting", 30) as bar:
        for part in range(3):
            bar.reach(10 * part)
            for _ in track(range(5), "Encoding"):
                advance(2)
        assert bar.reached == 30
    shown = capsys.readouterr().err
    assert "Encoding" not in shown
    assert "30/30" in shown
    assert list(track(range(3), "Alone")) == [0, 1, 2]
    assert "Alone" in capsys.readouterr().err


def test_without_a_work_in_parts_nothing_is_counted():
    advance(3)


@pytest.fixture
def clock():
    return Clock()


def test_left_is_a_guess_until_work_is_measured(clock):
    table = Timetable(clock)
    table.plan("train", 100, guess=2.0)
    table.plan("words", 1, guess=30.0)
    table.start()
    assert (table.left, table.measured) == (230, False)
    clock.now = 5.0
    table.done("train", 10)
    assert table.left == pytest.approx(90 * 0.5 + 30)
    assert table.measured
    assert table.elapsed == 5.0


def test_several_runs_add_up(clock):
    table = Timetable(clock)
    for _ in range(5):
        table.plan("train", 100, guess=1.0)
    table.start()
    clock.now = 20.0
    table.done("train", 100)
    assert table.left == pytest.approx(400 * 0.2)


def test_what_happens_between_counts_to_what_comes_next(clock):
    table = Timetable(clock)
    table.plan("train", 4, guess=1.0)
    table.start()
    for now in (1.0, 10.0):  # a checkpoint was written meanwhile
        clock.now = now
        table.done("train", 1)
    assert table.elapsed == 10.0
    assert table.left == pytest.approx(2 * 5, rel=0.06)


def test_a_machine_that_becomes_slower_is_noticed(clock):
    table = Timetable(clock)
    table.plan("train", 10_000, guess=1.0)
    table.start()
    for seconds in [1.0] * 100 + [3.0] * int(3 * FADING):
        clock.now += seconds
        table.done("train", 1)
    assert table.left == pytest.approx((9_900 - int(3 * FADING)) * 3, rel=0.05)


def test_untypical_work_is_done_but_not_measured(clock):
    table = Timetable(clock)
    table.plan("train", 10, guess=1.0)
    table.start()
    clock.now = 100.0
    table.done("train", 1, typical=False)
    assert (table.left, table.measured) == (9.0, False)


@pytest.mark.parametrize(("units", "left"), [(math.inf, 0.0), (20.0, 60.0), (100.0, 0.0)])
def test_work_that_need_not_be_done_is_skipped(clock, units, left):
    table = Timetable(clock)
    table.plan("train", 100, guess=1.0)
    table.start()
    clock.now = 20.0
    table.done("train", 20)
    table.skip("train", units)
    assert table.left == pytest.approx(left)


def test_unplanned_work_changes_nothing_but_the_time(clock):
    table = Timetable(clock)
    table.plan("train", 10, guess=1.0)
    table.start()
    clock.now = 3.0
    table.done("", 5)
    table.skip("unheard of")
    assert (table.left, table.elapsed) == (10.0, 3.0)


@pytest.mark.parametrize("seconds", [12, 65, 400, 3_500, 3_700, 15_000, 30_000, 400_000])
def test_spoken_durations_are_right_to_an_eighth(seconds):
    words = spoken(seconds).split()
    units = {"s": 1, "min": 60, "h": 3600, "days": 86_400}
    said = sum(int(number) * units[unit] for number, unit in zip(words[::2], words[1::2], strict=True))
    assert said == pytest.approx(seconds, rel=1 / 8)
