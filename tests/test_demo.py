"""The demo from end to end, with a tiny encoder on a small part of the bundled sample."""

import re

import pytest

import abalone.demo
import abalone.model.encoder
import tiny
from abalone import AbaloneClassifier
from abalone.demo import SETTINGS, demo_corpus, run_demo


@pytest.mark.filterwarnings(
    "ignore:.*(does not beat tf-idf|adds nothing to words) alone"
)  # a random encoder has little to add
def test_the_demo_prints_what_it_computed(tmp_path, monkeypatch, capsys):
    folder = tiny.save_encoder(tmp_path / "encoder")
    monkeypatch.setattr(abalone.model.encoder, "packaged_encoder", lambda name: folder)
    monkeypatch.setattr(abalone.demo, "SETTINGS", SETTINGS.replace(epochs=1, max_length=24, freeze_layers=1))
    monkeypatch.setattr(abalone.demo, "SHARES", {"train": 0.05, "validation": 0.1, "test": 0.05})
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    rows = run_demo(tmp_path / "model")
    printed = capsys.readouterr().out
    assert list(rows) == ["tf-idf + SVM", "BCE", "ABALONE"]
    for scores in rows.values():
        assert f"{100 * scores['macro_f1']:.1f}" in printed
    assert "Training loss by epoch: " in printed
    assert re.search(r"Weights of the experts, chosen on validation: lexical \d\.\d\d", printed)
    assert printed.count("    carries:") == printed.count("    given:") == 3
    corpus = demo_corpus()
    again = AbaloneClassifier.from_pretrained(tmp_path / "model").evaluate_split(corpus.test)[0]
    assert again["macro_f1"] == pytest.approx(rows["ABALONE"]["macro_f1"])


def test_the_part_is_always_the_same_and_has_every_label():
    first, second = demo_corpus(), demo_corpus()
    assert first.train.texts == second.train.texts
    assert (first.train.labels.sum(axis=0) > 0).all()
    assert len(first.train) < 2_500
