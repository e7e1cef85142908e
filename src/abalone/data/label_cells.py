"""Cells of labels on their way to lists of names: what separates names in a string is known after the last cell."""

import json
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import IO

from abalone.data.label_lists import LabelLists
from abalone.data.labels import BitVectors, Cell, find_separators, split_cell


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
        """Whether all cells were 0/1 vectors, which have no names."""
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
        """The cells that wait, as often as they are asked for."""
        if self._waiting is not None:
            self._waiting.seek(0)
            for line in self._waiting:
                cell = json.loads(line)
                yield cell if isinstance(cell, str) else tuple(cell)

    def __enter__(self) -> "LabelCells":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._waiting is not None:
            self._waiting.close()
