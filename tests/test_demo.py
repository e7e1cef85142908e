"""The demo from end to end, with a tiny encoder on a small part of the bundled sample."""

import re

import pytest

import abalone.demo
import abalone.encoder.load
import tiny
from abalone import AbaloneClassifier
from abalone.demo import AIM, BOTH, SETTINGS, SIZES, USUAL, Size, choose_size, demo_corpus, run_demo, verdict


@pytest.mark.filterwarnings(
    "ignore:.*(does not beat tf-idf|adds nothing to words) alone"
)  # a random encoder has little to add
def test_the_demo_prints_what_it_computed(tmp_path, monkeypatch, capsys):
    folder = tiny.save_encoder(tmp_path / "encoder")
    monkeypatch.setattr(abalone.encoder.load, "packaged_encoder", lambda name: folder)
    settings = SETTINGS.replace(epochs=1, max_length=24, freeze_layers=1)
    size = Size({"train": 0.05, "validation": 0.1, "test": 0.05}, settings, 1.0)
    monkeypatch.setattr(abalone.demo, "choose_size", lambda seconds: size)
    monkeypatch.setattr(abalone.demo, "measured_seconds", lambda: 100.0)
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    rows = run_demo(tmp_path / "model")
    printed = capsys.readouterr().out
    assert list(rows) == ["tf-idf + SVM", "BCE", "ABALONE"]
    for scores in rows.values():
        assert f"{100 * scores['macro_f1']:.1f}" in printed
    assert "Training loss by epoch: " in printed
    assert re.search(r"Weights of the experts, chosen out of fold: lexical \d\.\d\d", printed)
    assert printed.count("    labels:") == printed.count("    predicted:") == 3
    assert "abalone train arxiv-sample --output model --recipe rare" in printed  # how to run the whole
    assert " ".join(verdict(rows, 249).split()[:8]) in " ".join(printed.split())
    corpus = demo_corpus(size)
    again = AbaloneClassifier.from_pretrained(tmp_path / "model").evaluate_split(corpus.test)[0]
    assert again["macro_f1"] == pytest.approx(rows["ABALONE"]["macro_f1"])


def test_the_part_is_always_the_same_and_has_every_label():
    first, second = demo_corpus(), demo_corpus()
    assert first.train.texts == second.train.texts
    assert (first.train.labels.sum(axis=0) > 0).all()
    assert len(first.train) < 2_500


@pytest.mark.parametrize(("seconds", "size"), [(0.0, 0), (5.0, 0), (100.0, 1), (150.0, 1), (160.0, 2), (510.0, 3)])
def test_the_largest_size_that_fits_is_chosen(seconds, size):
    """By the seconds that ABALONE alone takes at the usual size."""
    assert choose_size(seconds) is SIZES[size]


def test_six_times_slower_than_two_cores_of_2024_is_at_most_eight_minutes():
    seconds = 6 * 110.0  # at the usual size, ABALONE alone
    assert BOTH * seconds * choose_size(seconds).work <= 8 * 60
    assert BOTH * 1e9 * choose_size(1e9).work > AIM  # there is nothing smaller


def test_sizes_go_from_large_to_small():
    assert [size.work for size in SIZES] == sorted((size.work for size in SIZES), reverse=True)
    assert USUAL in SIZES


def scores(macro: float, tail: float) -> dict[str, float]:
    return {"macro_f1": macro, "macro_f1_tail": tail}


def test_it_says_so_where_abalone_is_ahead():
    rows = {"tf-idf + SVM": scores(0.404, 0.185), "BCE": scores(0.3, 0.1), "ABALONE": scores(0.425, 0.215)}
    said = verdict(rows, 2001)
    assert "ABALONE 42.5, tf-idf + SVM 40.4" in said
    assert said.endswith("ABALONE is ahead on both.")


@pytest.mark.parametrize(
    ("macro", "tail", "where"),
    [(0.425, 0.185, "on the rarest third:"), (0.40, 0.23, "over all labels:"), (0.413, 0.22, "on both:")],
)
def test_it_says_why_where_abalone_is_not_ahead(macro, tail, where):
    rows = {"tf-idf + SVM": scores(0.404, 0.215), "BCE": scores(0.3, 0.1), "ABALONE": scores(macro, tail)}
    said = verdict(rows, 2001)
    assert f"ABALONE is not clearly ahead {where} 2,001 papers are few" in said
    assert "docs/recipe.md" in said
