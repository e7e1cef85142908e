"""What the averages of the ablation hide."""

from statistics import stdev

import pytest
from made_up_runs import card, finish

from abalone.config import Config
from abalone.reproduce.ablation import ablation_details
from abalone.reproduce.grid import Grid, wanted_runs
from abalone.reproduce.results import Results
from abalone.reproduce.rows import ABLATION
from abalone.reproduce.view import View

BASE = Config(encoder="some-encoder")
GAIN = {0.1: 0.02, 0.2: -0.01}  # of L_MSC over L_Base, by temperature


@pytest.fixture
def view(tmp_path) -> View:
    """Nine runs of L_Base, six of L_MSC."""
    about = card()
    made = View(about, Grid(), BASE, Results(tmp_path / "results.jsonl", about.fingerprint))
    for run in wanted_runs([ABLATION], made.grid, BASE, made.results):
        level = 0.5 + run.config.seed / 10 + run.config.temperature  # of both losses
        if run.row == "L_Base":
            finish(made.results, run, level)
        elif run.row == "L_MSC" and run.config.temperature in GAIN:
            finish(made.results, run, level + GAIN[run.config.temperature])
    return made


def cell(table, section: str, row: str, title: str):
    lines = dict(table.sections)[section]
    line = next(line for line in lines if line.name == row)
    return line.cells[[column.title for column in table.columns].index(title)]


def test_losses_are_set_against_l_base_with_the_same_temperature_and_seed(view):
    overall, thirds, _ = ablation_details(view)
    everywhere = "all temperatures"
    assert [heading for heading, _ in overall.sections] == [everywhere, *(f"temperature {t}" for t in (0.07, 0.1, 0.2))]
    # L_MLM has no temperature, and L_Base nothing above itself.
    assert [line.name for line in overall.sections[0][1]] == ["L_BQueue", "L_BQProto", "L_MSC"]
    gain = cell(overall, everywhere, "L_MSC", "macro-F1, at 0.5")
    assert (gain.mean, gain.deviation) == pytest.approx((0.5, stdev([2, 2, 2, -1, -1, -1])))
    assert cell(overall, everywhere, "L_MSC", "macro-F1: ahead, tuned") == "3/6"
    assert cell(overall, everywhere, "L_MSC", "pairs") == "6/9"
    assert cell(overall, "temperature 0.1", "L_MSC", "micro-F1, tuned").mean == pytest.approx(2)
    assert cell(overall, "temperature 0.2", "L_MSC", "micro-F1: ahead, tuned") == "0/3"
    assert cell(overall, "temperature 0.07", "L_MSC", "pairs") == "0/3"
    assert cell(overall, "temperature 0.07", "L_MSC", "micro-F1, tuned") is None
    assert cell(thirds, "temperature 0.2", "L_MSC", "tail, at 0.5").mean == pytest.approx(-1)
    assert "Not complete" in overall.caption
    assert "Bold" not in overall.caption


def test_each_loss_is_shown_at_each_temperature(view):
    table = ablation_details(view)[-1]
    assert table.name == "ablation-temperatures"
    assert cell(table, "", "L_Base", "0.2, macro-F1, at 0.5").mean == pytest.approx(80)
    assert cell(table, "", "L_Base", "0.2, macro-F1, tuned").mean == pytest.approx(90)
    assert cell(table, "", "L_MSC", "0.1, micro-F1 on validation, at 0.5").mean == pytest.approx(72)
    assert cell(table, "", "L_MSC", "0.07, tail, tuned") is None


def test_what_takes_more_rows_or_temperatures_is_left_out(view):
    def names(experiment, made=view):
        return [table.name for table in ablation_details(made, experiment)]

    assert names(ABLATION.only(["L_MLM"])) == []
    assert names(ABLATION.only(["L_MSC"])) == names(ABLATION.only(["L_Base"])) == ["ablation-temperatures"]
    one = View(view.card, Grid(temperatures=(0.1,)), BASE, view.results)
    assert names(ABLATION, one) == ["ablation-pairs", "ablation-pairs-thirds"]
    assert [heading for heading, _ in ablation_details(one)[0].sections] == ["temperature 0.1"]
