"""Tables of means and deviations in Markdown, CSV and LaTeX.

pandas would not make this shorter: its Markdown pads the columns, and its LaTeX knows neither headed sections nor
deviations in small type. What is left are the rules for bold, which it does not have.
"""

import csv
import io
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

from abalone.files.atomic import written_whole

MISSING = "–"
LONG = 45  # rows that fit on a page


@dataclass(frozen=True)
class Value:
    """A mean, and the standard deviation where there are several values.

    Args:
        mean, deviation: of the values.
        final: whether no value is missing; a value that is not final is never set in bold.
    """

    mean: float
    deviation: float | None = None
    final: bool = True

    @classmethod
    def of(cls, values: Iterable[float | None], *, factor: float = 1, final: bool = True) -> "Value | None":
        """Return mean and sample deviation of the known values, each times `factor`; None without any."""
        known = [factor * value for value in values if value is not None]
        if not known:
            return None
        return cls(fmean(known), stdev(known) if len(known) > 1 else None, final)


Cell = Value | str | None
Best = Literal["highest", "lowest"]


@dataclass(frozen=True)
class Column:
    """The heading of a column, and how its numbers are shown.

    Args:
        heading: in plain words.
        group: of neighbouring columns, such as "at 0.5".
        latex: the heading in LaTeX, if it is another.
        best: which mean is set in bold.
        decimals: shown; CSV has all.
        text: whether its cells are words; in CSV other columns have one for the deviation beside them.
    """

    heading: str
    group: str = ""
    latex: str | None = None
    best: Best | None = None
    decimals: int = 2
    text: bool = False

    @property
    def title(self) -> str:
        """Heading and group in one, where a format has one line for both."""
        return f"{self.heading}, {self.group}" if self.group else self.heading


@dataclass(frozen=True)
class Line:
    """A row: its name, and one cell per column."""

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
        caption: sentences that describe the table and how it was made.
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
    """Render a table as GitHub's Markdown."""
    best = _best(table)
    rows = [
        [table.first, *(column.title for column in table.columns)],
        ["---", *("---:" for _ in table.columns)],
    ]
    for heading, lines in table.sections:
        if heading:
            rows.append([f"**{heading}**", *("" for _ in table.columns)])
        rows += [[line.name, *_shown(table, line, best, "**{}**", " ± {}")] for line in lines]
    body = "\n".join(f"| {' | '.join(map(_markdown_cell, row))} |" for row in rows)
    return f"### {table.name}\n\n{body}\n\n{table.caption}\n"


def _markdown_cell(cell: str) -> str:
    return " ".join(cell.splitlines()).replace("|", r"\|")


def comma_separated(table: Table) -> str:
    """Render a table as CSV: all digits, deviations in columns of their own, table and section in every row."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    head = ["table", "section", table.first]
    for column in table.columns:
        head += [column.title] if column.text else [column.title, f"{column.title}, deviation"]
    writer.writerow(head)
    for heading, lines in table.sections:
        for line in lines:
            row = [table.name, heading, line.name]
            for cell, column in zip(line.cells, table.columns, strict=True):
                if isinstance(cell, Value):
                    row += [f"{cell.mean:.6g}", "" if cell.deviation is None else f"{cell.deviation:.6g}"]
                else:
                    row += [cell or ""] if column.text else [cell or "", ""]
            writer.writerow(row)
    return stream.getvalue()


def latex(table: Table) -> str:
    """Render a table in the paper's layout; one that is longer than a page continues on the next."""
    caption = rf"\caption{{{escaped(table.caption)}}}\label{{table:{table.name}}}"
    form, head, body = "l" + "c" * len(table.columns), _latex_head(table), _latex_body(table)
    if len(table.lines) <= LONG:
        out = [f"% {table.name}: needs the package booktabs", r"\begin{table*}[t]", r"\centering\footnotesize"]
        out += [rf"\begin{{tabular}}{{{form}}}", *head, *body, r"\end{tabular}", caption, r"\end{table*}"]
    else:
        out = [f"% {table.name}: needs the packages booktabs and longtable, and text in one column"]
        out += [r"{\footnotesize", rf"\begin{{longtable}}{{{form}}}", rf"{caption} \\", *head, r"\endfirsthead"]
        out += [*head, r"\endhead", *body, r"\end{longtable}", "}"]
    return "\n".join(out) + "\n"


def _latex_head(table: Table) -> list[str]:
    groups = [(group, len(list(columns))) for group, columns in groupby(column.group for column in table.columns)]
    out = [r"\toprule"]
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
    return [*out, " & ".join([rf"\textbf{{{table.first}}}", *headings]) + r" \\"]


def _latex_body(table: Table) -> list[str]:
    best, width, out = _best(table), len(table.columns) + 1, []
    for heading, lines in table.sections:
        out.append(r"\midrule")
        if heading:
            out += [rf"\multicolumn{{{width}}}{{c}}{{\textbf{{{escaped(heading)}}}}} \\", r"\midrule"]
        for line in lines:
            cells = _shown(table, line, best, r"\textbf{{{}}}", r" {{\tiny$\pm${}}}", escaped)
            out.append(" & ".join([line.latex, *cells]) + r" \\")
    return [*out, r"\bottomrule"]


_MATH = {"<": "<", ">": ">", "|": "|", "−": "-", "³": "^3", "⁴": "^4"} | {
    character: rf"\{name}"
    for character, name in zip("×±≥↑↓βτ", ("times", "pm", "geq", "uparrow", "downarrow", "beta", "tau"), strict=True)
}
_ESCAPES = str.maketrans(
    {character: rf"\{character}" for character in "{}%&_#$"}
    | {character: f"${code}$" for character, code in _MATH.items()}
    # At the start of a row, [ and * would be arguments of the command that ended the row above.
    | {character: f"{{{character}}}" for character in "[*"}
    | {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\textasciitilde{}", "–": "--", "…": r"\dots{}"}
)


def escaped(text: str) -> str:
    """Return LaTeX that shows `text` on one line.

    Example:
        >>> escaped("50 % of [a_b]")
        '50 \\\\% of {[}a\\\\_b]'
    """
    return " ".join(text.splitlines()).translate(_ESCAPES)


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
    """Return row and column of each mean to set in bold: the best of several that are final.

    While a row with runs to come is ahead, no other row is best.
    """
    best = set()
    for number, column in enumerate(table.columns):
        cells = {line.name: cell for line in table.lines if isinstance(cell := line.cells[number], Value)}
        if column.best is None or len(cells) < 2:
            continue
        # Compared as shown: two that look the same are both best.
        top = (max if column.best == "highest" else min)(cell.mean for cell in cells.values())
        ahead = {name for name, cell in cells.items() if _number(cell.mean, column) == _number(top, column)}
        best |= {(name, column) for name in ahead if cells[name].final}
    return best


def _shown(
    table: Table,
    line: Line,
    best: set[tuple[str, Column]],
    bold: str,
    deviation: str,
    words: Callable[[str], str] = str,
) -> list[str]:
    """Return the cells of a row as text, with patterns for bold means and for deviations."""
    shown = []
    for cell, column in zip(line.cells, table.columns, strict=True):
        if isinstance(cell, Value):
            text = (bold if (line.name, column) in best else "{}").format(_number(cell.mean, column))
            shown.append(text if cell.deviation is None else text + deviation.format(_number(cell.deviation, column)))
        else:
            shown.append(words(cell or MISSING))
    return shown


def _number(value: float, column: Column) -> str:
    return MISSING if math.isnan(value) else f"{value:.{column.decimals}f}"
