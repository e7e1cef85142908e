from pathlib import Path

import numpy as np
import pytest

from abalone.report.imbalance import draw_imbalance, running_mean


@pytest.mark.parametrize("labels", [1, 2, 53])
def test_pictures(labels: int, tmp_path: Path) -> None:
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


def test_running_mean_passes_over_what_is_not_known() -> None:
    values = np.array([1.0, np.nan, 3.0, 8.0, np.nan, np.nan, np.nan])
    assert running_mean(values, 2).tolist()[:4] == [1.0, 2.0, 5.5, 5.5]
    assert np.isnan(running_mean(values, 2)[5:]).all()
    assert running_mean(np.array([5.0]), 0).tolist() == [5.0]
