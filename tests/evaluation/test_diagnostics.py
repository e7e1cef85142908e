import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from abalone.errors import InputError
from abalone.evaluation.diagnostics import forces, positives_in_batch, positives_in_epoch


@pytest.mark.parametrize("sparse", [False, True])
def test_forces_equal_the_double_loop(sparse):
    g = torch.Generator().manual_seed(0)
    z = torch.randn(12, 4, generator=g, dtype=torch.float64)
    y = (torch.rand(12, 5, generator=g) < 0.4).long()
    y[:, 3], y[:, 4] = 1, 0  # on every document, on none
    y[:, 2] = torch.eye(12, dtype=torch.long)[0]  # on one
    got = forces(z, y.to_sparse() if sparse else y)
    unit = torch.nn.functional.normalize(z, dim=1)
    attraction, repulsion = torch.full((5,), torch.nan), torch.full((5,), torch.nan)
    for label in range(5):
        members = [i for i in range(12) if y[i, label]]
        others = [i for i in range(12) if not y[i, label]]
        pulls = [-(unit[i] @ unit[j]) for i in members for j in members if i != j]
        pushes = [unit[i] @ unit[j] for i in members for j in others]
        attraction[label] = sum(pulls) / len(pulls) if pulls else torch.nan
        repulsion[label] = sum(pushes) / len(pushes) if pushes else torch.nan
    options = {"equal_nan": True, "check_dtype": False}
    torch.testing.assert_close(got.attraction_by_label(), attraction, **options)
    torch.testing.assert_close(got.repulsion_by_label(), repulsion, **options)


@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        (torch.ones(3), torch.ones(3, 1), r"embeddings must be \[rows, dim\]"),
        (torch.ones(3, 2), torch.ones(2, 1), "the same number of rows"),
        (torch.tensor([[1.0], [torch.nan]]), torch.ones(2, 1), "holds NaN or infinite values, first in row 1"),
    ],
)
def test_forces_of_bad_documents_are_refused(embeddings, labels, message):
    with pytest.raises(InputError, match=message):
        forces(embeddings, labels)


def test_forces_of_collapsed_labels_are_extreme():
    y = torch.eye(2, dtype=torch.long).repeat(5, 1)
    z = torch.where(y[:, :1] == 1, torch.tensor([1.0, 0.0]), torch.tensor([-1.0, 0.0]))
    got = forces(z, y)
    torch.testing.assert_close(got.attraction_by_label(), torch.tensor([-1.0, -1.0]))
    torch.testing.assert_close(got.repulsion_by_label(), torch.tensor([-1.0, -1.0]))


@pytest.mark.parametrize(
    ("embeddings", "told"),
    [
        (torch.ones(3), r"embeddings must be \[rows, dim\], got shape \(3,\)"),
        (torch.ones(3, 2).long(), "embeddings must be floating point, got torch.int64"),
        (torch.ones(3, 0), r"embeddings must not be empty, got shape \(3, 0\)"),
    ],
)
def test_forces_of_what_is_no_matrix_are_refused(embeddings, told):
    with pytest.raises(ValueError, match=told):
        forces(embeddings, torch.eye(3).long())


def test_positives_in_a_batch():
    labels = torch.tensor([[1, 0], [1, 1], [1, 0]])
    found = positives_in_batch(labels, queue_labels=torch.tensor([[0, 1], [0, 1], [1, 1]]))
    np.testing.assert_allclose(found.mean(), [2, 0])
    np.testing.assert_allclose(found.missing(), [0, 1])
    np.testing.assert_allclose(found.mean(queue=True), [3, 3])
    np.testing.assert_allclose(found.mean(queue=True, prototypes=True), [4, 4])
    np.testing.assert_allclose(found.missing(prototypes=True), [0, 0])


def test_positives_in_an_epoch_equal_a_walk_through_it():
    rng = np.random.default_rng(0)
    dense = (rng.random((50, 6)) < [0.9, 0.5, 0.2, 0.1, 0.04, 0.0]).astype(int)
    dense[:, 4] = np.eye(50, dtype=int)[7]  # on one document
    found = positives_in_epoch(csr_array(dense), batch_size=8, queue_size=20, seed=3)
    order = np.random.default_rng(3).permutation(50)
    shuffled = dense[order]
    endless = np.concatenate([shuffled, shuffled])  # the epoch before in front
    for label in range(5):
        in_batch, in_queue = [], []
        for i in range(50):
            if shuffled[i, label]:
                start = i // 8 * 8
                in_batch.append(shuffled[start : start + 8, label].sum() - 1)
                in_queue.append(endless[50 + start - 20 : 50 + start, label].sum())
        assert found.mean()[label] == pytest.approx(np.mean(in_batch))
        assert found.mean(queue=True)[label] == pytest.approx(np.mean(in_batch) + np.mean(in_queue))
        assert found.missing(queue=True)[label] == pytest.approx(np.mean((np.array(in_batch) + in_queue) == 0))
    assert np.isnan(found.mean()[5])
