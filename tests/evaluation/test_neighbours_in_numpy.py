import numpy as np
import pytest

from abalone.evaluation.neighbours import NearestNeighbours
from abalone.evaluation.neighbours_in_numpy import StoredNeighbours


@pytest.mark.parametrize("length", [0.0, 0.01, 1.0, 100.0])
def test_neighbours_of_embeddings_of_any_length_are_those_that_torch_finds(length):
    rng = np.random.default_rng(0)
    embeddings, queries = rng.normal(size=(50, 8)), rng.normal(size=(9, 8))
    queries *= length / np.linalg.norm(queries, axis=1, keepdims=True)
    expected = NearestNeighbours(k=50, device="cpu").fit(embeddings, rng.integers(0, 2, (50, 4)))
    unit = expected.state()["embeddings"].numpy()
    stored = StoredNeighbours(unit, expected._labels, expected.k, expected.temperature)
    np.testing.assert_allclose(stored.logits_in_blocks(queries), expected.logits(queries), atol=1e-4)
