"""Figures in files, and the chart of the long tail for the terminal."""

import math
import textwrap
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from abalone.data.corpus import RARE
from abalone.errors import DataError, install_hint
from abalone.evaluation.metrics import THIRDS, label_thirds
from abalone.files.atomic import written_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.text import Text

PICTURE_FORMATS = ("png", "svg", "pdf")
DOTS_PER_INCH = 160

NAMED_LABELS = 100  # more names than this cannot be read under the picture
LONGEST_NAME = 40

CHART_COLUMNS = 60  # with the scale at its left it fits a terminal of 80
CHART_ROWS = 12
WIDEST_BAR = 8  # three of them are room enough for the words below
EIGHTHS = " ▁▂▃▄▅▆▇█"
CHART_STYLES = ("blue", "cyan", "yellow")
THIRD_COLORS = ("#4477aa", "#66ccee", "#ccbb44")  # told apart by colour-blind readers too


def picture_format(path: Path) -> str:
    """Return the format that the file's suffix asks for; raise if matplotlib cannot write it."""
    form = path.suffix.lower().removeprefix(".")
    if form not in PICTURE_FORMATS:
        known = ", ".join(f".{name}" for name in PICTURE_FORMATS)
        raise DataError("unknown picture format", path=path, hint=f"End the name in one of {known}.")
    return form


def blank_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of this size in inches; raise with the extra's name where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f"pictures need matplotlib: {install_hint('plot')}") from error
    # Figure rather than pyplot: no window system is asked for and no global state is left behind.
    return Figure(figsize=(width, height), layout="constrained")


def write_picture(figure: "Figure", path: Path) -> None:
    """Write a figure to a file, in the format that its suffix asks for."""
    form = picture_format(path)
    with written_whole(path) as file, warnings.catch_warnings():
        # A character that the font lacks is seen in the picture; a warning for each says nothing more.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(file, format=form, dpi=DOTS_PER_INCH)


def thirds(labels: int) -> list[tuple[int, int]]:
    """Return the ranks (from, to) of head, medium and tail among labels sorted by frequency."""
    sizes = np.bincount(label_thirds(np.zeros(labels)), minlength=len(THIRDS))
    return list(pairwise([0, *np.cumsum(sizes).tolist()]))


def tail_chart(frequencies: Sequence[int], *, ascii_only: bool = False) -> "Text":
    """Draw label frequencies as bars of characters, most frequent first, on a logarithmic scale.

    With more labels than columns, a bar is the median of neighbouring labels.

    Args:
        frequencies: training documents per label, in any order.
        ascii_only: for terminals that cannot show block characters.
    """
    from rich.text import Text

    ranked = np.sort(np.asarray(frequencies, dtype=np.int64))[::-1]  # [L]
    if ranked.max(initial=0) == 0:
        return Text("no training document has a label")

    columns = min(len(ranked), CHART_COLUMNS)
    bars = np.array([np.median(group) for group in np.array_split(ranked, columns)])  # [columns]
    width = min(WIDEST_BAR, CHART_COLUMNS // columns)
    lowest = max(0, math.ceil(math.log10(ranked[ranked > 0].min())) - 1)  # the scale starts at 10 ** lowest
    decades = max(1, math.ceil(math.log10(ranked[0])) - lowest)
    rows_per_decade = max(1, CHART_ROWS // decades)
    with np.errstate(divide="ignore"):
        heights = (np.log10(bars) - lowest) * rows_per_decade  # in rows; -inf where nothing is
    cells = np.where(bars > 0, np.maximum(1, np.round(8 * heights)), 0).astype(int)  # in eighths of a row

    vertical, tick, corner, floor = ("|", "+", "+", "-") if ascii_only else ("│", "┤", "└", "─")
    margin = len(f"{10 ** (lowest + decades):,}")
    chart = Text("training documents\n")
    for row in reversed(range(math.ceil(cells.max() / 8))):
        # A bar that fills a labelled row has that many documents.
        whole_decade = (row + 1) % rows_per_decade == 0
        value = f"{10 ** (lowest + (row + 1) // rows_per_decade):,}" if whole_decade else ""
        chart.append(f"{value:>{margin}} {tick if whole_decade else vertical}")
        filled = np.clip(cells - 8 * row, 0, 8)
        blocks = [("#" if eighths >= 4 else " ") if ascii_only else EIGHTHS[eighths] for eighths in filled]
        for style, (start, stop) in zip(CHART_STYLES, thirds(columns), strict=True):
            chart.append("".join(block * width for block in blocks[start:stop]), style=style)
        chart.append("\n")
    chart.append(f"{10**lowest:>{margin},} {corner}{floor * columns * width}\n")
    chart.append(" " * (margin + 2))
    for name, style, (start, stop) in zip(THIRDS, CHART_STYLES, thirds(columns), strict=True):
        chart.append(name.ljust((stop - start) * width) if stop > start else "", style=style)
    chart.append(f"\n{' ' * (margin + 2)}{_caption(ranked, columns)}")
    chart.rstrip()
    return chart


def _caption(ranked: np.ndarray, columns: int) -> str:
    labels = len(ranked)
    if labels == columns:
        return f"{labels} labels, most frequent first" if labels > 1 else "one label"
    least, most = labels // columns, math.ceil(labels / columns)
    group = f"{least}" if least == most else f"{least} or {most}"
    return f"{labels:,} labels, most frequent first; a bar is the median of {group}"


def draw_tail(frequencies: Sequence[int], label_names: Sequence[str], path: str | Path, *, title: str = "") -> None:
    """Draw label frequencies from the most frequent to the rarest, on a logarithmic scale, to a file.

    Args:
        frequencies: training documents per label.
        label_names: their names, in the same order.
        path: the file; `.png`, `.svg` or `.pdf`.
        title: above the picture.
    """
    order = np.argsort(-np.asarray(frequencies, dtype=np.int64), kind="stable")
    ranked = np.asarray(frequencies, dtype=np.int64)[order]  # [L]
    named = 0 < len(ranked) <= NAMED_LABELS
    figure = blank_figure(max(7.0, 0.14 * len(ranked)) if named else 8.0, 4.2)
    axes = figure.add_subplot()
    axes.set(yscale="log", ylabel="training documents (log scale)")
    # Limits come first: matplotlib finds none by itself where no label has a document.
    axes.set_ylim(0.7 if ranked.min(initial=RARE) < 10 else 7, 2 * ranked.max(initial=RARE))
    axes.set_xlim(-0.5, max(1, len(ranked)) - 0.5)
    _draw_bars(axes, ranked)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(f"{len(ranked):,} labels, most frequent first")
    if named:
        names = [textwrap.shorten(label_names[i], LONGEST_NAME, placeholder="…") for i in order]
        axes.set_xticks(range(len(ranked)), names, rotation=90, fontsize=7, parse_math=False)
        axes.tick_params(axis="x", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    if title:
        axes.set_title(title, loc="left", parse_math=False)
    write_picture(figure, Path(path))


def _draw_bars(axes: "Axes", ranked: np.ndarray) -> None:
    ranks = np.arange(len(ranked))
    for name, shade, (start, stop) in zip(THIRDS, THIRD_COLORS, thirds(len(ranked)), strict=True):
        if start == stop:
            continue
        share = ranked[start:stop].sum() / max(1, ranked.sum())
        axes.axvspan(start - 0.5, stop - 0.5, color=shade, alpha=0.10, linewidth=0)
        # Bars without gaps once there are many, or the gaps would be all that is seen.
        width = 0.8 if len(ranked) <= NAMED_LABELS else 1.0
        axes.bar(ranks[start:stop], ranked[start:stop], width=width, color=shade, linewidth=0)
        axes.annotate(
            f"{name}\n{share:.0%} of label assignments",
            ((start + stop - 1) / 2, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, -4),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=8,
            color="#444444",
        )
    axes.axhline(RARE, color="#aa3377", linewidth=1, linestyle="--")
    rare = int((ranked < RARE).sum())
    axes.annotate(
        f"{rare:,} label{'' if rare == 1 else 's'}\nunder {RARE}",
        (1, RARE),
        xycoords=("axes fraction", "data"),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color="#aa3377",
    )
