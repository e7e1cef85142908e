"""Positives, attraction and repulsion of every label, from head to tail."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from abalone.evaluation.metrics import THIRDS
from abalone.report.picture import blank_figure, looks, write_picture
from abalone.report.tail import SHADES, thirds

SMOOTHED = 6  # a line averages over a sixth of the labels: single rare ones have a handful of test documents


def draw_imbalance(
    frequencies: Sequence[int],
    panels: Mapping[str, Mapping[str, Sequence[float | None]]],
    path: str | Path,
    *,
    logarithmic: Sequence[str] = (),
    title: str = "",
) -> None:
    """Draw one panel a measure: a dot a label, most frequent first, and a running mean for each method.

    Args:
        frequencies: [L], training documents of each label.
        panels: by heading, then by method: [L], None where nothing is known.
        path: where to; `.png`, `.svg` or `.pdf`.
        logarithmic: headings of panels that count over decades; 0 is drawn at their lower edge.
        title: what stands above the picture.
    """
    order = np.argsort(-np.asarray(frequencies, dtype=np.int64), kind="stable")
    # The panel with the most methods has the say in their order.
    names = list(dict.fromkeys(name for methods in sorted(panels.values(), key=len, reverse=True) for name in methods))
    look = looks(names)
    figure = blank_figure(4.2 * len(panels) + 0.8, 3.9)
    every = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (heading, methods) in zip(every, panels.items(), strict=True):
        for third, shade, (start, stop) in zip(THIRDS, SHADES, thirds(len(order)), strict=True):
            if stop > start:
                axes.axvspan(start - 0.5, stop - 0.5, color=shade, alpha=0.10, linewidth=0)
                middle = (start + stop - 1) / 2
                axes.text(middle, 1.01, third, transform=axes.get_xaxis_transform(), ha="center", fontsize=8)
        if heading in logarithmic:
            axes.set_yscale("symlog", linthresh=0.1)
        # Averaged as it is drawn: on a scale of decades one frequent label would lift the line above all others.
        scale = axes.yaxis.get_transform()
        for name, values in methods.items():
            shade, mark = look[name]
            known = [rank for rank, label in enumerate(order) if values[label] is not None]
            ranked = np.array([values[order[rank]] for rank in known], dtype=np.float64)
            style = {"color": shade, "marker": mark, "markersize": 3, "linestyle": "none"}
            axes.plot(known, ranked, alpha=0.45, markeredgewidth=0, **style)
            smooth = scale.inverted().transform(running_mean(scale.transform(ranked), len(known) // SMOOTHED))
            axes.plot(known, smooth, color=shade, linewidth=1.8, label=name)
        if heading in logarithmic:
            axes.set_ylim(bottom=-0.02)
        axes.set_xlim(-0.5, max(1, len(order)) - 0.5)
        axes.set_title(heading, loc="left", fontsize=10, pad=16)
        axes.set_xticks([])
        axes.set_xlabel(f"{len(order):,} labels, most frequent first")
        axes.spines[["top", "right"]].set_visible(False)
    if names:
        handles = {
            label: handle for axes in every for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        drawn = [name for name in names if name in handles]
        figure.legend([handles[name] for name in drawn], drawn, loc="outside right center", frameon=False, fontsize=9)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, parse_math=False)
    write_picture(figure, Path(path))


def running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """The mean of each value and its neighbours, `width` of them or one more.

    Towards the ends the neighbours are on one side. There it is their straight line that is followed: their mean would
    begin far below values that fall from the first on.
    """
    half, smooth = width // 2, np.empty(len(values))
    for i in range(len(values)):
        start = max(0, i - half)
        near = values[start : i + half + 1]
        straight = 2 < len(near) <= 2 * half
        smooth[i] = np.polynomial.Polynomial.fit(np.arange(len(near)), near, 1)(i - start) if straight else near.mean()
    return smooth
