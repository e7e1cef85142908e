"""`load_corpus`: a user's own data, or a known corpus, as a `Corpus`."""

import hashlib
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from abalone.data.bad_rows import BadRows
from abalone.data.benchmarks import BENCHMARKS
from abalone.data.corpus import Corpus, assemble
from abalone.data.documents import FORMAT, Documents, read_documents, read_once, with_merged_case, without_copies
from abalone.data.notes import unseen_note
from abalone.data.rows import Columns, choose_columns
from abalone.data.sources import Source, matching_files, open_dataset, open_path
from abalone.errors import DataError, spelled

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


IN_MEMORY = 64 * 2**20  # bytes of files that are read into memory: quicker, and nothing is left behind


def load_corpus(
    source: "str | Path | Dataset | DatasetDict",
    *,
    path: str | Path | None = None,
    text_column: str | Sequence[str] | None = None,
    label_column: str | Sequence[str] | None = None,
    split_column: str | None = None,
    label_separator: str | None = None,
    merge_case: bool = False,
    drop_duplicates: bool = False,
    encoding: str | None = None,
    seed: int = 0,
    skip_bad_rows: bool | str | Path = False,
) -> Corpus:
    """Read a corpus from a user's own data, or one of the paper's by name.

    Own data is a CSV, TSV, JSON Lines or JSON file (plain, .gz, .xz or .zst), a Parquet or Arrow file, a folder with
    train, validation and test files of these, a pattern such as `"shards/*.parquet"` that matches them, or a Hugging
    Face `Dataset` or `DatasetDict`, in memory or as saved by `save_to_disk`. Columns with the usual names are found by
    themselves. Labels may be lists, strings like `"sports; politics"`, or one 0/1 column per label. Without splits,
    80/10/10 are made by iterative stratification, with copies of a text (equal up to white space) in the same split;
    without a validation split alone, a stratified tenth of train is split off. What is larger than 64 MiB is read to
    the cache folder once and memory-mapped from there.

    Args:
        source: a path, a pattern, a dataset, or the name of a benchmark (`"arxiv-sample"`, `"rcv1"` …). A string that
            is the name of a benchmark means the benchmark; write `"./rcv1"` for a folder of that name.
        path: where the files of a benchmark lie.
        text_column: the column of the texts; several, for example `["title", "body"]`, are joined by a newline.
        label_column: the column of the labels; a list of columns means one 0/1 column a label.
        split_column: the column that says train, validation or test.
        label_separator: what separates labels inside a string. By default it is found among `;` `|` tab `,`.
            `" "` splits at white space, `""` takes each string as one label.
        merge_case: make labels that differ only by case one label, written in lower case.
        drop_duplicates: keep the first of each text; it takes the labels of all its copies.
        encoding: of text files, such as `"cp1252"` or `"utf-16"`; UTF-8 by default.
        seed: of the splits that are made here. Benchmarks come with splits of their own.
        skip_bad_rows: leave out rows that cannot be used, instead of stopping at the first, and list them in
            `<source>.bad-rows.jsonl` or in the file given here.

    Returns:
        The corpus; its `notes` say what a person should know of it.

    Raises:
        DataError: with the file, the line and the reason.

    Example:
        >>> corpus = load_corpus("arxiv-sample")
        >>> corpus.train.labels.shape[1] == len(corpus.label_names)
        True
    """
    if isinstance(source, str) and source in BENCHMARKS:
        given = (text_column, label_column, split_column, label_separator, encoding)
        if skip_bad_rows or merge_case or drop_duplicates or given != (None,) * 5:
            raise DataError(
                f"{source!r} is a benchmark with known columns, and takes no option but {spelled('path')}",
                hint=f"For a file or folder of that name, write './{source}'.",
            )
        return BENCHMARKS[source](None if path is None else Path(path))
    if path is not None:
        raise DataError(
            f"{spelled('path')} is only for benchmarks ({', '.join(BENCHMARKS)}), and {source!r} is not one"
        )

    read = read_source(
        source,
        text_column=text_column,
        label_column=label_column,
        split_column=split_column,
        label_separator=label_separator,
        merge_case=merge_case,
        drop_duplicates=drop_duplicates,
        encoding=encoding,
        skip_bad_rows=skip_bad_rows,
    )
    corpus = assemble(read.documents, name=read.name, origin=read.origin, seed=seed, provenance=read.provenance)
    if corpus.unseen_labels:
        warnings.warn(unseen_note(corpus.unseen_labels), stacklevel=2)
    return corpus


@dataclass(frozen=True)
class SourceData:
    """A user's own data as it stands there, before splits and label columns are made of it."""

    name: str
    documents: Documents
    origin: str  # of the splits that the data brings
    provenance: Mapping[str, object]


def read_source(
    source: "str | Path | Dataset | DatasetDict",
    *,
    text_column: str | Sequence[str] | None = None,
    label_column: str | Sequence[str] | None = None,
    split_column: str | None = None,
    label_separator: str | None = None,
    merge_case: bool = False,
    drop_duplicates: bool = False,
    encoding: str | None = None,
    skip_bad_rows: bool | str | Path = False,
) -> SourceData:
    """Read a user's own data; the arguments are those of `load_corpus`."""
    opened = _open(source, encoding)
    columns = choose_columns(
        opened.tables[0], text_column=text_column, label_column=label_column, split_column=split_column
    )
    documents, bad_rows = _read(opened, columns, label_separator, _report(opened, skip_bad_rows))
    documents.notes[:0] = [*opened.notes, *columns.notes]
    left_out = f"Rows left out: {bad_rows.counted}; see {bad_rows.report}." if bad_rows.count else None
    if not documents.texts:
        raise DataError("no documents", path=opened.tables[0].name, hint=left_out)
    if left_out:
        documents.notes.append(left_out)
        warnings.warn(left_out, stacklevel=3)
    if merge_case:
        documents = with_merged_case(documents)
    if drop_duplicates:
        documents = without_copies(documents)
    return SourceData(
        opened.name,
        documents,
        f"column {columns.split!r}" if columns.split else "files",
        {
            **opened.provenance,
            "columns": {"text": list(columns.text), "labels": list(columns.labels), "split": columns.split},
            "label_separator": documents.separator,
            **({"merge_case": True} if merge_case else {}),
            **({"drop_duplicates": True} if drop_duplicates else {}),
            "bad_rows": bad_rows.count,
        },
    )


def _read(
    source: Source, columns: Columns, label_separator: str | None, report: Path | None
) -> tuple[Documents, BadRows]:
    """Read the documents into memory, or, of much data, memory-mapped from the cache folder."""
    read = partial(read_documents, source.tables, columns, label_separator=label_separator)
    with BadRows(report) as bad_rows:
        if source.size <= IN_MEMORY:
            return read(bad_rows=bad_rows), bad_rows
        options = [
            FORMAT,
            source.provenance,
            asdict(columns),
            [table.split for table in source.tables],
            label_separator,
        ]
        key = hashlib.sha256(json.dumps([*options, report is not None], default=str).encode()).hexdigest()[:32]
        documents = read_once(key, lambda keep, bad: read(keep_text=keep, bad_rows=bad), bad_rows)
    return documents, bad_rows


def _open(source: "str | Path | Dataset | DatasetDict", encoding: str | None) -> Source:
    if isinstance(source, str | Path):
        try:
            place = Path(source).expanduser()
            there = place.exists() or bool(matching_files(place))
        except (OSError, RuntimeError) as error:  # a name that no file can have, or a home that nobody has
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise DataError(f"no such file or folder: {reason}", path=source) from error
        if there:
            return open_path(place, encoding=encoding)
        raise _unknown(source, place.parent)
    datasets = sys.modules.get("datasets")  # whoever has a dataset has imported it
    if datasets and isinstance(source, datasets.Dataset | datasets.DatasetDict):
        if encoding is not None:
            raise DataError(f"{spelled('encoding')} is only for text files; a dataset is decoded already")
        return open_dataset(source)
    raise DataError(f"expected a path, a Dataset or a DatasetDict, got {type(source).__name__}")


def _unknown(source: str | Path, folder: Path) -> DataError:
    beside = [str(folder / entry.name) for entry in folder.iterdir()] if folder.is_dir() else []
    near = get_close_matches(str(source), [*BENCHMARKS, *beside], n=1, cutoff=0.6)
    return DataError(
        f"{str(source)!r} is neither a file or folder nor a benchmark",
        hint=(f"Did you mean {near[0]!r}? " if near else "") + f"Benchmarks: {', '.join(BENCHMARKS)}.",
    )


def _report(source: Source, skip_bad_rows: bool | str | Path) -> Path | None:
    """Return where rows left out are listed; None where none may be left out."""
    if isinstance(skip_bad_rows, str | Path):
        return Path(skip_bad_rows)
    if skip_bad_rows and source.report is None:
        raise DataError(
            "a dataset in memory has no folder to list bad rows in",
            hint="Name a file: skip_bad_rows='bad-rows.jsonl'.",
        )
    return source.report if skip_bad_rows else None
