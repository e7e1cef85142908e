"""What is said of a text, and in what order."""

import numpy as np
import pytest

from abalone.data.rows import Row
from abalone.evaluation import matrices
from abalone.evaluation.decision import Decision, Thresholds
from abalone.inference import answers as module
from abalone.inference.answers import Wanted, answers, windows

NAMES = ("a", "b", "c", "d")
SCORES = np.array([[0.2, 0.9, 0.6, 0.9], [0.1, 0.1, 0.1, 0.1], [0.5, 0.4, 0.3, 0.7]])
DECISION = Decision(Thresholds(np.full(4, 0.5)))


def plain(row: np.ndarray, wanted: Wanted) -> dict[str, object]:
    """The same, a text at a time, as it is said in the documentation."""
    order = (-row).argsort(kind="stable")
    labels = [NAMES[j] for j in order[: wanted.top] if wanted.top or row[j] >= 0.5]
    whole = {"probabilities": {NAMES[j]: round(float(row[j]), 6) for j in order}} if wanted.probabilities else {}
    return {"labels": labels, **whole}


@pytest.mark.parametrize("at_once", [2**24, 4])
@pytest.mark.parametrize("top", [None, 1, 2, 3, 4, 9])
@pytest.mark.parametrize("probabilities", [False, True])
def test_labels_from_the_most_probable_down(at_once, top, probabilities, monkeypatch):
    monkeypatch.setattr(matrices, "AT_ONCE", at_once)
    wanted = Wanted(probabilities, top)
    given = list(answers(SCORES, DECISION, NAMES, wanted))
    assert given == [plain(row, wanted) for row in SCORES]
    if probabilities:
        assert [list(a["probabilities"]) for a in given] == [list(plain(r, wanted)["probabilities"]) for r in SCORES]


def test_of_many_random_scores(monkeypatch):
    scores = np.random.default_rng(0).random((200, 4)).round(1)  # with ties
    for top in (None, 2):
        assert list(answers(scores, DECISION, NAMES, Wanted(top=top))) == [plain(r, Wanted(top=top)) for r in scores]


def test_nothing_in_nothing_out():
    assert list(answers(np.empty((0, 4)), DECISION, NAMES, Wanted())) == []
    assert list(windows([])) == []


def test_windows_end_by_number_or_by_length(monkeypatch):
    monkeypatch.setattr(module, "WINDOW_TEXTS", 3)
    monkeypatch.setattr(module, "WINDOW_CHARACTERS", 10)
    for texts, expected in ((["x"] * 4, [["x"] * 3, ["x"]]), (["x" * 9, "yy", "z"], [["x" * 9, "yy"], ["z"]])):
        assert [[row.text for row in window] for window in windows(map(Row, texts))] == expected
