"""Figures of matplotlib as files: which kinds there are, a blank one, how methods look, and writing it whole."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from abalone.errors import install_hint
from abalone.files.atomic import written_whole
from abalone.files.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE_FORMATS = ("png", "svg", "pdf")
DOTS_PER_INCH = 160
# Told apart by colour-blind readers too; marks tell them apart in print.
SHADES = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777")
MARKS = "os^vDP*"
ROWS_OF_THE_PAPER = ("L_MLM", "L_Base", "L_MSC", "L_MSC-FT", "L_BCE", "L_Base-FT")


def picture_format(path: Path) -> str:
    """The format that the file's name asks for; an error if nothing can draw it."""
    form = path.suffix.lower().removeprefix(".")
    if form not in PICTURE_FORMATS:
        known = ", ".join(f".{name}" for name in PICTURE_FORMATS)
        raise DataError("unknown picture format", path=path, hint=f"End the name in one of {known}.")
    return form


def blank_figure(width: float, height: float) -> "Figure":
    """A figure of so many inches to draw on; an error that names the extra where there is no matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f"pictures need matplotlib: {install_hint('plot')}") from error
    # Figure rather than pyplot: no window system is asked for and no global state is left behind.
    return Figure(figsize=(width, height), layout="constrained")


def looks(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Shade and mark of each method: a row of the paper has its own, whatever else is drawn beside it."""
    order = dict.fromkeys((*ROWS_OF_THE_PAPER, *names))
    return {name: (SHADES[n % len(SHADES)], MARKS[n % len(MARKS)]) for n, name in enumerate(order)}


def write_picture(figure: "Figure", path: Path) -> None:
    """Write a figure to a file, in the format that its name asks for."""
    form = picture_format(path)
    with written_whole(path) as file, warnings.catch_warnings():
        # A character that the font lacks is seen in the picture; a warning for each says nothing more.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(file, format=form, dpi=DOTS_PER_INCH)
