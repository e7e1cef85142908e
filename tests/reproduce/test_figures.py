"""Figures of clustering scores, positives and forces."""

from pathlib import Path

import numpy as np
import pytest

from abalone.errors import DataError
from abalone.reproduce.figures import draw_clustering, draw_imbalance, running_mean, styles
from abalone.reproduce.layout import Value


@pytest.mark.parametrize("labels", [1, 2, 53])
def test_imbalance_figure(labels: int, tmp_path: Path) -> None:
    values = [None, *range(1, labels)]
    panels = {
        "positives": {"L_Base": values, "L_MSC": [i + 1 for i in range(labels)]},
        "attraction": {"L_MLM": [None] * labels, "L_Base": [-0.5] * labels, "L_MSC": values},
        "empty": {},
    }
    draw_imbalance(range(labels), panels, tmp_path / "i.svg", logarithmic=("positives",), title="$c$ {")
    picture = (tmp_path / "i.svg").read_text()
    words = ["positives", "attraction", "head", "L_MLM", "L_MSC", f"{labels} labels, most frequent first"]
    for word in words + (["tail"] if labels > 2 else []):
        assert f"<!-- {word} -->" in picture
    assert list(tmp_path.iterdir()) == [tmp_path / "i.svg"]


def test_running_mean_follows_falling_values_to_the_ends() -> None:
    assert running_mean(np.array([9.0, 0.0, 3.0, 6.0, 0.0]), 2)[1:4].tolist() == [4.0, 3.0, 3.0]
    falling = np.arange(20.0, 0.0, -1.0)
    assert running_mean(falling, 6) == pytest.approx(falling)
    assert running_mean(np.array([5.0]), 0).tolist() == [5.0]
    assert running_mean(np.array([]), 0).tolist() == []


def drawn_lines(panels: dict, path: Path, monkeypatch: pytest.MonkeyPatch, **options: object) -> dict:
    """By method, the running mean of the first panel: label ranks and heights."""
    figures: list = []
    monkeypatch.setattr("abalone.reproduce.figures.write_picture", lambda figure, _: figures.append(figure))
    draw_imbalance(range(60, 0, -1), panels, path, **options)
    lines = figures[0].axes[0].get_lines()
    return {line.get_label(): line for line in lines if not line.get_label().startswith("_")}


def test_running_mean_of_logarithmic_panel_is_taken_on_that_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [1000 * 0.8**rank for rank in range(60)]
    panels = {"positives": {"L_MSC": values}}
    line = drawn_lines(panels, tmp_path / "i.svg", monkeypatch, logarithmic=("positives",))["L_MSC"]
    assert line.get_ydata()[:20] == pytest.approx(values[:20])  # a straight line where it is drawn


def test_labels_without_a_value_are_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panels = {"attraction": {"L_MSC": [1.0, None, *[1.0] * 50, *[None] * 8]}}
    line = drawn_lines(panels, tmp_path / "i.svg", monkeypatch)["L_MSC"]
    assert line.get_xdata().tolist() == [0, *range(2, 52)]
    assert line.get_ydata() == pytest.approx(np.ones(51))


def test_color_of_a_row_does_not_depend_on_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, all_three = (
        drawn_lines({"attraction": dict.fromkeys(names, [0.5] * 60)}, tmp_path / "i.svg", monkeypatch)
        for names in (["L_MSC"], ["new", "L_MLM", "L_Base", "L_MSC"])
    )
    assert one["L_MSC"].get_color() == all_three["L_MSC"].get_color() == styles([])["L_MSC"][0]
    assert len({line.get_color() for line in all_three.values()}) == 4


CURVES = {
    "L_MSC": {
        "silhouette": [None, Value(0.1, 0.01), Value(0.2, 0.02)],
        "davies_bouldin": [None, Value(2.0, 0.1), Value(1.9, 0.1)],
    },
    "L_$Base$": {"silhouette": [None, Value(0.0), Value(0.1)], "davies_bouldin": [None, Value(2.2), Value(2.0)]},
}


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_clustering_figure(suffix: str, tmp_path: Path) -> None:
    picture = tmp_path / f"clustering.{suffix}"
    draw_clustering([0.1, 0.5, 1.0], CURVES, picture, title="$corpus$ {x")
    assert picture.stat().st_size > 1000
    assert list(tmp_path.iterdir()) == [picture]


def test_clustering_figure_names_methods_and_scores(tmp_path: Path) -> None:
    draw_clustering([0.1, 0.5, 1.0], CURVES, tmp_path / "c.svg")
    picture = (tmp_path / "c.svg").read_text()
    for text in ("L_MSC", "Silhouette (higher is better)", "Davies–Bouldin (lower is better)", "50"):
        assert f"<!-- {text} -->" in picture


def test_clustering_figure_without_curves_is_written(tmp_path: Path) -> None:
    draw_clustering([0.1, 1.0], {}, tmp_path / "c.png")
    assert (tmp_path / "c.png").is_file()


def test_clustering_figure_refuses_unknown_formats(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"\.png, \.svg, \.pdf"):
        draw_clustering([1.0], {}, tmp_path / "c.gif")
