"""The benchmark of `abalone review`: what is planted, how it is scored, and that all of it fits together."""

import numpy as np
import pytest
from benchmarks.review import SPARED, average_precision, corrected, plant, run, tables, train
from benchmarks.review import test_scores as scores_of_test
from scipy.sparse import csr_array

import tiny
from abalone.data.corpus import Corpus, Split


@pytest.fixture(scope="module")
def labels():
    return tiny.corpus(300)[1].toarray() > 0


def test_as_many_labels_are_added_as_removed_and_none_is_lost(labels):
    labels = labels.copy()
    labels[:, -1] = False
    labels[:SPARED, -1] = True
    planted = plant(labels, np.random.default_rng(0))
    removed, added = np.count_nonzero(labels & ~planted), np.count_nonzero(planted & ~labels)
    assert removed == added == round(0.05 * labels.sum())
    assert planted[:SPARED, -1].all()


def test_rare_labels_are_hit_more_often_for_their_size():
    labels = np.zeros((4000, 2), dtype=bool)
    labels[:2000, 0] = labels[:50, 1] = True
    lost = np.mean(
        [(labels & ~plant(labels, np.random.default_rng(seed))).sum(axis=0) / labels.sum(axis=0) for seed in range(20)],
        axis=0,
    )
    assert lost[1] > 3 * lost[0] > 0


def test_perfect_doubts_find_everything_and_correct_it(labels):
    planted = plant(labels, np.random.default_rng(1))
    perfect = (labels != planted).astype(float)
    assert set(average_precision(perfect, labels, planted).values()) == {100.0}
    assert (corrected(perfect, labels, planted) == labels).all()
    assert max(average_precision(1 - perfect, labels, planted).values()) < 20
    assert (corrected(1 - perfect, labels, planted) == planted).all()


def test_a_seed_from_planting_to_the_test_split(labels):
    texts = tiny.corpus(300)[0]
    splits = [slice(0, 220), slice(220, 220), slice(220, 300)]
    parts = [Split(texts[rows], csr_array(labels[rows].astype(np.int32))) for rows in splits]
    corpus = Corpus(*parts, ("a", "b", "c", "d", "e"))
    truth = corpus.train.labels.toarray() > 0
    clean = scores_of_test(train(corpus, truth, "words"), corpus, truth.sum(axis=0))
    told = run(corpus, "words", 0, clean)
    assert 0 < told["corrected"] <= told["planted"]
    found = told["average_precision"]
    assert found["abalone"]["wrong"] > 50
    assert found["abalone"]["missing"] > 20
    assert tables([told]).count("\n| ") == len(found) + 4
