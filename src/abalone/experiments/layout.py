"""A table of means and deviations, and how it looks in Markdown, CSV and LaTeX."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

import numpy as np

from abalone.data.cache import written_whole

MISSING = "–"


@dataclass(frozen=True)
class Value:
    """A mean, and the standard deviation where there are several values."""

    mean: float
    deviation: float | None = None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Value | None":
        """Mean and sample deviation of what is known; None of nothing."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else None)


Cell = Value | str | None
Best = Literal["highest", "lowest"]


@dataclass(frozen=True)
class Column:
    """What stands above and how its numbers are shown.

    Args:
        heading: in plain words.
        group: of neighbouring columns, such as "at 0.5".
        latex: the heading in LaTeX, if it is another.
        best: which mean is set in bold.
        decimals: shown; CSV has all.
    """

    heading: str
    group: str = ""
    latex: str | None = None
    best: Best | None = None
    decimals: int = 2

    @property
    def title(self) -> str:
        """Heading and group in one, where a format has one line for both."""
        return f"{self.heading}, {self.group}" if self.group else self.heading


@dataclass(frozen=True)
class Line:
    """A row: its name, and a cell a column."""

    name: str
    latex: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table as data.

    Args:
        name: of its files.
        first: heading of the rows' names.
        columns: of all rows.
        sections: rows by heading; an empty heading is a rule in LaTeX and nothing elsewhere.
        caption: sentences that say what it is and how it was made.
    """

    name: str
    first: str
    columns: tuple[Column, ...]
    sections: tuple[tuple[str, tuple[Line, ...]], ...]
    caption: str

    @property
    def lines(self) -> list[Line]:
        """All rows."""
        return [line for _, lines in self.sections for line in lines]


def markdown(table: Table) -> str:
    """As GitHub shows it."""
    bold = _best(table)
    rows = [
        [table.first, *(column.title for column in table.columns)],
        ["---", *("---:" for _ in table.columns)],
    ]
    for heading, lines in table.sections:
        if heading:
            rows.append([f"**{heading}**", *("" for _ in table.columns)])
        for line in lines:
            cells = (
                _shown(cell, column, "**{}**" if (line.name, column) in bold else "{}", " ± ")
                for cell, column in zip(line.cells, table.columns, strict=True)
            )
            rows.append([line.name, *cells])
    body = "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    return f"{body}\n\n{table.caption}\n"


def comma_separated(table: Table) -> str:
    """All digits, mean and deviation in columns of their own."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    numeric = [any(isinstance(line.cells[n], Value) for line in table.lines) for n in range(len(table.columns))]
    head = [table.first]
    for column, number in zip(table.columns, numeric, strict=True):
        head += [column.title, f"{column.title}, deviation"] if number else [column.title]
    writer.writerow(head)
    for line in table.lines:
        row: list[object] = [line.name]
        for cell, number in zip(line.cells, numeric, strict=True):
            if isinstance(cell, Value):
                row += [f"{cell.mean:.6g}", "" if cell.deviation is None else f"{cell.deviation:.6g}"]
            else:
                row += [cell or "", ""] if number else [cell or ""]
        writer.writerow(row)
    return stream.getvalue()


def latex(table: Table) -> str:
    """In the paper's layout; needs the package booktabs."""
    bold, width = _best(table), len(table.columns) + 1
    groups = [(group, len(list(columns))) for group, columns in groupby(column.group for column in table.columns)]
    out = [r"\begin{table*}[t]", r"\centering\footnotesize", rf"\begin{{tabular}}{{l{'c' * (width - 1)}}}", r"\toprule"]
    if any(group for group, _ in groups):
        out.append(
            " & ".join(["", *(rf"\multicolumn{{{n}}}{{c}}{{{escaped(group)}}}" for group, n in groups)]) + r" \\"
        )
        start = 2
        for group, number in groups:
            if group:
                out.append(rf"\cmidrule(lr){{{start}-{start + number - 1}}}")
            start += number
    headings = (column.latex or escaped(column.heading) for column in table.columns)
    out.append(" & ".join([rf"\textbf{{{table.first}}}", *headings]) + r" \\")
    for heading, lines in table.sections:
        out.append(r"\midrule")
        if heading:
            out += [rf"\multicolumn{{{width}}}{{c}}{{\textbf{{{escaped(heading)}}}}} \\", r"\midrule"]
        for line in lines:
            cells = (
                _shown(cell, column, r"\textbf{{{}}}" if (line.name, column) in bold else "{}", r" {\tiny$\pm$", "}")
                if isinstance(cell, Value)
                else escaped(_shown(cell, column, "{}", ""))
                for cell, column in zip(line.cells, table.columns, strict=True)
            )
            out.append(" & ".join([line.latex, *cells]) + r" \\")
    label = f"table:{table.name}"
    caption = rf"\caption{{{escaped(table.caption)}}}"
    out += [r"\bottomrule", r"\end{tabular}", caption, rf"\label{{{label}}}", r"\end{table*}"]
    return "\n".join(out) + "\n"


FORMATS: dict[str, tuple[str, Callable[[Table], str]]] = {
    "markdown": ("md", markdown),
    "csv": ("csv", comma_separated),
    "latex": ("tex", latex),
}


def write(table: Table, folder: Path) -> None:
    """Write the table in every format, each file whole or not at all."""
    for suffix, render in FORMATS.values():
        with written_whole(folder / f"{table.name}.{suffix}") as file:
            file.write(render(table).encode())


def _best(table: Table) -> set[tuple[str, Column]]:
    """Row and column of the best means; of a single row none is best."""
    best = set()
    for number, column in enumerate(table.columns):
        means = {line.name: cell.mean for line in table.lines if isinstance(cell := line.cells[number], Value)}
        if column.best is None or len(means) < 2:
            continue
        # Compared as shown: two that look the same are both best.
        top = (max if column.best == "highest" else min)(means.values())
        best |= {(name, column) for name, mean in means.items() if _number(mean, column) == _number(top, column)}
    return best


def _shown(cell: Cell, column: Column, mean: str, between: str, after: str = "") -> str:
    if not isinstance(cell, Value):
        return cell or MISSING
    deviation = "" if cell.deviation is None else f"{between}{_number(cell.deviation, column)}{after}"
    return mean.format(_number(cell.mean, column)) + deviation


def _number(value: float, column: Column) -> str:
    return MISSING if math.isnan(value) else f"{value:.{column.decimals}f}"


_LATEX = {"%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#", "–": "--", "×": r"$\times$", "±": r"$\pm$", "τ": r"$\tau$"}
_LATEX |= {
    "³": "$^3$",
    "⁴": "$^4$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "β": r"$\beta$",
    "…": r"\dots{}",
    "−": "$-$",
}
_LATEX |= {"≥": r"$\geq$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "$": r"\$", "^": r"\^{}"}


def escaped(text: str) -> str:
    """Plain text for LaTeX."""
    return "".join(_LATEX.get(character, character) for character in text)
