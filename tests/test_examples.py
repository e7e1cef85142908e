"""The programs in `examples/` run, here on small data with a small encoder."""

import csv
import runpy
import sys
from collections import Counter
from pathlib import Path

import pytest

import tiny
from abalone import load_corpus
from abalone.config import Config
from abalone.data.corpus import Corpus, Split

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, monkeypatch, *arguments):
    """The names of an example, run as from a shell if there are arguments and imported otherwise."""
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    return runpy.run_path(str(EXAMPLES / name), run_name="__main__" if arguments else "example")


def test_every_example_is_tested_somewhere():
    tests = "".join(file.read_text(encoding="utf-8") for file in Path(__file__).parent.rglob("test_*.py"))
    assert [file.name for file in EXAMPLES.glob("*.py") if file.stem not in tests] == []


def test_made_up_tickets_make_a_corpus_with_a_tail(tmp_path, monkeypatch):
    path = tmp_path / "tickets.csv"
    run("made_up_tickets.py", monkeypatch, path)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    counts = Counter(label for row in rows for label in row["labels"].split("; "))
    assert len(rows) == 320
    assert max(counts.values()) > 10 * min(counts.values())
    corpus = load_corpus(path)
    stats = corpus.stats()
    # What the tutorial prints.
    assert (stats.train, stats.validation, stats.test, stats.labels) == (260, 30, 30, 8)
    assert sorted(stats.frequencies, reverse=True) == [139, 95, 65, 48, 30, 15, 11, 8]


@pytest.mark.filterwarnings("ignore:.*(does not beat tf-idf|adds nothing to words) alone")
def test_the_long_tail_becomes_a_page(tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    texts, labels = tiny.corpus(140)
    parts = [Split(texts[a:b], labels[a:b]) for a, b in ((0, 80), (80, 110), (110, 140))]
    corpus = Corpus(*parts, label_names=tuple("abcde"), name="made up")
    settings = Config(encoder=tiny.save_encoder(tmp_path / "encoder"), max_length=20, epochs=1, device="cpu")
    run("long_tail.py", monkeypatch)["write_page"](tmp_path / "page.html", corpus, settings)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(f'"{name}"' in page for name in ("frozen", "msc", "bce"))
