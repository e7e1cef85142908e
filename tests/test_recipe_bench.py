"""`python -m benchmarks.recipe` from end to end, in small: what docs/recipe.md rests on."""

import json
import sys

import benchmarks.recipe.__main__ as bench
import numpy as np
import pytest
from benchmarks.recipe import scores
from benchmarks.recipe import train as training
from benchmarks.recipe.corpora import read_corpus
from benchmarks.recipe.scores import DEFAULT, METRICS, PLAIN, WORDS, Bench
from benchmarks.recipe.train import Run, logits_file

import tiny
from abalone.recipes import recipe
from abalone.training.folds import divide

FOLDS = 2
pytestmark = pytest.mark.usefixtures("one_split")
RUNS = [Run("arxiv54", contender, seed) for contender in ("default", "bce", "unnamed") for seed in (0, 1)]
UNNAMED = f"{WORDS} without names"


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A file that stands for arxiv54."""
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    texts, labels = tiny.corpus(120)
    carried = [[tiny.WORDS[label] for label in row] for row in np.split(labels.indices, labels.indptr[1:-1])]
    tiny.write_jsonl(tmp_path / "small.jsonl", texts, carried, ["train"] * 60 + ["val"] * 30 + ["test"] * 30)
    return str(tmp_path / "small.jsonl")


@pytest.fixture
def folder(source, tmp_path):
    """Made-up logits: what is true, and noise. The default is surer than BCE."""
    corpus = read_corpus("arxiv54", source)
    rows = np.concatenate([fold.held_out for fold in divide(corpus.train, FOLDS)])
    truth = {"held out": corpus.train.labels[rows].toarray(), "test": corpus.test.labels.toarray()}
    for run in RUNS:
        rng, sure = np.random.default_rng(run.seed), 3.0 if run.contender == "default" else 1.0
        said = {
            f"{split} {of}": sure * (2 * labels - 1) + rng.normal(size=labels.shape)
            for split, labels in truth.items()
            for of in ("head", "neighbours")
        }
        story = {"config": {"folds": FOLDS, "encoder": "tiny"}}
        training._keep(logits_file(tmp_path / "bench", run), said, story)
    return tmp_path / "bench"


def run(monkeypatch, step, folder, source, *others):
    arguments = [step, "--output", folder, "--arxiv54", source, "--corpus", "arxiv54", *others]
    monkeypatch.setattr(sys, "argv", ["recipe", *map(str, arguments)])
    bench.main()


def rewrite(folder, change):
    """Change what is stored of every model; `change` takes a name and an array, and returns another or none."""
    for each in RUNS:
        with np.load(logits_file(folder, each)) as stored:
            changed = {name: change(name, stored[name]) for name in stored}
        np.savez(logits_file(folder, each), **{name: array for name, array in changed.items() if array is not None})


def test_summary_has_scores_seeds_and_a_command_for_every_row(folder, source, monkeypatch, capsys):
    run(monkeypatch, "score", folder, source)
    found = json.loads((folder / "arxiv54" / "summary.json").read_text())
    expected = "words, with names and without; BCE with up to two experts; the default with any; without names three"
    assert len(found) == 2 + 3 + 4 + 3, expected
    for row, of_row in found.items():
        assert set(of_row) == {*METRICS, "seeds", "command", "one_cut"}
        assert set(of_row["one_cut"]) == set(METRICS)
        assert all(0 <= of_row[metric] <= 100 for metric in METRICS)
        assert of_row["seeds"] == (1 if row in (WORDS, UNNAMED) else 2)
        assert of_row["command"].startswith("python -m benchmarks.recipe train --output results --corpus arxiv54 ")
        assert source not in of_row["command"]
    assert "--contender bce --encoder ./tiny &&" in found[PLAIN]["command"]
    assert found[DEFAULT]["macro_f1"] > found[PLAIN]["macro_f1"] + 10
    table = (folder / "arxiv54" / "recipe.md").read_text()
    assert capsys.readouterr().out == table + "\n"
    line = next(line for line in table.splitlines() if line.startswith(f"| {PLAIN} |"))
    assert [f"{found[PLAIN][metric]:.1f}" in line for metric in METRICS] == [True] * 3
    assert (folder / "arxiv54" / "recipe.png").stat().st_size > 10_000


def test_records_have_every_seed_and_intervals_around_the_difference_of_means(folder, source, monkeypatch):
    run(monkeypatch, "score", folder, source)
    found = json.loads((folder / "arxiv54" / "recipe.json").read_text())
    assert [each["seed"] for each in found["scores"][DEFAULT]] == [0, 1]
    assert list(found["scores"][DEFAULT][0]["weights"]) == ["lexical", "neighbours"], "in the order of the pipeline"
    assert [story["config"]["folds"] for story in found["models"]["bce"]] == [FOLDS] * 2
    for where, by_row in found["default is ahead of"].items():
        means = {row: np.mean([each[where]["macro_f1"] for each in of_row]) for row, of_row in found["scores"].items()}
        assert set(by_row) == set(means) - {DEFAULT}
        for row, by_metric in by_row.items():
            interval = by_metric["macro_f1"]
            assert 100 * interval["value"] == pytest.approx(means[DEFAULT] - means[row], abs=0.01)
            assert interval["low"] <= interval["high"]


def test_no_test_scores_without_test_logits(folder, source, monkeypatch):
    run(monkeypatch, "score", folder, source)
    expected = (folder / "arxiv54" / "out_of_fold.md").read_text()
    for file in (folder / "arxiv54").iterdir():
        file.unlink()
    rewrite(folder, lambda name, array: None if name.startswith("test") else array)
    run(monkeypatch, "score", folder, source, "--no-test")
    assert [file.name for file in (folder / "arxiv54").iterdir()] == ["out_of_fold.md"]
    assert (folder / "arxiv54" / "out_of_fold.md").read_text() == expected
    with pytest.raises(KeyError, match="test head"):
        run(monkeypatch, "score", folder, source)


def test_decisions_follow_from_out_of_fold_documents_in_the_order_of_folds(folder, source):
    corpus = read_corpus("arxiv54", source)
    made = Bench(corpus, folder, RUNS)
    assert made.out_of_fold_scores(made.fit(DEFAULT, 0).out_of_fold)["macro_f1"] > 90, "rows and labels fit together"
    before = made.fit(PLAIN, 0)
    rewrite(folder, lambda name, array: -array if name.startswith("test") else array)
    after = made.fit(PLAIN, 0)
    assert after.decision.to_dict() == before.decision.to_dict(), "test has no say"
    rewrite(folder, lambda name, array: array + 2 if name.startswith("held out") else array)
    moved = made.fit(PLAIN, 0)
    assert moved.decision.to_dict() != before.decision.to_dict(), "made again from what is new"
    assert np.unique(moved.one_cut.thresholds.values).size == 1


def test_rows_without_names_take_the_lexical_expert_that_has_not_learnt_them(folder, source):
    made = Bench(read_corpus("arxiv54", source), folder, RUNS)
    before = {row: made.fit(row, 0).decision.to_dict() for row in made.rows}
    file = training.words_file(folder, "arxiv54", FOLDS, named=False)
    with np.load(file) as stored:
        changed = {name: -stored[name] if name.endswith("lexical") else stored[name] for name in stored}
    np.savez(file, **changed)
    moved = {row for row in made.rows if made.fit(row, 0).decision.to_dict() != before[row]}
    assert moved == {UNNAMED, "unnamed, lexical expert only", "unnamed"}
    assert training.words_file(folder, "arxiv54", FOLDS, named=True) != file


def test_one_cut_is_the_best_of_all_labels_together():
    probabilities = np.array([[0.9, 0.3], [0.6, 0.32], [0.2, 0.1]])
    cut = scores.best_cut(probabilities, scores.csr_array(np.array([[1, 1], [1, 1], [0, 0]])))
    assert cut.values.tolist() == [0.21, 0.21], "between 0.2, which is wrong, and 0.3: the lowest"


def test_what_is_decided_is_not_decided_again(folder, source, monkeypatch):
    run(monkeypatch, "score", folder, source)
    written = {file.name: file.read_bytes() for file in (folder / "arxiv54").glob("*.[mj]*")}
    monkeypatch.setattr(scores, "fit_decision", None)
    run(monkeypatch, "score", folder, source)
    assert {file.name: file.read_bytes() for file in (folder / "arxiv54").glob("*.[mj]*")} == written


def test_models_with_different_folds_are_refused(folder, source):
    training._keep(logits_file(folder, RUNS[0]), {}, {"config": {"folds": FOLDS + 1}})
    with pytest.raises(ValueError, match=r"\[2, 3\] folds"):
        Bench(read_corpus("arxiv54", source), folder, RUNS)


def test_score_without_logits_says_what_to_do(source, tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, "score", tmp_path / "empty", source)
    assert "run `train` first" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # so few documents have much to be told of
def test_everything_is_trained_once_and_scored(source, tmp_path, monkeypatch):
    small = {"folds": FOLDS, "epochs": 1, "device": "cpu"}
    changed = {name: config.replace(**small) for name, config in training.CONTENDERS.items()}
    monkeypatch.setattr(training, "CONTENDERS", changed)
    encoder = tiny.save_encoder(tmp_path / "encoder")
    asked = "--encoder", encoder, "--seeds", 1, "--contender", "default", "bce"
    run(monkeypatch, "train", tmp_path / "bench", source, *asked)
    monkeypatch.setattr(training, "train", None)  # nothing is left to be trained
    run(monkeypatch, "train", tmp_path / "bench", source, *asked)
    run(monkeypatch, "score", tmp_path / "bench", source)
    found = json.loads((tmp_path / "bench" / "arxiv54" / "recipe.json").read_text())
    assert found["folds"] == FOLDS
    assert found["models"]["default"][0]["config"]["epochs"] == 1
    assert found["models"]["default"][0]["config"]["objective"] == recipe().objective
    summary = json.loads((tmp_path / "bench" / "arxiv54" / "summary.json").read_text())
    assert {"default", "bce", "tf-idf + SVM"} < set(summary)
    assert summary[WORDS]["macro_f1"] > 50, "words decide the labels"
    assert {each["seeds"] for each in summary.values()} == {1}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_fast_is_scored_in_tables_of_its_own_beside_words(source, tmp_path, monkeypatch):
    changed = {name: config.replace(folds=FOLDS, device="cpu") for name, config in training.CONTENDERS.items()}
    monkeypatch.setattr(training, "CONTENDERS", changed)
    asked = "--encoder", tiny.save_encoder(tmp_path / "encoder"), "--contender", "fast"
    run(monkeypatch, "train", tmp_path / "bench", source, *asked)
    run(monkeypatch, "score", tmp_path / "bench", source, *asked)
    found = json.loads((tmp_path / "bench" / "arxiv54-fast" / "recipe.json").read_text())
    assert set(found["scores"]) == {WORDS, UNNAMED, "fast without experts", "fast", "fast + neighbours"}
    assert set(found["fast is ahead of"]["test, tuned"]) == set(found["scores"]) - {"fast"}
    assert "is ahead of" in (tmp_path / "bench" / "arxiv54-fast" / "recipe.md").read_text()
