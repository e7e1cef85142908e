import hashlib
import importlib.util
import json
import lzma
from importlib.resources import files
from pathlib import Path

import pytest

from abalone.data.benchmarks import BENCHMARKS
from abalone.errors import DataError

SAMPLE = Path(str(files("abalone.data") / "sample"))
PARTS = ("train", "val", "test")


@pytest.fixture(scope="module")
def sample():
    return BENCHMARKS["arxiv-sample"](None)


def write(folder, suffix=".xz", **parts):
    for part in PARTS:
        lines = "".join(
            json.dumps({"id": f"{part}.{i}", "title": "A title", "text": text, "labels": labels}) + "\n"
            for i, (text, labels) in enumerate(parts.get(part, [("an abstract", ["cs.ai", "cs.lg"])]))
        ).encode()
        (folder / f"{part}.jsonl{suffix}").write_bytes(lzma.compress(lines) if suffix else lines)


@pytest.mark.parametrize("suffix", [".xz", ""])
def test_the_full_set_by_its_folder(tmp_path, suffix):
    write(tmp_path, suffix, train=[("about proofs", ["math.lo", "cs.lo"]), ("about nets", ["cs.lg", "cs.ai"])])
    corpus = BENCHMARKS["arxiv"](tmp_path)
    assert corpus.name == "arxiv54"
    assert corpus.label_names == ("cs.ai", "cs.lg", "cs.lo", "math.lo")
    assert corpus.train.texts == ["about proofs", "about nets"]
    assert corpus.train.labels.toarray().tolist() == [[0, 0, 1, 1], [1, 1, 0, 0]]
    assert [len(split) for _, split in corpus.splits()] == [2, 1, 1]
    assert corpus.provenance["licence"] == "CC0 1.0 (arXiv metadata)"
    assert "without the title" in str(corpus.provenance["preparation"])
    assert str(tmp_path) not in str(corpus.provenance)  # it goes into models, which are passed on


def test_missing_and_cut_files_are_named(tmp_path):
    write(tmp_path)
    cut = tmp_path / "val.jsonl.xz"
    cut.write_bytes(cut.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"val\.jsonl\.xz: cannot be read"):
        BENCHMARKS["arxiv"](tmp_path)
    cut.unlink()
    with pytest.raises(DataError, match=r"val\.jsonl\.xz is missing"):
        BENCHMARKS["arxiv"](tmp_path)


def test_the_sample_has_fixed_splits_and_a_long_tail(sample):
    stats = sample.stats()
    assert (stats.train, stats.validation, stats.test) == (5_000, 1_000, 1_500)
    assert stats.labels == 53
    assert stats.unlabelled_documents == 0
    assert sample.label_names[stats.frequencies.index(stats.frequency_max)] == "cs.ai"
    assert stats.frequency_max > 0.5 * stats.train
    assert stats.gini > 0.7
    assert sample.unseen_labels == sample.notes == ()


def test_its_tail_labels_stay_usable(sample):
    least = {name: split.labels.sum(axis=0).min() for name, split in sample.splits()}
    assert least["train"] >= 15
    assert least["test"] >= 5
    validation = dict(zip(sample.label_names, sample.validation.labels.sum(axis=0), strict=True))
    assert validation.pop("math.nt") == 3  # all that the full set has
    assert min(validation.values()) >= 5


def test_no_paper_is_in_two_of_its_splits():
    lines = (
        line for part in PARTS for line in lzma.decompress((SAMPLE / f"{part}.jsonl.xz").read_bytes()).splitlines()
    )
    ids = [json.loads(line)["id"] for line in lines]
    assert len(set(ids)) == len(ids) == 7_500


def test_it_fits_into_the_wheel():
    assert sum(file.stat().st_size for file in SAMPLE.iterdir()) < 3_000_000


def test_its_note_has_licence_and_checksums():
    note = (SAMPLE / "PROVENANCE.md").read_text("utf-8")
    assert "CC0 1.0" in note
    for part in PARTS:
        content = lzma.decompress((SAMPLE / f"{part}.jsonl.xz").read_bytes())
        assert hashlib.sha256(content).hexdigest() in note


def test_it_takes_no_path(tmp_path):
    with pytest.raises(DataError, match="takes no path"):
        BENCHMARKS["arxiv-sample"](tmp_path)


def test_the_draw_gives_each_label_its_floor_or_its_share():
    script = Path(__file__).parents[2] / "tools" / "draw_arxiv_sample.py"
    spec = importlib.util.spec_from_file_location("draw_arxiv_sample", script)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    records = [
        {"id": str(i), "labels": ["head", *["middle"] * (i % 4 == 0), *["rare"] * (i < 30), *["single"] * (i == 0)]}
        for i in range(1000)
    ]
    drawn = tool.draw(records, size=200, floor=10)
    frequency = {label: sum(label in r["labels"] for r in drawn) for label in ("head", "middle", "rare", "single")}
    assert frequency["head"] == 200
    assert 35 <= frequency["middle"] <= 65
    assert 10 <= frequency["rare"] <= 14
    assert frequency["single"] == 1
    assert [r["id"] for r in drawn] == sorted((r["id"] for r in drawn), key=int)
    assert tool.draw(records[::-1], size=200, floor=10)[::-1] == drawn
