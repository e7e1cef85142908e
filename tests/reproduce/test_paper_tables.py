"""Tables from stored results: means, chosen settings, pairs, the paper's figures, missing runs."""

from dataclasses import replace
from statistics import stdev

import pytest
from made_up_runs import LABELS, card, finish, record

from abalone.config import Config
from abalone.reproduce.grid import ABLATION, COMPARISON, IMBALANCE, REPRESENTATION, ROWS, Grid, points, wanted_runs
from abalone.reproduce.layout import Value
from abalone.reproduce.paper import ABLATION as PAPER_ABLATION
from abalone.reproduce.paper import COMPARISON as PAPER_COMPARISON
from abalone.reproduce.results import Results
from abalone.reproduce.tables import (
    ablation_details,
    ablation_tables,
    clustering_table,
    comparison_tables,
    datasets_table,
    imbalance_tables,
    present,
    representation_table,
)
from abalone.reproduce.view import View

BASE = Config(encoder="some-encoder", pooling="mean", max_length=64)


def view(tmp_path, grid: Grid | None = None, published: str | None = None) -> View:
    about = card(published)
    return View(about, grid or Grid(), BASE, Results(tmp_path / "results.jsonl", about.fingerprint))


def cell(table, row: str, title: str):
    line = next(line for line in table.lines if line.name == row)
    return line.cells[[column.title for column in table.columns].index(title)]


def test_the_ablation_averages_over_temperatures_and_seeds(tmp_path):
    made = view(tmp_path)
    for run in wanted_runs([ABLATION], made.grid, BASE, made.results):
        if run.row == "L_MSC":
            finish(made.results, run, 0.6 + run.config.seed / 10 + (run.config.temperature == 0.2) * 0.03)
    main, thirds = ablation_tables(made)
    assert [line.name for line in main.lines] == ["L_MLM", "L_Base", "L_BQueue", "L_BQProto", "L_MSC"]
    micro = cell(main, "L_MSC", "micro-F1, at 0.5")
    values = [60 + 10 * seed + extra for seed in range(3) for extra in (0, 0, 3)]
    assert micro.mean == pytest.approx(sum(values) / 9)
    assert micro.deviation == pytest.approx(stdev(values))
    assert cell(main, "L_MSC", "macro-F1, tuned").mean == pytest.approx(micro.mean + 10)
    assert cell(main, "L_MSC", "Hamming ×10³, at 0.5").mean == pytest.approx(1000 - 10 * micro.mean)
    assert cell(main, "L_MSC", "runs") == "9/9"
    assert cell(main, "L_Base", "micro-F1, at 0.5") is None
    assert cell(main, "L_Base", "runs") == "0/9"
    assert cell(main, "L_MLM", "runs") == "0/3"
    assert cell(thirds, "L_MSC", "tail, at 0.5").mean == pytest.approx(micro.mean)
    precision = cell(thirds, "L_MSC", "mean over labels, average precision")
    assert precision.mean == pytest.approx(micro.mean + 10)  # of calibrated probabilities, as the tuned scores are
    assert "9 runs, 2026-01-02, a processor; the times of these runs add up to 9 min" in main.caption
    assert "some-encoder, mean pooling, max_length 64" in main.caption


def test_the_comparison_shows_the_setting_that_validation_chose(tmp_path):
    made = view(tmp_path)
    for run in wanted_runs([COMPARISON], made.grid, BASE, made.results):
        if run.row == "L_BCE":
            chosen = (run.config.learning_rate, run.config.epochs) == (2e-5, 40)
            finish(made.results, run, 0.8 if chosen else 0.6, test=0.5 if chosen else 0.9)
    main, _ = comparison_tables(made)
    assert cell(main, "L_BCE", "setting") == "lr 2e-05, epochs 40"
    assert cell(main, "L_BCE", "micro-F1, at 0.5") == Value(50.0, 0.0)  # and not the better test score of the others
    assert cell(main, "L_BCE", "runs") == "18/18"
    assert cell(main, "L_MSC-FT", "setting") == "waits for its start"
    assert cell(main, "L_MSC-FT", "runs") == "0/12"
    assert [heading for heading, _ in main.sections] == [
        "Supervised loss",
        "Contrastive loss",
        "Ours",
        "Beyond the paper",
    ]


def test_setting_of_incomplete_rows_is_marked_provisional(tmp_path):
    made = view(tmp_path)
    runs = [run for run in wanted_runs([COMPARISON], made.grid, BASE, made.results) if run.row in ("L_BCE", "L_FCL")]
    for run in runs:
        if run.row == "L_FCL":
            finish(made.results, run, 0.5)
        elif run.config.epochs == 10 and run.config.seed < 2:
            finish(made.results, run, 0.9 if run.config.learning_rate == 2e-5 else 0.6)
    main, thirds = comparison_tables(made)
    assert cell(main, "L_BCE", "setting") == "lr 2e-05, epochs 10 (of 2 of 6 settings, 2 of 3 seeds)"
    assert cell(main, "L_BCE", "runs") == cell(thirds, "L_BCE", "runs") == "4/18"
    assert not cell(main, "L_BCE", "micro-F1, at 0.5").final
    assert cell(main, "L_FCL", "micro-F1, at 0.5").final
    assert "Not complete: means are over the runs that are finished" in main.caption
    assert "The setting of rows with runs to come may change" in main.caption
    alone = comparison_tables(made, COMPARISON.only(["L_FCL"]))[0]
    assert "Not complete" not in alone.caption
    assert "FT" not in alone.caption
    words = comparison_tables(made, COMPARISON.only(["tf-idf + SVM"]))[0].caption
    assert all(word not in words for word in ("Encoder", "Temperature", "epochs"))


def test_captions_count_in_english(tmp_path):
    made = view(tmp_path, Grid(seeds=(0,), temperatures=(0.1,)))
    (run,) = wanted_runs([ABLATION.only(["L_MSC"])], made.grid, BASE, made.results)
    finish(made.results, run)
    caption = ablation_tables(made, ABLATION.only(["L_MSC"]))[0].caption
    assert "Each value is of one run; learning rate" in caption  # nothing to average, and nothing about L_MLM
    assert "Shown: 1 run, " in caption
    three = ablation_tables(view(tmp_path, Grid(temperatures=(0.1,))), ABLATION.only(["L_MSC"]))[0].caption
    assert "the mean over 1 temperature × 3 seeds ± the sample standard deviation; learning rate" in three


def test_published_figures_are_shown_only_for_the_papers_corpora(tmp_path):
    theirs = cell(ablation_tables(view(tmp_path, published="AAPD"))[0], "L_MSC", "macro-F1, the paper")
    assert theirs == Value(60.00)
    main = comparison_tables(view(tmp_path, published="UK-LEX"))[0]
    assert cell(main, "L_MSC", "micro-F1, the paper") == Value(73.5)
    assert cell(main, "L_ZLPR", "micro-F1, the paper") is None
    assert cell(representation_table(view(tmp_path, published="RCV1")), "L_BCE", "Silhouette ↑, the paper") == Value(
        0.15
    )
    assert "The paper: its own figures for UK-LEX, with legal-bert-base-uncased and its own splits." in main.caption
    for table in (*ablation_tables(view(tmp_path)), representation_table(view(tmp_path, published="AAPD"))):
        assert not [column for column in table.columns if column.group == "the paper"]
        assert "The paper:" not in table.caption
    assert [line.name for line in datasets_table(view(tmp_path, published="RCV1")).lines] == [
        "papers",
        "RCV1, the paper",
    ]
    assert [line.name for line in datasets_table(view(tmp_path)).lines] == ["papers"]


def test_published_rows_are_rows_of_our_tables():
    assert all(list(rows) == [row.name for row in ABLATION.rows] for rows in PAPER_ABLATION.values())
    ours = [row.name for row in COMPARISON.rows]
    assert all([name for name in ours if name in rows] == list(rows) for rows in PAPER_COMPARISON.values())


def test_representation_shows_clustering_scores(tmp_path):
    made = view(tmp_path)
    for run in wanted_runs([REPRESENTATION.only(["L_MLM"])], made.grid, BASE, made.results):
        finish(made.results, run, 0.25 * run.config.seed)
    table = representation_table(made)
    assert cell(table, "L_MLM", "Silhouette ↑").mean == pytest.approx(0.25)
    assert cell(table, "L_MLM", "Davies–Bouldin ↓").mean == pytest.approx(1.75)
    assert cell(table, "L_BCE", "Silhouette ↑") is None
    assert "papers: 19 test embeddings" in table.caption
    curves = clustering_table(made)
    assert cell(curves, "L_MLM", "10%, Silhouette") is None
    assert cell(curves, "L_MLM", "100%, Davies–Bouldin").mean == pytest.approx(1.75)
    assert cell(curves, "L_MLM", "runs") == "3/3"


def test_representation_shows_the_scores_at_half_of_the_combinations(tmp_path):
    made = view(tmp_path)
    for run in wanted_runs([REPRESENTATION.only(["L_MLM"])], made.grid, BASE, made.results):
        stored = record(run, made.results.corpus)
        stored["clustering"]["silhouette"] = [share / 2 for share in stored["clustering"]["proportions"]]
        stored["clustering"]["davies_bouldin"] = [2 * share for share in stored["clustering"]["proportions"]]
        made.results.append(run, stored)
    table = representation_table(made)
    assert cell(table, "L_MLM", "Silhouette ↑").mean == pytest.approx(0.25)
    assert cell(table, "L_MLM", "Davies–Bouldin ↓").mean == pytest.approx(1.0)
    assert "50% of the combinations" in table.caption


@pytest.mark.parametrize("gone", [None, "absent"])
def test_runs_whose_records_lack_what_is_shown_do_not_count(tmp_path, gone):
    made = view(tmp_path)
    for run in wanted_runs([IMBALANCE.only(["L_MLM"])], made.grid, BASE, made.results):
        stored = record(run, made.results.corpus)
        for part in ("clustering", "forces") if run.config.seed else ("forces",):
            stored[part] = None
            if gone:
                del stored[part]
        made.results.append(run, stored)
    table = representation_table(made)
    assert cell(table, "L_MLM", "Silhouette ↑") == Value(0.5, None)  # final: no run is to come
    assert cell(table, "L_MLM", "runs") == "1/3"
    by_third, _ = imbalance_tables(made)
    assert cell(by_third, "head", "L_MLM, attraction") is None
    assert "Runs: L_MLM 0/3, L_Base 0/3, L_MSC 0/3." in by_third.caption
    present(["imbalance"], [IMBALANCE.only(["L_MLM", "L_MSC"])], made, tmp_path)
    assert (tmp_path / "imbalance.png").is_file()


def test_imbalance_shows_positives_and_forces_by_third_and_label(tmp_path):
    made = view(tmp_path)
    for row, value in (("L_Base", 0.4), ("L_MSC", 0.2)):
        for point in points(ROWS[row], IMBALANCE, made.grid, BASE, made.results):
            for run in point.runs:
                finish(made.results, run, value)
    by_third, by_label = imbalance_tables(made)
    assert [line.name for line in by_third.lines] == ["head", "medium", "tail"]
    assert len(by_label.lines) == LABELS
    found = [cell(by_third, "tail", f"{row}, positives an anchor finds").mean for row in ("L_Base", "L_MSC")]
    assert found[0] < found[1]
    assert cell(by_third, "tail", "L_MSC, % of anchors without one").mean == 0  # its prototype is always there
    assert cell(by_third, "head", "L_Base, attraction") == Value(pytest.approx(-0.4), pytest.approx(0.0))
    assert cell(by_third, "head", "L_MLM, attraction") is None
    documents = [cell(by_label, line.name, "documents").mean for line in by_label.lines]
    assert documents == sorted(documents, reverse=True)
    # No test document beside it carries the last label: nothing is known of its attraction.
    assert cell(by_label, "topic_5", "L_Base, attraction") is None
    assert cell(by_label, "topic_5", "L_Base, repulsion").mean == pytest.approx(0.4)


def test_the_imbalance_figure_has_the_rows_of_its_table(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("abalone.reproduce.figures.draw_imbalance", lambda _, panels, *__, **___: drawn.append(panels))
    present(["imbalance"], [IMBALANCE.only(["L_MSC"])], view(tmp_path), tmp_path)
    assert {name for methods in drawn[0].values() for name in methods} == {"L_MSC"}


GAIN = {0.1: 0.02, 0.2: -0.01}  # of L_MSC over L_Base, by temperature


@pytest.fixture
def ablation_view(tmp_path) -> View:
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


def section_cell(table, section: str, row: str, title: str):
    return cell(replace(table, sections=((section, dict(table.sections)[section]),)), row, title)


def test_pairs_compare_losses_with_l_base_at_the_same_temperature_and_seed(ablation_view):
    overall, thirds, _ = ablation_details(ablation_view)
    everywhere = "all temperatures"
    assert [heading for heading, _ in overall.sections] == [everywhere, *(f"temperature {t}" for t in (0.07, 0.1, 0.2))]
    # L_MLM has no temperature, and L_Base nothing above itself.
    assert [line.name for line in overall.sections[0][1]] == ["L_BQueue", "L_BQProto", "L_MSC"]
    gain = section_cell(overall, everywhere, "L_MSC", "macro-F1, at 0.5")
    assert (gain.mean, gain.deviation) == pytest.approx((0.5, stdev([2, 2, 2, -1, -1, -1])))
    assert section_cell(overall, everywhere, "L_MSC", "macro-F1: ahead, tuned") == "3/6"
    assert section_cell(overall, everywhere, "L_MSC", "pairs") == "6/9"
    assert section_cell(overall, "temperature 0.1", "L_MSC", "micro-F1, tuned").mean == pytest.approx(2)
    assert section_cell(overall, "temperature 0.2", "L_MSC", "micro-F1: ahead, tuned") == "0/3"
    assert section_cell(overall, "temperature 0.07", "L_MSC", "pairs") == "0/3"
    assert section_cell(overall, "temperature 0.07", "L_MSC", "micro-F1, tuned") is None
    assert section_cell(thirds, "temperature 0.2", "L_MSC", "tail, at 0.5").mean == pytest.approx(-1)
    assert "Not complete" in overall.caption
    assert "Bold" not in overall.caption


def test_each_loss_is_shown_at_each_temperature(ablation_view):
    table = ablation_details(ablation_view)[-1]
    assert table.name == "ablation-temperatures"
    assert section_cell(table, "", "L_Base", "0.2, macro-F1, at 0.5").mean == pytest.approx(80)
    assert section_cell(table, "", "L_Base", "0.2, macro-F1, tuned").mean == pytest.approx(90)
    assert section_cell(table, "", "L_MSC", "0.1, micro-F1 on validation, at 0.5").mean == pytest.approx(72)
    assert section_cell(table, "", "L_MSC", "0.07, tail, tuned") is None


def test_details_need_l_base_or_several_temperatures(ablation_view):
    def names(experiment, made=ablation_view):
        return [table.name for table in ablation_details(made, experiment)]

    assert names(ABLATION.only(["L_MLM"])) == []
    assert names(ABLATION.only(["L_MSC"])) == names(ABLATION.only(["L_Base"])) == ["ablation-temperatures"]
    one = View(ablation_view.card, Grid(temperatures=(0.1,)), BASE, ablation_view.results)
    assert names(ABLATION, one) == ["ablation-pairs", "ablation-pairs-thirds"]
    assert [heading for heading, _ in ablation_details(one)[0].sections] == ["temperature 0.1"]
