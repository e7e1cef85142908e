"""Tables in Arrow: Parquet and Arrow files, and Hugging Face datasets. Lines are row numbers, counted from one."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abalone.data.tables import BadRow, Record, Table
from abalone.errors import DataError, install_hint

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

BATCH = 1000  # rows in memory at a time, as Python objects
_INSTALL = f"To install it, {install_hint('data')}."


class ParquetTable(Table):
    """A Parquet file, read in batches and only in the columns that are needed."""

    format = "parquet"

    def __init__(self, path: Path, split: str | None = None) -> None:
        super().__init__(path, split)
        self.path = path
        with _reading(path, "Parquet") as pyarrow, pyarrow.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            self._columns = tuple(schema.names)
        self._class_names = _names_in_schema(schema, path)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names in the schema."""
        return self._columns

    def records(self, columns: Collection[str] | None = None) -> Iterator[Record | BadRow]:
        """Yield every row."""
        wanted = None if columns is None else list(columns)
        with (
            _reading(self.path, "Parquet") as pyarrow,
            pyarrow.parquet.ParquetFile(self.path, memory_map=True) as file,
        ):
            yield from _records(file.iter_batches(BATCH, columns=wanted), self._class_names)


class ArrowTable(Table):
    """An Arrow IPC file (Feather 2), or a stream of Arrow in a file; memory-mapped."""

    format = "arrow"

    def __init__(self, path: Path, split: str | None = None) -> None:
        super().__init__(path, split)
        self.path = path
        with _reading(path, "Arrow") as pyarrow, pyarrow.memory_map(str(path)) as source:
            schema = _ipc_reader(pyarrow, source).schema
            self._columns = tuple(schema.names)
        self._class_names = _names_in_schema(schema, path)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names in the schema."""
        return self._columns

    def records(self, columns: Collection[str] | None = None) -> Iterator[Record | BadRow]:
        """Yield every row."""
        wanted = list(self._columns if columns is None else columns)
        with _reading(self.path, "Arrow") as pyarrow, pyarrow.memory_map(str(self.path)) as source:
            reader = _ipc_reader(pyarrow, source)
            numbered = hasattr(reader, "num_record_batches")
            batches = map(reader.get_batch, range(reader.num_record_batches)) if numbered else reader
            yield from _records((batch.select(wanted) for batch in batches), self._class_names)


def _ipc_reader(pyarrow: Any, source: Any) -> Any:
    """Return the reader of a file, or of a stream, as the datasets library writes it: the first bytes tell."""
    magic = source.read(6)
    source.seek(0)
    return pyarrow.ipc.open_file(source) if magic == b"ARROW1" else pyarrow.ipc.open_stream(source)


@contextmanager
def _reading(path: Path, what: str) -> Iterator[Any]:
    """Import pyarrow, and let its errors name the file."""
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f"reading {what} needs the package pyarrow", path=path, hint=_INSTALL) from error
    try:
        yield pyarrow
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read as {what}: {error}", path=path) from error


def _names_in_schema(schema: Any, path: Path) -> dict[str, list[str]]:
    """Return the names of integer labels, which the hub writes into the schema."""
    if b"huggingface" not in (schema.metadata or {}):
        return {}
    datasets = _import_datasets(path)
    try:
        return _class_names(datasets.Features.from_arrow_schema(schema))
    except Exception as error:  # it takes the file's word for everything, and stumbles where that is wrong
        raise DataError(f"its label names cannot be read: {error!r}", path=path) from error


class DatasetTable(Table):
    """A Hugging Face dataset, in memory or memory-mapped."""

    format = "dataset"

    def __init__(self, dataset: "Dataset", name: str | Path, split: str | None = None) -> None:
        super().__init__(name, split)
        self._dataset = dataset
        self._class_names = _class_names(dataset.features)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the dataset."""
        return tuple(self._dataset.column_names)

    def records(self, columns: Collection[str] | None = None) -> Iterator[Record | BadRow]:
        """Yield every row."""
        import pyarrow

        dataset = self._dataset if columns is None else self._dataset.select_columns(list(columns))
        try:
            # As Arrow, so that nothing is decoded or turned into tensors, whatever format the user has set.
            yield from _records(dataset.with_format("arrow").iter(BATCH), self._class_names)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(f"the dataset is damaged: {error}", path=self.name) from error


def load_saved(folder: Path) -> "Dataset | DatasetDict":
    """Load the dataset that `save_to_disk` has written to `folder`."""
    datasets = _import_datasets(folder)
    try:
        return datasets.load_from_disk(str(folder))
    except Exception as error:  # the library takes the files' word for everything, and stumbles where that is wrong
        raise DataError(f"cannot be read as a saved dataset: {error!r}", path=folder) from error


def is_saved_dataset(folder: Path) -> bool:
    """Return whether `save_to_disk` of the datasets library wrote `folder`."""
    single = ("state.json", "dataset_info.json")
    return (folder / "dataset_dict.json").is_file() or all((folder / name).is_file() for name in single)


def _import_datasets(path: Path) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise DataError("reading this needs the package datasets", path=path, hint=_INSTALL) from error
    return datasets


def _records(batches: Any, class_names: Mapping[str, list[str]]) -> Iterator[Record]:
    parts = (batch.slice(start, BATCH) for batch in batches for start in range(0, batch.num_rows, BATCH))
    values_of_rows = chain.from_iterable(map(_values, parts))
    for number, values in enumerate(values_of_rows, start=1):
        for column, names in class_names.items():
            if column in values:
                values[column] = _named(values[column], names)
        yield Record(number, values)


def _values(batch: Any) -> list[dict[str, Any]]:
    # Arrow trusts what it maps: an offset that a damaged file points past its end would be followed, out of the file.
    batch.validate(full=True)
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def _class_names(features: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names behind the integers, for columns of class labels and of lists of them."""
    names = {}
    for column, feature in features.items():
        while (inner := getattr(feature, "feature", None)) is not None:
            feature = inner
        if hasattr(feature, "int2str"):
            names[column] = feature.names
    return names


def _named(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [_named(item, names) for item in value if item != -1]
    if value is None or value == -1:  # how the datasets library writes "not labelled"
        return None
    return names[value] if 0 <= value < len(names) else value
