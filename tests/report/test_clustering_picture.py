from pathlib import Path

import pytest

from abalone.files.errors import DataError
from abalone.report.clustering import Curve, draw_clustering

NAN = float("nan")
CURVES = {
    "L_MSC": Curve([NAN, 0.1, 0.2], [NAN, 2.0, 1.9], [0.0, 0.01, 0.02], [0.0, 0.1, 0.1]),
    "L_$Base$": Curve([NAN, 0.0, 0.1], [NAN, 2.2, 2.0]),
}


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_pictures(suffix: str, tmp_path: Path) -> None:
    picture = tmp_path / f"clustering.{suffix}"
    draw_clustering([0.1, 0.5, 1.0], CURVES, picture, title="$corpus$ {x")
    assert picture.stat().st_size > 1000
    assert list(tmp_path.iterdir()) == [picture]


def test_what_is_drawn(tmp_path: Path) -> None:
    draw_clustering([0.1, 0.5, 1.0], CURVES, tmp_path / "c.svg")
    picture = (tmp_path / "c.svg").read_text()
    for text in ("L_MSC", "Silhouette (higher is better)", "Davies–Bouldin (lower is better)", "50"):
        assert f"<!-- {text} -->" in picture


def test_nothing_to_draw_is_an_empty_picture(tmp_path: Path) -> None:
    draw_clustering([0.1, 1.0], {}, tmp_path / "c.png")
    assert (tmp_path / "c.png").is_file()


def test_unknown_kind_of_picture(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"\.png, \.svg, \.pdf"):
        draw_clustering([1.0], {}, tmp_path / "c.gif")
