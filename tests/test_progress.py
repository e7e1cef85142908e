import pytest

from abalone import progress
from abalone.progress import advance, track, whole


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
