"""Tables of scores in the terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from abalone.errors import printable

if TYPE_CHECKING:
    from abalone.evaluation.metrics import LabelScore

COLUMNS = {
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "macro_f1_present": "macro-F1 here",
    "macro_f1_head": "head",
    "macro_f1_medium": "medium",
    "macro_f1_tail": "tail",
    "hamming_loss": "Hamming\n×10³",
}


def scores_table(rows: Mapping[str, Mapping[str, float]], title: str | None = None, *, present: bool = False) -> None:
    """Print one line for each entry: F1 in percent, macro-F1 also by thirds of the labels from frequent to rare.

    Args:
        rows: scores by the name of their line.
        title: stands above.
        present: show macro-F1 over the labels that occur too, where it is another.
    """
    present = present and any(
        f"{own['macro_f1_present']:.3f}" != f"{own['macro_f1']:.3f}"
        for own in rows.values()
        if "macro_f1_present" in own
    )
    columns = {key: heading for key, heading in COLUMNS.items() if present or key != "macro_f1_present"}
    table = _table(title)
    table.add_column("")
    for heading in columns.values():
        table.add_column(heading, justify="right")
    for name, scores in rows.items():
        cells = (
            "" if key not in scores else f"{scores[key] * (1000 if key == 'hamming_loss' else 100):.1f}"
            for key in columns
        )
        table.add_row(Text(printable(name)), *cells)
    Console().print(table)


def labels_table(labels: "Sequence[LabelScore]", title: str) -> None:
    """Print one line per label: how often it occurs in training and here, is predicted, and how well."""
    table = _table(title)
    table.add_column("label", overflow="fold")  # a name that is cut short cannot be looked up
    for heading in ("in training", "here", "predicted", "precision", "recall", "F1"):
        table.add_column(heading, justify="right")
    for label in labels:
        shares = (f"{100 * share:.1f}" for share in (label.precision, label.recall, label.f1))
        trained = "" if label.train_frequency is None else str(label.train_frequency)
        table.add_row(Text(printable(label.name)), trained, str(label.support), str(label.predicted), *shares)
    Console().print(table)


def _table(title: str | None) -> Table:
    # As `Text`, here and for names: they may hold brackets, which rich would take for markup.
    return Table(title=None if title is None else Text(printable(title)), title_justify="left", box=box.SIMPLE_HEAD)
