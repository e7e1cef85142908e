"""One file of answers: JSON lines, or Parquet."""

from typing import Any, BinaryIO, Literal, Protocol

from abalone.errors import install_hint
from abalone.files.errors import printable_json
from abalone.inference.answers import Answer

Form = Literal["jsonl", "parquet"]


class PartWriter(Protocol):
    """Takes the answers of one part, some at a time."""

    def write(self, answers: list[Answer]) -> None:
        """Add some."""

    def close(self) -> None:
        """Write what is still to be written; the file itself stays open."""


def open_writer(file: BinaryIO, form: Form) -> PartWriter:
    """The writer of a form."""
    return _ParquetWriter(file) if form == "parquet" else _JsonWriter(file)


def require(form: Form) -> None:
    """Raise if what a form needs is not installed: before the work, not after."""
    if form == "parquet":
        _import_pyarrow()


class _JsonWriter:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, answers: list[Answer]) -> None:
        self._file.write("".join(f"{printable_json(answer)}\n" for answer in answers).encode())

    def close(self) -> None:
        pass


class _ParquetWriter:
    """Columns as the fields of the JSON lines: `labels` a list, `probabilities`, if any, a map.

    Ids, if any, are strings here: a later row may have one where all before had numbers.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer: Any = None  # the first answer says which columns there are

    def write(self, answers: list[Answer]) -> None:
        pyarrow = _import_pyarrow()
        if self._writer is None:
            fields = {"id": pyarrow.string()} if "id" in answers[0] else {}
            fields["labels"] = pyarrow.list_(pyarrow.string())
            if "probabilities" in answers[0]:
                fields["probabilities"] = pyarrow.map_(pyarrow.string(), pyarrow.float64())
            self._schema = pyarrow.schema(fields)
            self._writer = pyarrow.parquet.ParquetWriter(self._file, self._schema)
        rows = [{**answer, "id": str(answer["id"])} if "id" in answer else answer for answer in answers]
        self._writer.write_table(pyarrow.Table.from_pylist(rows, schema=self._schema))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _import_pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError(f"writing Parquet needs pyarrow: {install_hint('data')}") from None
    return pyarrow
