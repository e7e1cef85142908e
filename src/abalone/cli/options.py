"""Options that several commands share: how they read data, open models, and tell notes."""

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from abalone.config import Precision
from abalone.errors import InputError, printable

if TYPE_CHECKING:
    from abalone.data.corpus import Corpus
    from abalone.data.leakage import DocumentsToScore
    from abalone.inference.predictor import Predictor

Command = TypeVar("Command", bound=Callable[..., None])

READING_PANEL = "Reading the data"  # a heading of the help


def _reading(option: str, text: str, metavar: str | None = None) -> Any:
    return typer.Option(option, metavar=metavar, help=text, rich_help_panel=READING_PANEL)


Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A file, a folder, or the name of a known corpus.", show_default=False)
]
DataPath = Annotated[Path | None, _reading("--path", "Where the files of a known corpus are.", "PATH")]
TextColumn = Annotated[
    list[str] | None,
    _reading(
        "--text-column",
        "Text column; by default, one with a usual name. Repeat the option to join several columns.",
        "NAME",
    ),
]
LabelColumn = Annotated[
    list[str] | None,
    _reading(
        "--label-column",
        "Label column; by default, one with a usual name. Repeat the option for several 0/1 columns.",
        "NAME",
    ),
]
SplitColumn = Annotated[str | None, _reading("--split-column", "Column with the split: train, val or test.", "NAME")]
LabelSeparator = Annotated[str | None, _reading("--label-separator", "Separator between the labels in a cell.", "TEXT")]
MergeCase = Annotated[bool, _reading("--merge-case", "Merge labels that differ only by case, in lower case.")]
DropDuplicates = Annotated[
    bool, _reading("--drop-duplicates", "Keep one copy of each text, with the labels of all copies.")
]
Encoding = Annotated[
    str | None, _reading("--encoding", "Encoding of text files, such as cp1252 or utf-16; UTF-8 by default.", "NAME")
]
SkipBadRows = Annotated[
    bool,
    _reading("--skip-bad-rows", "Skip rows that cannot be used, and list them in a file, instead of stopping."),
]
SplitToScore = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar="NAME",
        help="train, validation, test or all; by default test, or all of a file without splits.",
    ),
]
DEVICE_HELP = "Where to compute: auto, cpu, cuda, cuda:1, mps."
Device = Annotated[str, typer.Option("--device", metavar="NAME", help=DEVICE_HELP)]


def reading_arguments(
    *,
    path: DataPath = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    split_column: SplitColumn = None,
    label_separator: LabelSeparator = None,
    merge_case: MergeCase = False,
    drop_duplicates: DropDuplicates = False,
    encoding: Encoding = None,
    skip_bad_rows: SkipBadRows = False,
) -> dict[str, Any]:
    """Return the reading options of a command as arguments of `load_corpus`."""
    return {**locals(), "text_column": _one_or_several(text_column), "label_column": _one_or_several(label_column)}


def _one_or_several(columns: list[str] | None) -> str | list[str] | None:
    """Return a repeatable option as the library takes it: there a name means another thing than a list of one."""
    return columns[0] if columns and len(columns) == 1 else columns or None


READING = inspect.signature(reading_arguments).parameters
"""The reading options, by name."""


def reads_corpus(command: Command) -> Command:
    """Show a command's `**reading` to typer as the options of `reading_arguments`, so that they are listed once."""
    signature = inspect.signature(command)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    command.__signature__ = signature.replace(parameters=[*own, *READING.values()])  # type: ignore[attr-defined]
    return command


def read_corpus(data: str, *, trained_on: Iterable[Mapping[str, Any]] = (), **reading: Any) -> "Corpus":
    """Read a corpus and print its notes on stderr, unless the training of a model on the same data has printed them.

    Args:
        data: as the user names it.
        trained_on: the provenance of each model's training data.
        reading: the reading options.
    """
    from abalone.data.leakage import same_data
    from abalone.data.load import load_corpus

    with unrepeated() as notes:
        corpus = load_corpus(data, **reading_arguments(**reading))
        notes += corpus.notes
    if not any(same_data(corpus.provenance, then) for then in trained_on):
        tell(corpus.notes)
    return corpus


def read_training_data(data: str, trained_on: Mapping[str, Any], path: Path | None) -> "Corpus":
    """Read again what a model was trained on, as its training did, and say so if it is something else.

    Args:
        data: as the user names it.
        trained_on: the provenance of the model's training data.
        path: where the files of a known corpus are.
    """
    from abalone.data.benchmarks import BENCHMARKS
    from abalone.data.leakage import corpus_of_training, same_data

    if data in BENCHMARKS or path is not None:  # which is refused with anything else
        corpus = read_corpus(data, trained_on=[trained_on], path=path)
    else:
        with unrepeated() as notes:
            corpus = corpus_of_training(data, trained_on)
            notes += corpus.notes
        if not same_data(corpus.provenance, trained_on):
            tell(corpus.notes)
    if trained_on and not same_data(corpus.provenance, trained_on):
        tell([f"{corpus.name} differs from the data that the model was trained on."])
    return corpus


def tell_documents(found: "DocumentsToScore") -> None:
    """Print which documents are scored, and why their scores may look too good."""
    if not found.known_data:
        tell(found.data_notes)
    tell(found.notes)
    for doubt in found.warnings:
        warnings.warn(doubt, stacklevel=2)


def tell_absent(model: str, label_names: tuple[str, ...], found: "DocumentsToScore") -> int:
    """Print which labels of a model are on none of the documents it is scored on, and return how many."""
    from abalone.data.notes import listed

    absent = found.absent(label_names)
    if absent:
        occur, each = ("occurs", "It") if len(absent) == 1 else ("occur", "Each")
        tell(
            [
                f"{len(absent):,} of the {len(label_names):,} labels of {model} {occur} in no scored document of "
                f"{found.name}. {each} counts as F1 0 in macro-F1: {listed(absent)}."
            ]
        )
    return len(absent)


@contextmanager
def unrepeated() -> Iterator[list[str]]:
    """Hold warnings back until the notes in this list are known, and give those that say something else."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as given:
        yield notes
    for warning in given:
        if str(warning.message) not in notes:
            warnings.warn(warning.message, stacklevel=3)


def tell(notes: Iterable[str]) -> None:
    """Print notes on stderr."""
    for note in notes:
        typer.echo(f"note: {printable(note)}", err=True)


def open_model(model: Path, device: str, precision: Precision | None = None) -> "Predictor":
    """Open a model folder, or an ONNX file."""
    return _open_onnx(model, device, precision) if model.is_file() else _open_folder(model, device, precision)


def _open_folder(model: Path, device: str, precision: Precision | None) -> "Predictor":
    """Open a model folder; torch is imported only if the model has an encoder."""
    from abalone.inference.folder import load

    settings = {} if precision is None else {"precision": precision}
    opened = load(model, only_to_answer=True, device=device, **settings)
    if opened.backend is None:
        tell_unused_device(device)
    return opened


def tell_unused_device(device: str) -> None:
    """Print that a model without an encoder is not computed on this device."""
    if device not in ("auto", "cpu"):
        tell([f"--device {device} is not used: a model without an encoder runs on the processor."])


def _open_onnx(model: Path, device: str, precision: Precision | None) -> "Predictor":
    """Open an ONNX file; nothing here may import torch, even by way of another module."""
    from abalone.inference.onnx_model import OnnxModel

    if device not in ("auto", "cpu"):
        raise InputError(
            f"an ONNX file runs on the processor, not on --device {device!r}; give the model folder instead"
        )
    if precision is not None:
        raise InputError("the precision of an ONNX file is fixed when it is exported; give the model folder instead")
    return OnnxModel.load(model)
