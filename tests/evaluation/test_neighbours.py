import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError

from abalone.errors import InputError
from abalone.evaluation import neighbours as knn
from abalone.evaluation.neighbours import NearestNeighbours


def made_up(documents=97, queries=31, dim=8, labels=5, seed=0):
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(documents, dim)).astype(np.float32) * rng.uniform(0.1, 10, (documents, 1))
    return embeddings, (rng.random((documents, labels)) < 0.3).astype(int), rng.normal(size=(queries, dim))


def brute_force(embeddings, labels, queries, k, temperature):
    """One query after the other, in double precision."""
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    rows, cosines, probabilities = [], [], []
    for query in queries:
        similarity = unit @ (query / np.linalg.norm(query))
        nearest = np.argsort(-similarity)[:k]
        weight = np.exp(similarity[nearest] / temperature)
        rows.append(nearest)
        cosines.append(similarity[nearest])
        probabilities.append(weight @ labels[nearest] / weight.sum())
    return np.array(rows), np.array(cosines), np.array(probabilities)


@pytest.mark.parametrize(("query_block", "reference_block"), [(2048, 16384), (7, 16384), (2048, 10), (7, 10)])
def test_as_brute_force_finds_whatever_the_blocks(monkeypatch, query_block, reference_block):
    monkeypatch.setattr(knn, "QUERIES", query_block)
    monkeypatch.setattr(knn, "REFERENCES", reference_block)
    embeddings, labels, queries = made_up()
    rows, cosines, probabilities = brute_force(embeddings, labels, queries, k=12, temperature=0.2)
    neighbours = NearestNeighbours(k=12, temperature=0.2, device="cpu").fit(embeddings, csr_array(labels))
    found_rows, found_cosines = neighbours.neighbours(queries)
    assert np.array_equal(found_rows, rows)
    np.testing.assert_allclose(found_cosines, cosines, atol=1e-5)
    np.testing.assert_allclose(neighbours.predict_proba(queries), probabilities, atol=1e-5)


def test_as_many_as_asked_for_nearest_first():
    embeddings, labels, queries = made_up()
    neighbours = NearestNeighbours(k=12, device="cpu").fit(embeddings, labels)
    rows, cosines = neighbours.neighbours(queries, k=3)
    assert rows.shape == cosines.shape == (31, 3)
    assert (np.diff(cosines, axis=1) <= 0).all()
    assert np.array_equal(rows, neighbours.neighbours(queries)[0][:, :3])


def test_fewer_documents_than_k():
    embeddings, labels, queries = made_up(documents=4)
    neighbours = NearestNeighbours(k=50, device="cpu").fit(embeddings, labels)
    rows, _ = neighbours.neighbours(queries)
    assert (np.sort(rows) == np.arange(4)).all()
    assert neighbours.predict_proba(queries).shape == (31, 5)


def test_a_document_without_direction_hears_all_alike():
    neighbours = NearestNeighbours(k=2, device="cpu").fit(np.eye(2), np.array([[1, 0], [1, 1]]))
    assert neighbours.predict_proba(np.zeros((1, 2))).tolist() == [[1.0, 0.5]]


def test_tensors_and_read_only_arrays_are_welcome():
    embeddings, labels, queries = made_up()
    expected = NearestNeighbours(k=5, device="cpu").fit(embeddings, labels).predict_proba(queries)
    embeddings.flags.writeable = False
    tensors = torch.tensor(queries, requires_grad=True)
    found = NearestNeighbours(k=5, device="cpu").fit(embeddings, labels).predict_proba(tensors)
    assert np.array_equal(found, expected)


def test_neighbour_nearer_by_a_tenth_counts_e_times_as_much_by_default():
    embeddings = np.array([[1.0, 0.0], [0.9, np.sqrt(1 - 0.9**2)]])
    neighbours = NearestNeighbours(device="cpu").fit(embeddings, np.eye(2, dtype=int))
    near, far = neighbours.predict_proba(np.array([[1.0, 0.0]]))[0]
    assert near / far == pytest.approx(np.e, rel=1e-4)


def test_probabilities_never_exceed_one():
    embeddings, _, queries = made_up(documents=400, queries=300)
    everybody = NearestNeighbours(device="cpu").fit(embeddings, np.ones((400, 1))).predict_proba(queries)
    assert everybody.max() <= 1
    np.testing.assert_allclose(everybody, 1, atol=1e-6)


def test_logits_stop_at_half_a_neighbour():
    neighbours = NearestNeighbours(k=1, device="cpu").fit(np.eye(2), np.array([[1, 0], [0, 0]]))
    logits = neighbours.logits(np.eye(2))
    np.testing.assert_allclose(logits, [[np.log(3), -np.log(3)], [-np.log(3), -np.log(3)]], rtol=1e-6)


@pytest.mark.parametrize("half", [False, True])
def test_read_back_it_answers_the_same_to_the_last_bit(tmp_path, half):
    embeddings, labels, queries = made_up()
    labels[:, 4] = 0  # a last column without a document must not get lost
    neighbours = NearestNeighbours(k=7, temperature=0.3, fp16=half, device="cpu").fit(embeddings, labels)
    save_file(neighbours.state(), tmp_path / "neighbours.safetensors")
    read = NearestNeighbours.from_state(load_file(tmp_path / "neighbours.safetensors"), device="cpu")
    assert (read.k, read.temperature, read.fp16) == (7, 0.3, half)
    assert np.array_equal(read.predict_proba(queries), neighbours.predict_proba(queries))
    assert np.array_equal(read.neighbours(queries)[0], neighbours.neighbours(queries)[0])


def test_half_precision_halves_the_state_and_hardly_moves_the_cosines():
    embeddings, labels, queries = made_up()
    full = NearestNeighbours(k=5, device="cpu").fit(embeddings, labels)
    half = NearestNeighbours(k=5, fp16=True, device="cpu").fit(embeddings, labels)
    assert half.state()["embeddings"].nbytes * 2 == full.state()["embeddings"].nbytes
    np.testing.assert_allclose(half.neighbours(queries)[1], full.neighbours(queries)[1], atol=1e-3)


@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        (np.ones((3, 2)), np.ones((2, 1)), r"same number of rows, got shapes \(3, 2\) and \(2, 1\)"),
        (np.ones(3), np.ones((3, 1)), r"embeddings must be \[documents, dim\], got shape \(3,\)"),
        (np.ones((3, 2), dtype=int), np.ones((3, 1)), "embeddings must be floating point"),
        (np.array([[1.0], [np.nan]]), np.ones((2, 1)), r"embeddings holds NaN or infinite values, first in row 1"),
        (np.ones((2, 2)), np.full((2, 1), 3), "labels must be 0 or 1 everywhere, found 3"),
    ],
)
def test_bad_documents_are_refused(embeddings, labels, message):
    with pytest.raises(ValueError, match=message):
        NearestNeighbours(device="cpu").fit(embeddings, labels)


def test_bad_use_is_refused():
    neighbours = NearestNeighbours(device="cpu")
    with pytest.raises(NotFittedError, match="fit"):
        neighbours.predict_proba(np.ones((1, 2)))
    with pytest.raises(NotFittedError, match="fit"):
        neighbours.state()
    neighbours.fit(np.eye(2), np.eye(2))
    with pytest.raises(InputError, match=r"must be \[rows, 2\] to match those in training, got shape \(1, 3\)"):
        neighbours.predict_proba(np.ones((1, 3)))
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        neighbours.neighbours(np.ones((1, 2)), k=0)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        NearestNeighbours(k=0)
    with pytest.raises(InputError, match="temperature must be a finite number above 0"):
        NearestNeighbours(temperature=0.0)
