"""`python -m benchmarks.recipe` from end to end, in small: what docs/recipe.md rests on."""

import json
import sys

import benchmarks.recipe.__main__ as bench
import numpy as np
import pytest
from benchmarks.recipe.scores import EXPERTS, RECIPE

import tiny

SEEDS = ["0", "1"]


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    texts, labels = tiny.corpus(120)
    carried = [[tiny.WORDS[label] for label in row] for row in np.split(labels.indices, labels.indptr[1:-1])]
    tiny.write_jsonl(tmp_path / "small.jsonl", texts, carried, ["train"] * 60 + ["val"] * 30 + ["test"] * 30)
    encoder = tiny.save_encoder(tmp_path / "encoder")
    return [str(tmp_path / "small.jsonl"), "--output", str(tmp_path / "bench"), "--encoder", str(encoder)]


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["recipe", *arguments])
    bench.main()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # so few documents have much to be told of
def test_everything_is_trained_once_and_scored(arguments, tmp_path, monkeypatch, capsys):
    run(monkeypatch, *arguments, "--contender", "bce", "--seeds", *SEEDS)
    assert capsys.readouterr().out == "", "one contender is trained for others to be scored with"
    run(monkeypatch, *arguments, "--seeds", *SEEDS)
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "bench" / "recipe.json").read_text())
    assert len(found["scores"]) == 1 + 3 * 4, "tf-idf alone; three objectives, each without and with experts"
    assert set(found["scores"][RECIPE.name][0]["weights"]) == set(EXPERTS)
    for name, runs in found["scores"].items():
        mean = sum(run["test: macro_f1"] for run in runs) / len(SEEDS)
        line = next(line for line in printed.splitlines() if line.startswith(f"| {name} |"))
        assert f"{mean:.1f}" in line.split("|")[3]
    assert (tmp_path / "bench" / "recipe.png").stat().st_size > 10_000
    monkeypatch.setattr(bench, "train", None)  # nothing is left to be trained
    run(monkeypatch, *arguments, "--seeds", *SEEDS)
    assert capsys.readouterr().out == printed
