import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from abalone.data.batches import shuffled_batches, token_budget_batches

LENGTHS = st.lists(st.integers(0, 400), max_size=200).map(lambda lengths: np.array(lengths, dtype=np.int64))


@given(LENGTHS, st.integers(1, 1000))
def test_budget_batches_hold_every_document_once_within_the_budget(lengths: np.ndarray, budget: int) -> None:
    batches = token_budget_batches(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= budget


@given(LENGTHS, st.integers(1, 1000))
def test_budget_batches_are_sorted_and_full(lengths: np.ndarray, budget: int) -> None:
    batches = token_budget_batches(lengths, budget)
    in_order = lengths[np.concatenate(batches)] if batches else lengths
    assert (np.diff(in_order) <= 0).all()
    for batch in batches[:-1]:
        assert (len(batch) + 1) * max(1, lengths[batch].max()) > budget


def test_equal_lengths_keep_their_order() -> None:
    assert [batch.tolist() for batch in token_budget_batches(np.array([5, 9, 5, 5]), 10)] == [[1], [0, 2], [3]]


@given(st.integers(0, 300), st.integers(1, 64), st.integers(0, 2**32), st.integers(0, 1000))
def test_shuffled_batches_hold_every_document_once(n: int, batch_size: int, seed: int, epoch: int) -> None:
    batches = shuffled_batches(n, batch_size, seed=seed, epoch=epoch)
    assert sorted(index for batch in batches for index in batch) == list(range(n))
    assert all(len(batch) == batch_size for batch in batches[:-1])
    whole = shuffled_batches(n, batch_size, seed=seed, epoch=epoch, drop_last=True)
    assert all(len(batch) == batch_size for batch in whole)
    assert len(whole) == n // batch_size
    for kept, batch in zip(whole, batches, strict=False):
        np.testing.assert_array_equal(kept, batch)


def test_the_order_follows_from_seed_and_epoch_alone() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        np.random.seed(np.random.randint(1000))
        torch.manual_seed(int(np.random.randint(1000)))
        return np.concatenate(shuffled_batches(100, 7, seed=seed, epoch=epoch)).tolist()

    assert order(0, 0) == order(0, 0)
    different = {tuple(order(seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(different) == 16


@pytest.mark.parametrize("bad", [0, -1])
def test_impossible_sizes(bad: int) -> None:
    with pytest.raises(ValueError, match="budget"):
        token_budget_batches(np.array([1]), bad)
    with pytest.raises(ValueError, match="batch"):
        shuffled_batches(3, bad, seed=0, epoch=0)
