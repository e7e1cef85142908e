"""Batches of row numbers."""

import numpy as np

from abalone.errors import InputError


def token_budget_batches(lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """Return batches of documents of like length, for encoding a corpus with little padding.

    A batch holds as many documents as fit `budget` when padded to its longest; a document longer than the
    budget is a batch of its own. The longest come first, so a batch that does not fit the device fails at
    the start. Results go back in place by index: `embeddings[batch] = encode(batch)`.

    Args:
        lengths: tokens of every document, [documents].
        budget: the most tokens in a batch, padding included.
    """
    if budget < 1:
        raise InputError(f"budget must be at least 1 token, got {budget}")
    order = np.argsort(-lengths, kind="stable")
    batches = []
    start = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        stop = start + max(1, budget // longest)
        batches.append(order[start:stop])
        start = stop
    return batches


def shuffled_batches(n: int, batch_size: int, *, seed: int, epoch: int, drop_last: bool = False) -> list[np.ndarray]:
    """Return one epoch's batches of the documents 0 … n − 1 in random order.

    The order follows from `seed` and `epoch` alone, whatever other random numbers were drawn: a run that
    goes on at batch `k` of an epoch takes `shuffled_batches(…)[k:]`.

    Args:
        drop_last: leave out a last batch that is smaller than the others.
    """
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    order = np.random.default_rng([seed, epoch]).permutation(n)
    used = n - n % batch_size if drop_last else n
    return [order[start : min(start + batch_size, used)] for start in range(0, used, batch_size)]
