"""Texts of validation and test that are training texts too: what a model has seen says little of what it has not."""

from collections.abc import Mapping, Sequence

import numpy as np

from abalone.data.corpus import SPLITS
from abalone.data.texts import MappedTexts

LARGEST = 2**30  # bytes of mapped texts; to read more of them only to count is too long a wait at every start


def repeated_notes(texts: Sequence[str], rows: Mapping[str, np.ndarray]) -> list[str]:
    """What to tell of validation and test texts that are training texts, to the letter.

    Args:
        texts: of all documents.
        rows: the documents of each split.
    """
    if isinstance(texts, MappedTexts) and texts.size > LARGEST:
        return []
    hashes = np.fromiter(map(hash, texts), dtype=np.int64, count=len(texts))  # [n], enough to tell a billion apart
    train, *others = SPLITS
    trained = hashes[rows[train]]
    repeated = {split: int(np.isin(hashes[rows[split]], trained).sum()) for split in others}
    return [
        f"{count:,} of {rows[split].size:,} {split} texts are also training texts, so scores on them flatter."
        for split, count in repeated.items()
        if count
    ]
