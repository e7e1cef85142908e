"""The map: deterministic, within the square, and neighbours stay neighbours."""

import numpy as np
import pytest

from abalone.report.map import document_map


def clusters(seed=0, each=20):
    rng = np.random.default_rng(seed)
    centres = 6 * rng.normal(size=(3, 16))
    return np.vstack([centre + 0.3 * rng.normal(size=(each, 16)) for centre in centres]).astype(np.float32)


@pytest.mark.parametrize("layout", ["pca", "tsne"])
def test_documents_that_are_alike_lie_together(layout):
    places = document_map(clusters())[layout]
    group = np.repeat(np.arange(3), 20)
    distance = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    assert np.array_equal(group[distance.argmin(axis=1)], group)


def test_the_same_embeddings_give_the_same_map():
    first, again = document_map(clusters()), document_map(clusters())
    for layout, places in first.items():
        assert np.array_equal(places, again[layout])


def test_it_fits_the_unit_square_and_is_wider_than_tall():
    for places in document_map(clusters()).values():
        assert places.shape == (60, 2)
        extent = np.ptp(places, axis=0)
        assert extent.max() == pytest.approx(1)
        assert places.min() >= -1e-9
        assert places.max() <= 1 + 1e-9
    assert np.var(places[:, 0]) >= np.var(places[:, 1])  # of t-SNE, which is turned


def test_only_directions_count():
    embeddings = clusters()
    longer = embeddings * np.random.default_rng(1).uniform(1, 9, size=(60, 1))
    assert np.allclose(document_map(embeddings)["pca"], document_map(longer)["pca"], atol=1e-5)


@pytest.mark.parametrize("documents", [1, 2, 4, 5])
def test_few_documents(documents):
    maps = document_map(clusters()[:documents])
    assert set(maps) == ({"pca", "tsne"} if documents >= 5 else {"pca"})
    for places in maps.values():
        assert places.shape == (documents, 2)
        assert np.isfinite(places).all()


def test_documents_that_coincide_or_are_nothing_at_all():
    for embeddings in (np.ones((6, 4)), np.zeros((6, 4))):
        for places in document_map(embeddings).values():
            assert np.allclose(places, 0.5)


def test_one_dimension():
    maps = document_map(np.array([[1.0], [-1.0], [1.0], [-1.0], [1.0], [-1.0]]))
    assert all(places.shape == (6, 2) and np.isfinite(places).all() for places in maps.values())
