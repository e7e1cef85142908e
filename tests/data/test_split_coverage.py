import random

import pytest

from abalone.data.split import cover_labels


def cover(place: list[int], labels_of: list[list[int]], seed: int = 0) -> list[int]:
    labels = max(label for labels in labels_of for label in labels) + 1
    documents_of = [[d for d, labels in enumerate(labels_of) if label in labels] for label in range(labels)]
    place = list(place)
    cover_labels(place, labels_of, documents_of, parts=3, main=0, rng=random.Random(seed))
    return place


def test_a_label_is_spread_over_the_parts():
    assert sorted(cover([0, 0, 0], [[0], [0], [0]])) == [0, 1, 2]


def test_one_move_is_enough_where_one_is_missing():
    place = [0, 0, 1, 2, 0, 0]
    moved = cover(place, [[0], [0], [0], [1], [1], [1]])
    assert sorted(moved[:3]) == sorted(moved[3:]) == [0, 1, 2]
    assert sum(a != b for a, b in zip(place, moved, strict=True)) == 2


def test_training_comes_first():
    assert cover([1, 2], [[0], [0, 1]])[1] == 0
    assert cover([1], [[0]]) == [0]


def test_labels_with_too_few_documents_are_left_where_they_are():
    assert cover([0, 1], [[0], [0]]) == [0, 1]
    assert cover([0, 0], [[0], [0]]) == [0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_nothing_moves_where_nothing_can_be_gained(seed):
    # Label 0 is in three documents, but two of them have labels of their own, which training needs.
    labels_of = [[0, 1], [0, 2], [0], [3], [3], [3]]
    place = [0, 0, 1, 0, 1, 2]
    assert cover(place, labels_of, seed) == place
