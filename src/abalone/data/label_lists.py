"""The labels of many documents in two arrays, and their names once."""

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import overload

import numpy as np
from scipy.sparse import csr_array

from abalone.data.labels import in_order


class LabelLists(Sequence[tuple[str, ...]]):
    """The label names of each document, in the order in which they stand there, repeated ones too.

    A list of tuples takes ten times the memory, which matters for millions of documents.

    Args:
        names: of the labels that occur.
        indices: into `names`, document after document, [assignments]; may be memory-mapped.
        ends: where each document's end, [documents].

    Example:
        >>> lists = LabelLists()
        >>> lists.append(["b", "a"])
        >>> lists.append([])
        >>> lists[0], len(lists)
        (('b', 'a'), 2)
        >>> lists.matrix(["a", "b", "c"]).toarray().tolist()
        [[1, 1, 0], [0, 0, 0]]
    """

    def __init__(
        self, names: Iterable[str] = (), indices: np.ndarray | None = None, ends: np.ndarray | None = None
    ) -> None:
        self.names = list(names)
        self._number = {name: number for number, name in enumerate(self.names)}
        self._indices: array[int] | np.ndarray = array("i") if indices is None else indices
        self._ends: array[int] | np.ndarray = array("q") if ends is None else ends

    def append(self, labels: Iterable[str]) -> None:
        """Add the labels of one more document."""
        if isinstance(self._indices, np.ndarray) or isinstance(self._ends, np.ndarray):
            raise TypeError("these label lists are fixed")
        for name in labels:
            number = self._number.setdefault(name, len(self.names))
            if number == len(self.names):
                self.names.append(name)
            self._indices.append(number)
        self._ends.append(len(self._indices))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, item: int) -> tuple[str, ...]: ...
    @overload
    def __getitem__(self, item: slice) -> list[tuple[str, ...]]: ...
    def __getitem__(self, item: int | slice) -> tuple[str, ...] | list[tuple[str, ...]]:
        if isinstance(item, slice):
            return [self[row] for row in range(*item.indices(len(self)))]
        if not -len(self) <= item < len(self):
            raise IndexError(f"document {item} of {len(self)}")
        row = item % len(self)
        start = self._ends[row - 1] if row else 0
        return tuple(self.names[number] for number in self._indices[start : self._ends[row]])

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """`indices` and `ends`, as the constructor takes them."""
        return np.asarray(self._indices, np.int32), np.asarray(self._ends, np.int64)

    def lengths(self) -> np.ndarray:
        """[documents], how many labels stand at each, repeated ones too."""
        return np.diff(self.arrays()[1], prepend=0)

    def select(self, rows: np.ndarray) -> "LabelLists":
        """Those of some documents."""
        indices, ends = self.arrays()
        matrix = csr_array((indices, indices, np.concatenate([[0], ends])), shape=(len(self), max(len(self.names), 1)))
        chosen = matrix[rows]  # kept as they stand: neither sorted nor summed
        return LabelLists(self.names, chosen.indices, chosen.indptr[1:])

    def renamed(self, rename: Callable[[str], str]) -> "LabelLists":
        """The same with other names; labels that come to the same name become one."""
        number: dict[str, int] = {}
        new = [number.setdefault(rename(name), len(number)) for name in self.names]
        indices, ends = self.arrays()
        return LabelLists(number, np.array(new, dtype=np.int32)[indices] if len(indices) else indices, ends)

    def carried(self) -> list[str]:
        """The names that a document carries, in order."""
        indices, _ = self.arrays()
        return in_order(self.names[number] for number in np.unique(indices))

    def matrix(self, names: Sequence[str]) -> csr_array:
        """0/1 over the columns `names`, [documents, names]: a repeated label counts once, others have no column."""
        column = {name: index for index, name in enumerate(names)}
        column_of = np.array([column.get(name, -1) for name in self.names], dtype=np.int32)  # [labels]
        indices, ends = self.arrays()
        columns = column_of[indices] if len(indices) else indices
        known = columns >= 0
        bounds = np.concatenate([[0], ends])
        if not known.all():
            columns, bounds = columns[known], np.concatenate([[0], np.cumsum(known)])[bounds]
        if len(columns) < np.iinfo(np.int32).max:
            bounds = bounds.astype(np.int32)  # or else scipy takes twice the room for the columns as well
        ones = np.ones(len(columns), dtype=np.int32)
        matrix = csr_array((ones, columns, bounds), shape=(len(self), len(names)))
        matrix.sum_duplicates()
        matrix.data[:] = 1
        return matrix
