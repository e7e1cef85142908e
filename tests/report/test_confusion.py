"""Confusions, counted by hand and by loop."""

import numpy as np

from abalone.report.confusion import confusion

TRUTH = np.array([[1, 0, 0, 1], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 0, 0]])
GIVEN = np.array([[0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 1, 1]])


def test_counts_by_hand():
    found = confusion(TRUTH, GIVEN)
    expected = np.zeros((4, 4), int)
    expected[0, 2] = 2  # documents 0 and 4
    expected[0, 3] = expected[1, 2] = expected[1, 3] = 1  # document 4
    assert np.array_equal(found.instead.toarray(), expected)
    assert found.together.toarray()[0, 1] == 2
    assert found.only_missed.tolist() == [0, 0, 1, 0]  # document 3
    assert found.only_given.tolist() == [0, 0, 1, 0]  # document 2
    assert found.pairs()[0] == (0, 2, 2, 0)
    assert found.pairs() == [(0, 2, 2, 0), (0, 3, 1, 1), (1, 2, 1, 0), (1, 3, 1, 0)]
    assert found.pairs(limit=1) == [(0, 2, 2, 0)]


def test_counts_by_loop():
    rng = np.random.default_rng(0)
    truth, given = rng.random((40, 6)) < 0.3, rng.random((40, 6)) < 0.3
    expected = np.zeros((6, 6), int)
    for true, predicted in zip(truth, given, strict=True):
        for a in range(6):
            for b in range(6):
                expected[a, b] += true[a] and not predicted[a] and predicted[b] and not true[b]
    assert np.array_equal(confusion(truth, given).instead.toarray(), expected)


def test_a_perfect_run_confuses_nothing():
    found = confusion(TRUTH, TRUTH)
    assert found.pairs() == []
    assert found.most_confused() == []


def test_the_most_confused_come_first_and_no_more_than_asked_for():
    found = confusion(TRUTH, GIVEN)
    assert sorted(found.most_confused(limit=2)) == [0, 2]
    assert sorted(found.most_confused()) == [0, 1, 2, 3]


def test_labels_that_occur_together_stand_side_by_side():
    rng = np.random.default_rng(1)
    kin = rng.random((200, 2)) < 0.5
    truth = np.stack([kin[:, 0], kin[:, 1], kin[:, 0], kin[:, 1]], axis=1).astype(int)  # 0 with 2, 1 with 3
    given = (rng.random((200, 4)) < 0.5).astype(int)
    order = confusion(truth, given).most_confused()
    assert abs(order.index(0) - order.index(2)) == 1
    assert abs(order.index(1) - order.index(3)) == 1
