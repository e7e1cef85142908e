"""Figures: clustering scores over label combinations, and positives and forces of every label."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from abalone.evaluation.clustering import PROPORTIONS
from abalone.evaluation.metrics import THIRDS
from abalone.report.pictures import THIRD_COLORS, blank_figure, thirds, write_picture
from abalone.reproduce.fingerprints import encoder_name
from abalone.reproduce.grid import Experiment
from abalone.reproduce.layout import Value
from abalone.reproduce.view import Finished, View, flat

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLUSTERING_PICTURE, IMBALANCE_PICTURE = "clustering.png", "imbalance.png"
MEASURES = {"silhouette": "Silhouette (higher is better)", "davies_bouldin": "Davies–Bouldin (lower is better)"}
POSITIVES_OF = {"L_Base": "base", "L_MSC": "msc"}  # which positives of the corpus card an anchor of a row finds
FORCES = {
    "attraction": "attraction (−1: a label's documents coincide)",
    "repulsion": "repulsion (cosine to the other documents)",
}
POSITIVES = "positives an anchor finds"
SMOOTHED = 6  # a line averages over a sixth of the labels: single rare ones have a handful of test documents

# Told apart by colour-blind readers too; markers tell them apart in print.
COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777")
MARKERS = "os^vDP*"
ROWS_OF_THE_PAPER = ("L_MLM", "L_Base", "L_MSC", "L_MSC-FT", "L_BCE", "L_Base-FT")


def styles(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return color and marker of each method: a row of the paper has its own, whatever else is drawn beside it."""
    order = dict.fromkeys((*ROWS_OF_THE_PAPER, *names))
    return {name: (COLORS[n % len(COLORS)], MARKERS[n % len(MARKERS)]) for n, name in enumerate(order)}


def clustering_figure(view: View, experiment: Experiment, folder: Path) -> None:
    """Draw the figure of the paper's appendix from stored results."""
    curves = {
        done.row.name: {measure: [done.clustering(measure, share) for share in PROPORTIONS] for measure in MEASURES}
        for done in flat(view.sections(experiment))
    }
    drawn = {name: curve for name, curve in curves.items() if any(curve["silhouette"])}
    draw_clustering(PROPORTIONS, drawn, folder / CLUSTERING_PICTURE, title=_title(view))


def imbalance_figure(view: View, experiment: Experiment, folder: Path) -> None:
    """Draw positives, attraction and repulsion of every label from stored results."""
    rows = flat(view.sections(experiment))
    known = [done for done in rows if done.records]
    counted = [done.row.name for done in rows if done.row.name in POSITIVES_OF]
    panels = {
        POSITIVES: {name: view.card.positives[POSITIVES_OF[name]]["mean"] for name in counted},
        **{heading: {done.row.name: _by_label(done, force) for done in known} for force, heading in FORCES.items()},
    }
    frequencies = view.card.statistics["frequencies"]
    draw_imbalance(frequencies, panels, folder / IMBALANCE_PICTURE, logarithmic=(POSITIVES,), title=_title(view))


def draw_clustering(
    proportions: Sequence[float],
    curves: Mapping[str, Mapping[str, Sequence[Value | None]]],
    path: str | Path,
    *,
    title: str = "",
) -> None:
    """Draw both scores of every method, side by side, to a file.

    Args:
        proportions: shares of the label combinations, most frequent first.
        curves: by method, then by measure: a value for each proportion; None is not drawn.
        path: the file; `.png`, `.svg` or `.pdf`.
        title: above the picture.
    """
    figure = blank_figure(9.5, 3.8)
    both = figure.subplots(1, 2)
    percent = 100 * np.asarray(proportions)
    style = styles(curves)
    for axes, (measure, heading) in zip(both, MEASURES.items(), strict=True):
        for name, curve in curves.items():
            color, marker = style[name]
            means = np.array([np.nan if value is None else value.mean for value in curve[measure]])
            spread = np.array([value.deviation if value and value.deviation else 0.0 for value in curve[measure]])
            axes.plot(percent, means, color=color, marker=marker, markersize=4, linewidth=1.4, label=name)
            if any(value and value.deviation is not None for value in curve[measure]):
                axes.fill_between(percent, means - spread, means + spread, color=color, alpha=0.15, linewidth=0)
        axes.set(xlabel="most frequent label combinations kept (%)", xticks=percent)
        axes.set_title(heading, loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    _finish(figure, dict(zip(*reversed(both[0].get_legend_handles_labels()), strict=True)), title, path)


def draw_imbalance(
    frequencies: Sequence[int],
    panels: Mapping[str, Mapping[str, Sequence[float | None]]],
    path: str | Path,
    *,
    logarithmic: Sequence[str] = (),
    title: str = "",
) -> None:
    """Draw one panel per measure: one dot per label, most frequent first, and a running mean for each method.

    Args:
        frequencies: [L], training documents of each label.
        panels: by heading, then by method: [L], None where nothing is known.
        path: the file; `.png`, `.svg` or `.pdf`.
        logarithmic: headings of panels that count over decades; 0 is drawn at their lower edge.
        title: above the picture.
    """
    order = np.argsort(-np.asarray(frequencies, dtype=np.int64), kind="stable")
    # The panel with the most methods decides their order.
    names = list(dict.fromkeys(name for methods in sorted(panels.values(), key=len, reverse=True) for name in methods))
    style = styles(names)
    figure = blank_figure(4.2 * len(panels) + 0.8, 3.9)
    every = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (heading, methods) in zip(every, panels.items(), strict=True):
        for third, color, (start, stop) in zip(THIRDS, THIRD_COLORS, thirds(len(order)), strict=True):
            if stop > start:
                axes.axvspan(start - 0.5, stop - 0.5, color=color, alpha=0.10, linewidth=0)
                middle = (start + stop - 1) / 2
                axes.text(middle, 1.01, third, transform=axes.get_xaxis_transform(), ha="center", fontsize=8)
        if heading in logarithmic:
            axes.set_yscale("symlog", linthresh=0.1)
        # Averaged as it is drawn: on a scale of decades one frequent label would lift the line above all others.
        scale = axes.yaxis.get_transform()
        for name, values in methods.items():
            color, marker = style[name]
            known = [rank for rank, label in enumerate(order) if values[label] is not None]
            ranked = np.array([values[order[rank]] for rank in known], dtype=np.float64)
            dots = {"color": color, "marker": marker, "markersize": 3, "linestyle": "none"}
            axes.plot(known, ranked, alpha=0.45, markeredgewidth=0, **dots)
            smooth = scale.inverted().transform(running_mean(scale.transform(ranked), len(known) // SMOOTHED))
            axes.plot(known, smooth, color=color, linewidth=1.8, label=name)
        if heading in logarithmic:
            axes.set_ylim(bottom=-0.02)
        axes.set_xlim(-0.5, max(1, len(order)) - 0.5)
        axes.set_title(heading, loc="left", fontsize=10, pad=16)
        axes.set_xticks([])
        axes.set_xlabel(f"{len(order):,} labels, most frequent first")
        axes.spines[["top", "right"]].set_visible(False)
    handles = {label: handle for axes in every for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    _finish(figure, {name: handles[name] for name in names if name in handles}, title, path)


def _finish(figure: "Figure", handles: Mapping[str, Any], title: str, path: str | Path) -> None:
    if handles:
        # Beside the panels: the curves leave no corner free.
        figure.legend(handles.values(), handles.keys(), loc="outside right center", frameon=False, fontsize=9)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, parse_math=False)
    write_picture(figure, Path(path))


def running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Return the mean of each value and its neighbours, `width` of them or one more.

    Towards the ends the neighbours are on one side. There the straight line through them is followed: their mean would
    begin far below values that fall from the first on.
    """
    half, smooth = width // 2, np.empty(len(values))
    for i in range(len(values)):
        start = max(0, i - half)
        near = values[start : i + half + 1]
        straight = 2 < len(near) <= 2 * half
        smooth[i] = np.polynomial.Polynomial.fit(np.arange(len(near)), near, 1)(i - start) if straight else near.mean()
    return smooth


def _title(view: View) -> str:
    return f"{view.card.name}, {encoder_name(view.base.encoder)}"


def _by_label(done: Finished, force: str) -> list[float | None]:
    """Return attraction or repulsion of each label, the mean over seeds, [L]."""
    stored = [record["forces"][force] for record in done.records]
    return [None if (value := Value.of(seeds)) is None else value.mean for seeds in zip(*stored, strict=True)]
