import numpy as np
import pytest

from abalone.data.corpus import head_share
from abalone.evaluation.metrics import label_thirds


def test_thirds():
    assert label_thirds(np.array([5, 9, 1, 7, 3, 8])).tolist() == [1, 0, 2, 1, 2, 0]
    assert label_thirds(np.array([4, 4, 4])).tolist() == [0, 1, 2], "ties in label order"
    sizes = {labels: np.bincount(label_thirds(np.arange(labels)), minlength=3).tolist() for labels in (1, 2, 4, 5, 53)}
    assert sizes == {1: [1, 0, 0], 2: [1, 1, 0], 4: [2, 1, 1], 5: [2, 2, 1], 53: [18, 18, 17]}
    for labels in range(1, 30):
        frequencies = np.random.default_rng(labels).integers(1, 50, labels)
        head = frequencies[label_thirds(frequencies) == 0].sum() / frequencies.sum()
        assert head == pytest.approx(head_share(frequencies))


@pytest.mark.parametrize(
    ("frequencies", "message"),
    [
        (np.ones((2, 3)), r"frequencies must be \[labels\], got shape \(2, 3\)"),
        (np.array([1, -1]), "frequencies must be counts"),
        (np.array([1, np.nan]), "frequencies must be counts"),
    ],
)
def test_bad_frequencies_are_refused(frequencies, message):
    with pytest.raises(ValueError, match=message):
        label_thirds(frequencies)
