"""Tables as lists of runs: the paper's grids, the choice on validation, and what waits for what."""

import math

import pytest
from made_up_runs import finish

from abalone.config import Config
from abalone.losses import loss_spec
from abalone.reproduce.fingerprints import run_key
from abalone.reproduce.grid import (
    ABLATION,
    COMPARISON,
    EXPERIMENTS,
    IMBALANCE,
    ROWS,
    Grid,
    choose,
    planned_runs,
    points,
    refuse_decided,
    row_names,
    wanted_runs,
)
from abalone.reproduce.results import Results

BASE = Config(encoder="some-encoder")


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "results.jsonl", "corpus")


def test_the_ablation_is_the_papers(results):
    runs = wanted_runs([ABLATION], Grid(), BASE, results)
    by_row = {row.name: [run for run in runs if run.row == row.name] for row in ABLATION.rows}
    assert {name: len(own) for name, own in by_row.items()} == {
        "L_MLM": 3, "L_Base": 9, "L_BQueue": 9, "L_BQProto": 9, "L_MSC": 9,
    }  # fmt: skip
    msc = [run.config for run in by_row["L_MSC"]]
    assert {(c.temperature, c.seed) for c in msc} == {(t, s) for t in (0.07, 0.1, 0.2) for s in (0, 1, 2)}
    assert {(c.objective, c.epochs, c.learning_rate, c.encoder) for c in msc} == {("msc", 80, 5e-5, "some-encoder")}
    assert {run.config.epochs for run in by_row["L_MLM"]} == {0}


def test_the_comparison_is_the_papers(results):
    runs = wanted_runs([COMPARISON], Grid(), BASE, results)
    bce = {(run.config.learning_rate, run.config.epochs) for run in runs if run.row == "L_BCE"}
    assert bce == {(rate, epochs) for rate in (5e-5, 2e-5) for epochs in (10, 40, 80)}
    msc = {(run.config.learning_rate, run.config.epochs, run.config.temperature) for run in runs if run.row == "L_MSC"}
    assert msc == {(5e-5, 80, 0.1), (2e-5, 80, 0.1)}
    assert sum(run.row == "L_MSC" for run in runs) == 6
    assert not [run for run in runs if run.row == "L_MSC-FT"]  # what it starts from is not chosen yet


def test_results_of_tf_idf_stored_before_the_recipe_words_are_found(results):
    stored = Config().to_dict() | {"encoder": "none", "objective": "tf-idf", "epochs": 0, "seed": 1, "lexical": False}
    runs = wanted_runs([COMPARISON.only(["tf-idf + SVM"])], Grid(), BASE, results)
    assert run_key(stored, None, "corpus") in {results.key(run) for run in runs}


def test_every_row_has_an_objective_that_exists():
    for row in ROWS.values():
        if "objective" in row.settings:
            spec = loss_spec(row.settings["objective"])
            assert (spec.takes == "logits") == (row.kind in ("supervised", "finetuned"))


def test_fine_tuning_starts_from_the_pre_training_that_validation_chose(results):
    wanted = wanted_runs([COMPARISON], Grid(), BASE, results)
    for run in wanted:
        if run.row == "L_MSC":
            # Better on average at 2e-5, although the best single run is at 5e-5; test says the opposite.
            slow = run.config.learning_rate == 2e-5
            finish(results, run, 0.7 if slow else 0.75 if run.config.seed == 0 else 0.6, test=0.1 if slow else 0.9)
    tuned = [run for run in wanted_runs([COMPARISON], Grid(), BASE, results) if run.row == "L_MSC-FT"]
    assert len(tuned) == 2 * 2 * 3
    assert {run.starts_from.learning_rate for run in tuned} == {2e-5}
    assert all(run.starts_from.seed == run.config.seed for run in tuned)
    assert {(run.config.objective, run.config.epochs) for run in tuned} == {("bce", 5), ("bce", 10)}
    assert {run.starts_from.objective for run in tuned} == {"msc"}
    assert not [run for run in wanted_runs([COMPARISON], Grid(), BASE, results) if run.row == "L_Base-FT"]


def test_unfinished_settings_are_compared_over_the_seeds_they_have_in_common(results):
    first, second = candidates = points(ROWS["L_MSC"], COMPARISON, Grid(), BASE, results)
    assert choose(candidates, results) is None
    finish(results, second.runs[0], 0.6)
    assert choose(candidates, results) is second
    # More seeds, and a better mean thanks to the third, but worse where the two can be compared.
    for run, score in zip(first.runs, (0.5, 0.5, 1.0), strict=True):
        finish(results, run, score)
    assert choose(candidates, results) is second
    finish(results, second.runs[1], 0.3)
    assert choose(candidates, results) is first
    finish(results, second.runs[2], 1.2)
    assert choose(candidates, results) is second  # complete: the mean over all seeds, 0.7 beside 0.667


def test_settings_without_a_common_seed_are_compared_where_most_of_them_can_be(results):
    candidates = points(ROWS["L_BCE"], COMPARISON, Grid(), BASE, results)
    finish(results, candidates[0].runs[0], 0.9)
    for point, score in ((candidates[1], 0.5), (candidates[2], 0.6)):
        finish(results, point.runs[1], score)
    assert choose(candidates, results) is candidates[2]


def test_fine_tuning_waits_for_all_settings_of_its_start(results):
    for point in points(ROWS["L_MSC"], COMPARISON, Grid(), BASE, results):
        for run in point.runs[:2]:
            finish(results, run, 0.5)
    assert points(ROWS["L_MSC-FT"], COMPARISON, Grid(), BASE, results) is None
    assert planned_runs(ROWS["L_MSC-FT"], COMPARISON, Grid()) == 12


def test_tables_share_runs(results):
    together = wanted_runs(list(EXPERIMENTS.values()), Grid(), BASE, results)
    apart = [len(wanted_runs([experiment], Grid(), BASE, results)) for experiment in EXPERIMENTS.values()]
    assert len(together) < sum(apart)
    assert len({results.key(run) for run in together}) == len(together)
    ablation = {results.key(run) for run in wanted_runs([ABLATION], Grid(), BASE, results)}
    assert {results.key(run) for run in wanted_runs([IMBALANCE], Grid(), BASE, results)} <= ablation


def test_encoders_are_kept_where_fine_tuning_goes_on(results):
    kept = {
        (run.row, run.config.temperature) for run in wanted_runs([ABLATION], Grid(), BASE, results) if run.keep_encoder
    }
    assert kept == {("L_Base", 0.1), ("L_MSC", 0.1)}


def test_a_table_that_is_stopped_early_has_something_of_every_row(results):
    runs = wanted_runs([ABLATION, COMPARISON], Grid(), BASE, results)
    seeds = [run.config.seed for run in runs]
    assert seeds == sorted(seeds)


def test_a_row_brings_the_row_it_starts_from(results):
    runs = wanted_runs([COMPARISON.only(["L_MSC-FT"])], Grid(), BASE, results)
    assert {run.row for run in runs} == {"L_MSC"}


def test_a_smaller_grid_says_so():
    assert not any(Grid().caption(experiment) for experiment in EXPERIMENTS.values())
    small = Grid(seeds=(0,), epochs=10, learning_rates=(5e-5,)).capped()
    assert small.baseline_epochs == (10,)
    assert small.finetune_epochs == (5, 10)
    caption = small.caption(COMPARISON)
    assert "epochs of contrastive training 10 (the paper: 80)" in caption
    assert "epochs of the supervised losses 10 (the paper: 10, 40, 80)" in caption
    assert "learning rates of the encoder 5e-05 (the paper: 5e-05, 2e-05)" in caption
    assert "seeds 1 (the paper: 3)" in caption
    assert "fine-tuning" not in caption
    assert Grid(epochs=7).capped().finetune_epochs == (5, 7)


def test_a_caption_says_only_what_its_table_tries():
    assert Grid(baseline_epochs=(10,), learning_rates=(5e-5,)).caption(ABLATION) == ""
    assert Grid(learning_rates=(2e-5, 5e-5)).caption(COMPARISON) == ""
    rate = "learning rates of the encoder 2e-05 (the paper: 5e-05)"
    assert Grid(learning_rates=(2e-5, 5e-5)).caption(ABLATION) == rate
    warm = Grid(temperatures=(0.1,), finetune_epochs=(5,))
    assert warm.caption(ABLATION) == "temperatures of the ablation 0.1 (the paper: 0.07, 0.1, 0.2)"
    assert warm.caption(COMPARISON) == "epochs of fine-tuning 5 (the paper: 5, 10)"
    assert warm.caption(COMPARISON.only(["L_MSC"])) == warm.caption(IMBALANCE) == ""
    short = Grid(epochs=5).caption(COMPARISON.only(["L_MSC-FT"]))  # its start is shorter than the paper's
    assert short == "epochs of contrastive training 5 (the paper: 80)"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seeds": ()}, "seeds must be different values, one at least"),
        ({"seeds": (1, 1)}, "seeds must be different values"),
        ({"seeds": (-1,)}, "seeds must be at least 0, got -1"),
        ({"temperatures": (0.0,)}, "temperatures must be above 0 and finite, got 0"),
        ({"temperatures": (0.1, math.inf)}, "temperatures must be above 0 and finite, got 0.1, inf"),
        ({"learning_rates": (math.nan,)}, "learning_rates must be above 0 and finite, got nan"),
        ({"epochs": 0}, "epochs must be above 0"),
    ],
)
def test_impossible_grids_are_refused(wrong, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Grid(**wrong)


def test_settings_that_a_table_decides_are_refused():
    refuse_decided(Config(pooling="mean", batch_size=8))
    with pytest.raises(ValueError, match=r"epochs, temperature: set by"):
        refuse_decided(Config(epochs=3, temperature=0.5))


def test_rows_by_any_of_their_names():
    assert row_names(["msc", "L_Base-FT", "tf-idf", "MSC+bce"]) == ("L_MSC", "L_Base-FT", "tf-idf + SVM", "L_MSC+BCE")
    with pytest.raises(ValueError, match="did you mean 'L_BQueue'"):
        row_names(["bqeue"])
    with pytest.raises(ValueError, match=r"no row is called ''\. Rows: L_MLM, "):
        row_names([""])


def test_the_cost_of_the_papers_grids_is_what_the_documentation_says(results):
    def cost(*rows):
        runs = wanted_runs([COMPARISON.only(rows)], Grid(), BASE, results)
        return len(runs), sum(run.config.epochs for run in runs)

    assert sum(run.config.epochs for run in wanted_runs([ABLATION], Grid(), BASE, results)) == 2880
    assert cost("L_ASY", "L_FCL", "L_BCE") == (54, 2340)
    assert cost("L_Base", "L_MSC") == (12, 960)
    assert cost("L_ZLPR") == (18, 780)
    assert cost("L_MSC+BCE", "L_MSC-names", "L_MulSupCon") == (18, 1440)
