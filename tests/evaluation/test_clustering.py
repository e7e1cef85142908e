"""Silhouette and Davies–Bouldin against scikit-learn, on classes of every size."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn import metrics

from abalone.evaluation import clustering
from abalone.evaluation.clustering import (
    cluster_by_combination,
    davies_bouldin_score,
    label_combinations,
    silhouette_score,
)

CLOSE = {"abs": 1e-6, "rel": 1e-6}


def points(documents: int, classes: int, dim: int = 16, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points around centres, far from the origin as real embeddings are; every class is there."""
    rng = np.random.default_rng(seed)
    members = np.concatenate([np.arange(classes), rng.zipf(1.5, documents - classes) % classes])
    return rng.normal(size=(classes, dim))[members] + rng.normal(size=(documents, dim)) + 20, members


@pytest.mark.parametrize(("documents", "classes"), [(1300, 7), (600, 300), (12, 11), (4, 2)])
def test_values_are_those_of_scikit_learn(documents, classes):
    embeddings, members = points(documents, classes)
    assert silhouette_score(embeddings, members) == pytest.approx(
        metrics.silhouette_score(embeddings, members), **CLOSE
    )
    expected = metrics.davies_bouldin_score(embeddings, members)
    assert davies_bouldin_score(embeddings, members) == pytest.approx(expected, **CLOSE)


@settings(max_examples=60)
@given(st.data())
def test_ties_duplicates_and_singletons(data):
    documents = data.draw(st.integers(3, 24))
    classes = data.draw(st.integers(2, documents - 1))
    members = np.array([*range(classes), *data.draw(st.lists(st.integers(0, classes - 1), min_size=documents - classes, max_size=documents - classes))])  # fmt: skip # noqa: E501
    # Whole numbers: many points coincide and many distances are equal.
    flat = data.draw(st.lists(st.integers(-2, 2), min_size=2 * documents, max_size=2 * documents))
    embeddings = np.array(flat, dtype=np.float64).reshape(documents, 2)
    with np.errstate(invalid="ignore"):
        expected = metrics.silhouette_score(embeddings, members)
    assert silhouette_score(embeddings, members) == pytest.approx(expected, **CLOSE)
    centres = np.array([embeddings[members == c].mean(0) for c in range(classes)])
    gaps = np.linalg.norm(centres[:, None] - centres[None], axis=2)[~np.eye(classes, dtype=bool)]
    if gaps.min() > 1e-3:  # where two centres coincide rounding decides, in scikit-learn too
        assert davies_bouldin_score(embeddings, members) == pytest.approx(
            metrics.davies_bouldin_score(embeddings, members), **CLOSE
        )


def test_equal_points_are_at_no_distance():
    embeddings = np.array([[1.0, 0.3]] + [[0.1, 0.7]] * 12)
    members = np.array([0, *range(1, 11), 1, 0])
    expected = metrics.silhouette_score(np.round(embeddings * 10), members)  # whole numbers leave nothing over
    assert silhouette_score(embeddings, members) == pytest.approx(expected, abs=1e-6)


def test_every_proportion_is_what_scikit_learn_says_of_the_combinations_it_keeps(monkeypatch):
    monkeypatch.setattr(clustering, "BLOCK", 7)  # so that blocks end inside classes
    rng = np.random.default_rng(1)
    labels = csr_array((rng.random((400, 6)) < [0.7, 0.5, 0.3, 0.2, 0.1, 0.05]).astype(int))
    embeddings = labels.toarray() @ rng.normal(size=(6, 10)) + rng.normal(size=(400, 10))
    scores = cluster_by_combination(embeddings, labels)
    combination = label_combinations(labels)
    total = combination.max() + 1
    for place, share in enumerate(scores.proportions):
        kept = (combination >= 0) & (combination < round(share * total))
        assert scores.documents[place] == kept.sum()
        expected = metrics.silhouette_score(embeddings[kept], combination[kept])
        assert scores.silhouette[place] == pytest.approx(expected, **CLOSE)
        expected = metrics.davies_bouldin_score(embeddings[kept], combination[kept])
        assert scores.davies_bouldin[place] == pytest.approx(expected, **CLOSE)
    assert scores.at(0.5) == (scores.silhouette[4], scores.davies_bouldin[4])


def test_combinations_are_ranked_by_frequency_then_by_labels():
    labels = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1]])
    assert label_combinations(labels).tolist() == [0, 1, -1, 0, 3, 2]


def test_documents_without_a_label_do_not_count():
    embeddings, members = points(60, 4)
    labels = np.eye(5, dtype=int)[members]
    with_bare = np.vstack([embeddings, np.full((3, embeddings.shape[1]), 99.0)]), np.vstack([labels, np.zeros((3, 5))])
    assert cluster_by_combination(*with_bare).to_dict() == cluster_by_combination(embeddings, labels).to_dict()


def test_a_larger_corpus_is_sampled_the_same_way_for_every_model():
    embeddings, members = points(500, 5)
    labels = np.eye(5, dtype=int)[members]
    once, again = (cluster_by_combination(embeddings, labels, most=100) for _ in range(2))
    assert once.to_dict() == again.to_dict()
    assert once.documents[-1] == 100
    assert cluster_by_combination(embeddings, labels, most=100, seed=1).silhouette != once.silhouette


def test_a_share_that_keeps_one_combination_tells_nothing():
    embeddings, members = points(60, 4)
    scores = cluster_by_combination(embeddings, np.eye(4, dtype=int)[members])
    assert scores.combinations[0] == 1
    assert math.isnan(scores.silhouette[0])
    assert math.isnan(scores.davies_bouldin[0])
    assert not math.isnan(scores.silhouette[-1])
    assert scores.to_dict()["silhouette"][0] is None


def test_what_cannot_be_told_apart_is_refused():
    embeddings, _ = points(10, 2)
    with pytest.raises(ValueError, match="two classes at least"):
        silhouette_score(embeddings, np.zeros(10, dtype=int))
    with pytest.raises(ValueError, match="two classes at least"):
        davies_bouldin_score(embeddings, np.ones(10, dtype=int))
    with pytest.raises(ValueError, match="two classes at least"):
        cluster_by_combination(embeddings, np.ones((10, 3)))
    with pytest.raises(ValueError, match="every class has a single document"):
        silhouette_score(embeddings, np.arange(10))
    for hole in (np.nan, np.inf):
        with pytest.raises(ValueError, match="finite"):
            silhouette_score(np.array([[0, 1], [1, 0], [2, hole], [3, 3]]), np.array([0, 0, 1, 1]))
    with pytest.raises(ValueError, match=r"same number of rows, got 10 and 9$"):
        cluster_by_combination(embeddings, np.ones((9, 3)))
    for wrong in (embeddings[:9], embeddings[:, 0]):  # fewer rows; as many numbers as classes, and no rows
        with pytest.raises(ValueError, match=r"^embeddings must be \[10, dimensions\], got shape "):
            silhouette_score(wrong, np.arange(10) % 2)
    with pytest.raises(ValueError, match="ascend"):
        cluster_by_combination(embeddings, np.ones((10, 3)), proportions=[0.5, 0.1])
