"""Execution of runs: skipping, failing, stopping, and missing encoders."""

import json
import multiprocessing
import os
import time

import pytest
from made_up_runs import corpus, record

from abalone.config import Config
from abalone.files.cache import KEPT, cache_dir
from abalone.reproduce import runner
from abalone.reproduce.grid import ABLATION, COMPARISON, Grid, Run, wanted_runs
from abalone.reproduce.results import RESULTS, CorpusCard, Results
from abalone.reproduce.runner import execute
from abalone.reproduce.task import Task

GRID = Grid(seeds=(0, 1), learning_rates=(1e-3,), epochs=1).capped()
TUNED = COMPARISON.only(["L_MSC-FT"])
BASE = Config()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / RESULTS, "corpus")


@pytest.fixture
def trained(monkeypatch):
    """Runs in the order in which they were "trained"; a run whose text is in `broken` fails."""
    done: list[str] = []
    done_and_broken = done, set()

    def carry_out(task, documents, corpus_key, jobs):
        done.append(str(task.run))
        if str(task.run) in done_and_broken[1]:
            raise ValueError("the loss is nan")
        if task.run.keep_encoder:
            task.encoder_folder.mkdir(parents=True, exist_ok=True)
        return record(task.run, corpus_key)

    monkeypatch.setattr(runner, "carry_out", carry_out)
    return done_and_broken


def go(results, experiments=(ABLATION,), **options):
    return execute(lambda done: wanted_runs(experiments, GRID, BASE, done), corpus(), results, **options)


def test_finished_runs_are_not_repeated(results, trained):
    outcome = go(results)
    assert outcome.finished == len(trained[0]) == 2 + 4 * 3 * 2
    assert (outcome.left, outcome.failures) == (0, [])
    before = results.path.read_bytes()
    assert go(Results(results.path, "corpus")).finished == 0
    assert results.path.read_bytes() == before


def test_failed_run_is_reported_and_the_others_go_on(results, trained):
    broken = "L_Base, τ=0.1, lr=0.001, epochs=1, seed 0"
    trained[1].add(broken)
    lines: list[str] = []
    outcome = go(results, tell=lines.append)
    assert [str(failure.task.run) for failure in outcome.failures] == [broken]
    assert outcome.finished == 2 + 4 * 3 * 2 - 1
    assert f"failed: {broken}: ValueError: the loss is nan" in lines
    trace = outcome.failures[0].task.folder / runner.ERROR
    assert "in carry_out" in trace.read_text()
    trained[1].clear()
    assert go(results).finished == 1  # tried again, and nothing else


def test_fine_tuning_follows_its_pre_training(results, trained):
    outcome = go(results, [TUNED])
    started = [(line.partition(",")[0], line[-1]) for line in trained[0]]
    assert started == [("L_MSC", "0"), ("L_MSC-FT", "0"), ("L_MSC", "1"), ("L_MSC-FT", "1")]
    assert outcome.finished == 4


def test_fine_tuning_waits_until_its_pre_training_is_chosen(results, trained):
    grid = Grid(seeds=(0, 1), learning_rates=(1e-3, 1e-4), epochs=1).capped()
    lines: list[str] = []
    execute(lambda done: wanted_runs([TUNED], grid, BASE, done), corpus(), results, tell=lines.append)
    assert [line.partition(",")[0] for line in trained[0]] == ["L_MSC"] * 4 + ["L_MSC-FT"] * 4
    # What is still to be chosen is counted from the start.
    assert [line.partition(" ")[0] for line in lines] == [f"[{done}/8]" for done in range(1, 9)]


def test_fine_tuning_without_a_chosen_pre_training_is_left(results, trained):
    grid = Grid(seeds=(0, 1), learning_rates=(1e-3, 1e-4), epochs=1).capped()
    trained[1].add("L_MSC, τ=0.1, lr=0.001, epochs=1, seed 1")
    outcome = execute(lambda done: wanted_runs([TUNED], grid, BASE, done), corpus(), results)
    assert (outcome.finished, len(outcome.failures), outcome.left) == (3, 1, 4)


def test_fine_tuning_is_not_started_from_a_run_that_failed(results, trained):
    trained[1].add("L_MSC, τ=0.1, lr=0.001, epochs=1, seed 1")
    outcome = go(results, [TUNED])
    assert len(outcome.failures) == 1
    assert [line[-1] for line in trained[0] if line.startswith("L_MSC-FT")] == ["0"]
    assert outcome.left == 1


def test_missing_encoder_is_trained_again_and_recorded_once(results, trained):
    pretraining = [run for run in wanted_runs([TUNED], GRID, BASE, results) if run.row == "L_MSC"]
    for run in pretraining:  # results that came from another machine
        results.append(run, record(run, "corpus"))
    lines: list[str] = []
    outcome = go(results, [TUNED], tell=lines.append)
    assert sum(line.startswith("L_MSC,") for line in trained[0]) == 2
    assert outcome.finished == 2
    assert len(results.path.read_text().splitlines()) == 4
    assert any("again, for its encoder" in line for line in lines)


def test_no_run_is_started_after_the_deadline(results, trained, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(runner.time, "monotonic", lambda: 60 * next(clock))
    outcome = go(results, stop_after=3)
    assert 1 <= outcome.finished <= 3
    assert outcome.left == 26 - outcome.finished
    assert not outcome.failures


def test_a_warning_is_told_once(results, monkeypatch, trained):
    plain = runner.carry_out
    monkeypatch.setattr(runner, "carry_out", lambda *args, **kw: {**plain(*args, **kw), "warnings": ["cut to 64"]})
    lines: list[str] = []
    go(results, tell=lines.append)
    assert lines.count("note: cut to 64") == 1


def test_an_interruption_is_no_failure(results, trained, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "carry_out", stop)
    with pytest.raises(KeyboardInterrupt):
        go(results)
    assert not results.path.exists()


def test_checkpoint_folders_differ_by_output_and_encoder(tmp_path):
    run = wanted_runs([TUNED], GRID, BASE, Results(tmp_path / RESULTS, "corpus"))[0]

    def task(output, encoder):
        return runner.next_task([run], Results(tmp_path / output / RESULTS, "corpus"), set(), encoder)

    one, other, same = task("one", "a"), task("other", "a"), task("one/../one", "a")
    assert one.folder == same.folder != other.folder
    assert one.encoder_folder == other.encoder_folder  # whole or not there at all, so it can be shared
    assert task("one", "b").folder != one.folder
    assert task("one", "b").encoder_folder != one.encoder_folder


def test_fine_tuning_starts_from_the_pre_training_of_its_own_encoder(results, trained):
    execute(lambda done: wanted_runs([TUNED], GRID, BASE, done)[:1], corpus(), results, encoder="a")
    tuned = [run for run in wanted_runs([TUNED], GRID, BASE, results) if run.row == "L_MSC-FT"]
    first = runner.next_task(tuned, results, set(), "a")
    assert first.run == tuned[0]
    assert first.starts_from.is_dir()
    other = runner.next_task(tuned, results, set(), "b")
    assert (other.run.row, other.again) == ("L_MSC", True)


def test_unused_checkpoints_and_encoders_are_removed(tmp_path):
    run = Run("L_MSC", BASE, keep_encoder=True)
    old, new = (Task(run, key, tmp_path) for key in ("old", "new"))
    places = [old.folder, old.encoder_folder]
    for place in places:
        place.mkdir(parents=True)
        os.utime(place, (time.time() - KEPT - 60,) * 2)
    assert [old.folder, old.encoder_folder] == places  # asked for, and hence young again
    assert not new.folder.exists()
    assert not new.encoder_folder.exists()
    assert all(place.exists() for place in places)
    for place in places:
        os.utime(place, (time.time() - KEPT - 60,) * 2)
    assert not new.folder.exists()
    assert not new.encoder_folder.exists()
    assert not any(place.exists() for place in places)


def test_folder_of_the_logs_is_told_once(results, trained, monkeypatch):
    monkeypatch.setattr(runner, "make_workers", lambda jobs, *given: runner.Sequential(*given))
    lines: list[str] = []
    go(results, jobs=2, tell=lines.append)
    told = [line for line in lines if runner.LOG in line]
    assert told == lines[:1]
    assert str(cache_dir() / "experiments" / "runs") in told[0]
    go(results, jobs=2, tell=lines.append)  # nothing is left to do
    assert [line for line in lines if runner.LOG in line] == told


def test_a_folder_belongs_to_one_corpus(tmp_path):
    card = CorpusCard.of(corpus(), BASE)
    card.save(tmp_path)
    card.save(tmp_path)
    assert CorpusCard.load(tmp_path) == CorpusCard(
        **{**json.loads(json.dumps(card.__dict__)), "label_names": card.label_names}
    )
    with pytest.raises(ValueError, match="results of other documents"):
        CorpusCard.of(corpus(60), BASE).save(tmp_path)
    with pytest.raises(FileNotFoundError, match="without --print-only"):
        CorpusCard.load(tmp_path / "elsewhere")


@pytest.mark.slow
def test_a_process_that_dies_is_reported_and_replaced(results):
    nowhere = [Run("L_MLM", Config(epochs=0, seed=seed, encoder="/nowhere")) for seed in range(3)]
    tasks = [Task(run, f"key{run.config.seed}", results.path.parent) for run in nowhere]
    others = multiprocessing.active_children()  # of tests before this one

    def kill_the_worker() -> None:
        (worker,) = (child for child in multiprocessing.active_children() if child not in others)
        worker.kill()
        worker.join()

    with runner.ProcessPool(1, corpus(), "corpus") as crew:
        crew.submit(tasks[0])
        kill_the_worker()  # at work
        task, outcome = crew.next()
        assert task == tasks[0]
        assert outcome.message == "its process died (exit code -9)"
        for expected in tasks[1:]:
            crew.submit(expected)
            task, outcome = crew.next()  # this one lives to tell that there is no such encoder
            assert task == expected
            assert "cannot load the encoder" in outcome.message
            kill_the_worker()  # idle
