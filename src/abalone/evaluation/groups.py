"""Head, medium and tail: the labels in thirds by how often the training documents carry them."""

import math

import numpy as np

THIRDS = ("head", "medium", "tail")


def label_thirds(frequencies: np.ndarray) -> np.ndarray:
    """The third each label belongs to: 0 head, 1 medium, 2 tail.

    Labels are ranked from the most frequent down, equally frequent ones in label order, and cut after ranks ⌈L/3⌉
    and ⌈2L/3⌉: what does not divide by three goes to the head, then to the medium third (53 labels: 18, 18, 17).
    With fewer than three labels the tail is empty.

    Args:
        frequencies: [L], training documents of each label.

    Returns:
        [L], indices into `THIRDS`.

    Example:
        >>> label_thirds(np.array([1, 900, 30, 30])).tolist()
        [2, 0, 0, 1]
    """
    frequencies = np.asarray(frequencies)
    if frequencies.ndim != 1:
        raise ValueError(f"frequencies must be [labels], got shape {frequencies.shape}")
    if not np.all(frequencies >= 0):  # written so that NaN is refused too
        raise ValueError("frequencies must be counts of at least 0")
    labels = len(frequencies)
    ranks = np.empty(labels, dtype=np.int64)
    ranks[np.argsort(-frequencies.astype(np.float64), kind="stable")] = np.arange(labels)
    return np.searchsorted([math.ceil(labels / 3), math.ceil(2 * labels / 3)], ranks, side="right")
