"""The long tail as a chart for the terminal and as a picture."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from abalone.data.corpus import head_share
from abalone.errors import DataError
from abalone.report.pictures import CHART_COLUMNS, draw_tail, tail_chart, thirds


def bars(frequencies: list[int]) -> list[str]:
    """The chart's rows without scale, axis and captions."""
    rows = [line for line in tail_chart(frequencies).plain.splitlines() if "│" in line or "┤" in line]
    return [row.replace("┤", "│").split("│")[1] for row in rows]


def test_chart_of_three_decades() -> None:
    assert tail_chart([1000, 100, 10, 1]).plain.splitlines() == [
        "training documents",
        "1,000 ┤████████                        ",
        "      │████████                        ",
        "      │████████                        ",
        "      │████████                        ",
        "  100 ┤████████████████                ",
        "      │████████████████                ",
        "      │████████████████                ",
        "      │████████████████                ",
        "   10 ┤████████████████████████        ",
        "      │████████████████████████        ",
        "      │████████████████████████        ",
        "      │████████████████████████▁▁▁▁▁▁▁▁",
        "    1 └────────────────────────────────",
        "       head            medium  tail    ",
        "       4 labels, most frequent first",
    ]


def test_chart_scale_starts_below_the_rarest_label() -> None:
    assert tail_chart([24_519, 519, 24]).plain.splitlines()[-3].startswith("     10 └")


def test_chart_groups_labels_beyond_its_columns() -> None:
    frequencies = [2 * CHART_COLUMNS * 10 - i for i in range(2 * CHART_COLUMNS)]
    assert {len(row) for row in bars(frequencies)} == {CHART_COLUMNS}
    assert tail_chart(frequencies).plain.endswith("120 labels, most frequent first; a bar is the median of 2")


@given(st.lists(st.integers(0, 10**7), max_size=300))
def test_chart_fits_a_terminal(frequencies: list[int]) -> None:
    lines = tail_chart(frequencies).plain.splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert len(lines) <= 20
    ascii_lines = tail_chart(frequencies, ascii_only=True).plain
    assert ascii_lines.isascii()
    assert len(ascii_lines.splitlines()) == len(lines)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=CHART_COLUMNS))
def test_chart_has_a_bar_exactly_for_labels_with_documents(frequencies: list[int]) -> None:
    if max(frequencies) == 0:
        assert "no training document" in tail_chart(frequencies).plain
        return
    lowest_row = bars(frequencies)[-1]
    width = len(lowest_row) // len(frequencies)
    assert lowest_row.rstrip() == lowest_row[: width * sum(frequency > 0 for frequency in frequencies)]


@given(st.integers(0, 500))
def test_thirds_cut_all_labels_and_agree_with_the_head_share(labels: int) -> None:
    (start, head), (head_again, medium), (medium_again, end) = thirds(labels)
    assert (start, head_again, medium_again, end) == (0, head, medium, labels)
    assert head == math.ceil(labels / 3)
    assert labels - medium <= medium - head <= head
    if labels:
        assert head_share(np.ones(labels, dtype=int)) == pytest.approx(head / labels)


@pytest.mark.parametrize(
    ("suffix", "labels"),
    [("svg", 0), ("svg", 1), ("svg", 3), ("svg", 53), ("svg", 250), ("png", 53), ("PNG", 0), ("pdf", 53)],
)
def test_tail_is_drawn_in_every_format(suffix: str, labels: int, tmp_path: Path) -> None:
    picture = tmp_path / f"tail.{suffix}"
    # Names that a picture could choke on: mathematics, a script that the font lacks, length.
    names = [r"$\frac$", "希少", "long " * 50, *map(str, range(3, labels))][:labels]
    draw_tail([labels - i - 1 for i in range(labels)], names, picture, title="$corpus$ {x")
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix.lower()]
    assert picture.read_bytes().startswith(start)
    assert list(tmp_path.iterdir()) == [picture]


def test_tail_names_labels_in_order_of_frequency(tmp_path: Path) -> None:
    draw_tail([10, 1000, 100], ["ten", "thousand", "hundred"], tmp_path / "tail.svg")
    picture = (tmp_path / "tail.svg").read_text()
    comments = [picture.index(f"<!-- {name} -->") for name in ("thousand", "hundred", "ten")]
    assert comments == sorted(comments)
    assert "<!-- under 30 -->" in picture


def test_unknown_picture_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"\.png, \.svg, \.pdf"):
        draw_tail([1], ["a"], tmp_path / "tail")
    assert not list(tmp_path.iterdir())


def test_error_without_matplotlib_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"\.\[plot\]"):
        draw_tail([1], ["a"], tmp_path / "tail.png")
