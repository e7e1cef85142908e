"""Labels: cells as people write them, the names in them by document, and the 0/1 matrix."""

import ast
import json
import re
import sys
import tempfile
import warnings
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from reprlib import repr as short
from typing import IO, overload

import numpy as np
from scipy.sparse import csr_array

from abalone.errors import InputError, spelled

# In order of preference: a comma is the likeliest of them to stand inside a name.
SEPARATORS = (";", "|", "\t", ",")
FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # what a cell begins with that a spreadsheet computes
_JOINING = ("/", "+", "&", *SEPARATORS, " ")  # others that people use, and those that were not taken
_JOINED = 3  # names that have to be made of others before a person is told

Cell = str | tuple[str, ...]  # a string that is still to be split, or the names themselves


def read_cell(value: object, *, lists_in_text: bool = True) -> Cell:
    """Take the labels of one document as they come out of a table.

    Args:
        value: a list, a string, an integer, or nothing.
        lists_in_text: read a string like `["a", "b"]` or `('a', 'b')` as a list.

    Raises:
        ValueError: it is none of these; the message says what it is.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        text = value.strip()
        if not lists_in_text:
            return text
        if text.startswith("[") and text.endswith("]"):
            value = _list_in_text(text)
        else:
            value = _other_collection_in_text(text)
            if value is None:
                return text
    if not isinstance(value, list | tuple):
        value = [value]
    return tuple(name for item in value if (name := _name(item)))


def _name(label: object) -> str:
    if isinstance(label, str):
        return sys.intern(label.strip())  # a corpus repeats few names often
    if isinstance(label, int) and not isinstance(label, bool):
        return sys.intern(str(label))
    raise InputError(f"the label {short(label)} is neither a string nor an integer")


def _list_in_text(text: str) -> list[object]:
    """Read a list written as JSON, or by Python as pandas writes it to CSV."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = _written_in_python(text)
    if not isinstance(value, list):
        raise InputError(
            f"the labels {short(text)} look like a list but are not one "
            f"({spelled('label_separator')} takes them as text)"
        )
    return value


def _other_collection_in_text(text: str) -> object:
    """Read a tuple, set or dictionary as Python writes it; None for any other text, such as `(new)`."""
    if text in ("set()", "frozenset()"):
        return ()
    if text.startswith("frozenset({") and text.endswith("})"):
        text = text.removeprefix("frozenset(")[:-1]
    if (text[:1], text[-1:]) not in {("(", ")"), ("{", "}")}:
        return None
    value = _written_in_python(text)
    if isinstance(value, set):
        return sorted(value, key=repr)
    return value if isinstance(value, tuple | dict) else None


def _written_in_python(text: str) -> object:
    """Return the value of a Python literal; None where it is none."""
    # A printed NumPy array has no commas; Python would read its names as one long name.
    if re.search(r"""(['"])\s+\1""", text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice to whoever writes Python, say on a backslash
            return ast.literal_eval(text)
    except (
        ValueError,
        SyntaxError,
        TypeError,
        RecursionError,
        MemoryError,
    ):  # the last two where it is nested too deep
        return None


def find_separators(cells: Iterable[Cell]) -> list[str]:
    """Return the characters that may separate the labels in `cells`, the best first; none where no cell has one.

    The best is the one that leaves the fewest distinct labels: a wrong one glues names together or cuts them.

    Args:
        cells: read several times.
    """
    occurring: set[str] = set()
    for cell in cells:
        if isinstance(cell, str):
            occurring.update(separator for separator in SEPARATORS if separator in cell)
    found: dict[str, set[str]] = {separator: set() for separator in SEPARATORS if separator in occurring}
    if len(found) > 1:
        for cell in cells:
            if isinstance(cell, str):
                for separator, names in found.items():
                    names.update(split_cell(cell, separator))
    return sorted(found, key=lambda separator: len(found[separator]))  # stable: ties stay in order of preference


def joined_names(names: Collection[str]) -> tuple[str, list[str]] | None:
    """Find a character that seems to join labels to names such as `refund/delivery`, and these names.

    It does where most names that hold it are made of other names alone, as hardly any are by chance.
    """
    for mark in _JOINING:
        holding = [name for name in names if mark in name]
        joined = [name for name in holding if all(part in names for part in split_cell(name, mark))]
        if len(joined) >= _JOINED and 2 * len(joined) >= len(holding):
            return mark, joined
    return None


def split_cell(cell: Cell, separator: str | None) -> tuple[str, ...]:
    """Return the names in a cell, stripped; without a separator a string is one name. A blank is any white space."""
    if not isinstance(cell, str):
        return cell
    if not separator:
        return (sys.intern(cell),) if cell else ()
    names = (name.strip() for name in cell.split(None if separator == " " else separator))
    return tuple(sys.intern(name) for name in names if name)


class BitVectors:
    """Tells whether cells, seen one after the other, are 0/1 vectors, which have no names, rather than lists."""

    def __init__(self) -> None:
        self._length: int | None = None
        self._alike, self._repeats = True, False

    def see(self, cell: Cell) -> None:
        """Take one more cell."""
        if not self._alike:
            return
        self._length = self._length or len(cell)
        self._alike = not isinstance(cell, str) and len(cell) == self._length > 1 and set(cell) <= {"0", "1"}
        self._repeats = self._repeats or len(set(cell)) < len(cell)

    @property
    def all(self) -> bool:
        """Return whether all were, and one of them at least cannot be a list of labels, as it repeats one."""
        return self._length is not None and self._alike and self._repeats


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

    @classmethod
    def of(cls, documents: Iterable[Iterable[str]]) -> "LabelLists":
        """Take the labels of documents; those that are such lists already stay as they are."""
        if isinstance(documents, cls):
            return documents
        lists = cls()
        for labels in documents:
            lists.append(labels)
        return lists

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
        """Return `indices` and `ends`, as the constructor takes them."""
        return np.asarray(self._indices, np.int32), np.asarray(self._ends, np.int64)

    def lengths(self) -> np.ndarray:
        """Return how many labels stand at each document, repeated ones too, [documents]."""
        return np.diff(self.arrays()[1], prepend=0)

    def select(self, rows: np.ndarray) -> "LabelLists":
        """Return those of some documents."""
        indices, ends = self.arrays()
        matrix = csr_array((indices, indices, np.concatenate([[0], ends])), shape=(len(self), max(len(self.names), 1)))
        chosen = matrix[rows]  # kept as they stand: neither sorted nor summed
        return LabelLists(self.names, chosen.indices, chosen.indptr[1:])

    def renamed(self, rename: Callable[[str], str]) -> "LabelLists":
        """Return the same lists with other names; labels that come to the same name become one."""
        number: dict[str, int] = {}
        new = [number.setdefault(rename(name), len(number)) for name in self.names]
        indices, ends = self.arrays()
        return LabelLists(number, np.array(new, dtype=np.int32)[indices] if len(indices) else indices, ends)

    def carried(self) -> list[str]:
        """Return the names that a document carries, in order."""
        indices, _ = self.arrays()
        return in_order(self.names[number] for number in np.unique(indices))

    def matrix(self, names: Sequence[str]) -> csr_array:
        """Return 0/1 over the columns `names`, [documents, names]: a repeated label counts once."""
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


class LabelCells:
    """Takes cells one after the other, and puts the names in them into `lists`.

    Lists of names go there at once. Strings wait in a temporary file until it is known what separates the names in
    them, so that millions of them take no memory; use it as a context, which removes the file.

    Args:
        separator: what separates names in a string; found in the cells where it is `None`.
        lists: where the names go.
    """

    def __init__(self, separator: str | None, lists: LabelLists) -> None:
        self._separator, self._lists = separator, lists
        self.strings = False  # whether a cell held names as a string
        self.separated = False  # whether a cell held several names between separators that were given
        self._bits = BitVectors()
        self._waiting: IO[str] | None = None

    @property
    def bit_vectors(self) -> bool:
        """Return whether all cells were 0/1 vectors, which have no names."""
        return self._bits.all

    def append(self, cell: Cell) -> None:
        """Add the cell of one more document."""
        self._bits.see(cell)
        self.strings = self.strings or (isinstance(cell, str) and cell != "")
        if self._waiting is None and isinstance(cell, str) and cell and self._separator is None:
            self._waiting = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed by our own context
        if self._waiting is None:
            names = split_cell(cell, self._separator)
            self.separated = self.separated or (isinstance(cell, str) and names not in ((), (cell,)))
            self._lists.append(names)
        else:
            self._waiting.write(f"{json.dumps(cell)}\n")

    def split(self) -> list[str]:
        """Put what waits into the lists; gives the separators that were found, the one that was used first."""
        if self._waiting is None:
            return []
        separators = find_separators(self)
        for cell in self:
            self._lists.append(split_cell(cell, separators[0] if separators else None))
        return separators

    def __iter__(self) -> Iterator[Cell]:
        """Yield the cells that wait, as often as they are asked for."""
        if self._waiting is not None:
            self._waiting.seek(0)
            for line in self._waiting:
                cell = json.loads(line)
                yield cell if isinstance(cell, str) else tuple(cell)

    def __enter__(self) -> "LabelCells":
        return self

    def __exit__(self, *_: object) -> None:
        if self._waiting is not None:
            self._waiting.close()


def in_order(names: Iterable[str]) -> list[str]:
    """Sort names: as numbers where all of them are integers, of a length that numbers have."""
    distinct = set(names)
    if all(re.fullmatch(r"-?[0-9]{1,100}", name) for name in distinct):
        return sorted(distinct, key=lambda name: (int(name), name))
    return sorted(distinct)


def differing_by_case(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return groups of names that are the same but for case."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[name.casefold()].append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]
