"""What `abalone predict` says of each text, from probabilities."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from abalone.data.rows import Row
from abalone.evaluation.decision import Decision
from abalone.evaluation.matrices import EVERY, Scores, row_blocks
from abalone.files.errors import DataError

# Texts that are read, sorted by length and encoded together: enough that batches are of like length, and few enough
# that they are nothing beside the model. Either ends a window.
WINDOW_TEXTS, WINDOW_CHARACTERS = 4096, 8_000_000

Answer = dict[str, object]


@dataclass(frozen=True)
class Wanted:
    """What an answer tells.

    Args:
        probabilities: the probability of every label too.
        top: this many most probable labels, whatever their thresholds.
    """

    probabilities: bool = False
    top: int | None = None


def windows(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows of texts in lists that fit in memory, in order; those before one that cannot be read are still given."""
    window: list[Row] = []
    characters = 0
    try:
        for row in rows:
            window.append(row)
            characters += len(row.text)
            if len(window) == WINDOW_TEXTS or characters >= WINDOW_CHARACTERS:
                yield window
                window, characters = [], 0
    except DataError:
        if window:
            yield window
        raise
    if window:
        yield window


def answers(scores: Scores, decision: Decision, names: Sequence[str], wanted: Wanted) -> Iterator[Answer]:
    """One answer a row of probabilities [n, L]; labels from the most probable down, equal ones in label order."""
    for rows in row_blocks(scores.shape):
        block = scores[rows, EVERY]
        given = decision.labels(block) if wanted.top is None else _highest(block, wanted.top)
        documents, columns = given.nonzero()
        order = np.lexsort((columns, -block[documents, columns], documents))
        ends = np.cumsum(np.bincount(documents, minlength=len(block))).tolist()
        labels = [names[column] for column in columns[order].tolist()]
        for row, (start, stop) in enumerate(pairwise([0, *ends])):
            answer: Answer = {"labels": labels[start:stop][: wanted.top]}
            if wanted.probabilities:
                descending = (-block[row]).argsort(kind="stable")
                answer["probabilities"] = {names[j]: round(float(block[row, j]), 6) for j in descending}
            yield answer


def _highest(block: np.ndarray, number: int) -> np.ndarray:
    """Where the `number` highest values of each row are, and all that equal the last of them; bool [n, L]."""
    if number >= block.shape[1]:
        return np.ones(block.shape, dtype=bool)
    last = np.partition(block, -number, axis=1)[:, -number]
    reached: np.ndarray = block >= last[:, None]
    return reached
