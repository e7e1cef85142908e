"""Losses and excerpts of documents."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics import log_loss

from abalone.report.documents import document_losses, excerpt, worst_documents


def test_the_loss_is_the_cross_entropy_of_a_document():
    rng = np.random.default_rng(0)
    truth, probabilities = rng.integers(2, size=(5, 4)), rng.random((5, 4))
    expected = [log_loss(t, p, normalize=False, labels=[0, 1]) for t, p in zip(truth, probabilities, strict=True)]
    assert document_losses(csr_array(truth), probabilities) == pytest.approx(expected)


def test_a_sure_mistake_costs_much_but_not_infinitely_much():
    losses = document_losses(csr_array([[1, 0], [1, 0]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert np.isfinite(losses).all()
    assert losses[0] > 30
    assert losses[1] < 1e-5


def test_the_worst_come_first():
    assert worst_documents(np.array([1.0, 5.0, 3.0, 5.0]), limit=3).tolist() == [1, 3, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (" \n\t ", ""),
        ("short  text\n", "short text"),
        ("x" * 11, "x" * 10 + "…"),
        ("x" * 10, "x" * 10),
        ("  " * 5000 + "late", "…"),
    ],
)
def test_excerpts(text, expected):
    assert excerpt(text, 10) == expected
