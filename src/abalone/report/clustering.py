"""Clustering quality over the share of label combinations that is kept: the figure of the paper's appendix."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from abalone.report.picture import blank_figure, looks, write_picture


@dataclass(frozen=True)
class Curve:
    """A method over proportions: means, and deviations where there are several runs. NaN is not drawn."""

    silhouette: Sequence[float]
    davies_bouldin: Sequence[float]
    silhouette_deviation: Sequence[float] | None = None
    davies_bouldin_deviation: Sequence[float] | None = None


def draw_clustering(
    proportions: Sequence[float], curves: Mapping[str, Curve], path: str | Path, *, title: str = ""
) -> None:
    """Draw both scores of every method, side by side, to a file.

    Args:
        proportions: shares of the label combinations, most frequent first.
        curves: by the name of the method.
        path: where to; `.png`, `.svg` or `.pdf`.
        title: what stands above the picture.
    """
    figure = blank_figure(9.5, 3.8)
    left, right = figure.subplots(1, 2)
    percent = 100 * np.asarray(proportions)
    look = looks(curves)
    for axes, measure, heading in (
        (left, "silhouette", "Silhouette (higher is better)"),
        (right, "davies_bouldin", "Davies–Bouldin (lower is better)"),
    ):
        for name, curve in curves.items():
            shade, mark = look[name]
            means = np.asarray(getattr(curve, measure), dtype=np.float64)
            axes.plot(percent, means, color=shade, marker=mark, markersize=4, linewidth=1.4, label=name)
            spread = getattr(curve, f"{measure}_deviation")
            if spread is not None:
                spread = np.asarray(spread, dtype=np.float64)
                axes.fill_between(percent, means - spread, means + spread, color=shade, alpha=0.15, linewidth=0)
        axes.set(xlabel="most frequent label combinations kept (%)", xticks=percent)
        axes.set_title(heading, loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    if curves:
        # Beside the panels: over ten proportions the curves leave no corner free.
        figure.legend(*left.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=9)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, parse_math=False)
    write_picture(figure, Path(path))
