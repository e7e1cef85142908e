"""Bulk prediction that is killed again and again: what it leaves each time, and what it comes to in the end."""

import hashlib
import json
import shutil
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import tiny
from abalone import AbaloneClassifier
from patience import PATIENCE
from striking import Work, abalone, start, strike

TEXTS, PART_SIZE = 1200, 40


@dataclass(frozen=True)
class Prepared:
    """A model, a file of texts, and what undisturbed prediction makes of it in how many seconds."""

    folder: Path
    form: str
    wanted: dict[str, bytes]
    seconds: float


def prepare(folder: Path, form: str) -> Prepared:
    """Predict once undisturbed."""
    texts, labels = tiny.corpus(TEXTS)
    encoder = tiny.save_encoder(folder / "encoder")
    classifier = AbaloneClassifier("paper", encoder=encoder, max_length=20, epochs=1, objective="bce", device="cpu")
    classifier.fit(texts[:120], labels[:120], run_folder=folder / "run").save_pretrained(folder / "model")
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    for output in ("warm-up", "undisturbed"):
        process, started = start(_work(folder, folder / output, form), folder / "log"), time.monotonic()
        process.join(PATIENCE)
        assert process.exitcode == 0, (folder / "log").read_text()
    return Prepared(folder, form, contents(folder / "undisturbed"), time.monotonic() - started)


def strike_and_resume(prepared: Prepared, kills: int, seed: int) -> None:
    """Predict with kills at random moments, half of them while a file is being written, and let it end at last."""
    random, output = Random(seed), prepared.folder / f"struck-{seed}"
    work = _work(prepared.folder, output, prepared.form)
    while kills:  # more than once where the work is done before a strike
        shutil.rmtree(output, ignore_errors=True)
        struck = strike(
            work,
            work,
            output,
            random,
            kills=kills,
            within=prepared.seconds,
            after_kill=partial(assert_whole, output, prepared.form),
        )
        assert struck.status == 0, struck.told
        assert contents(output) == prepared.wanted
        kills -= struck.kills


def assert_whole(folder: Path, form: str) -> None:
    """Every part has all of its rows, and what the manifest lists is there as it says."""
    for part in folder.glob("part-*"):
        assert _rows(part, form) == PART_SIZE, part
    if (folder / "manifest.json").exists():
        for part in json.loads((folder / "manifest.json").read_text())["parts"]:
            assert hashlib.sha256((folder / part["name"]).read_bytes()).hexdigest() == part["sha256"], part


def contents(folder: Path) -> dict[str, bytes]:
    """All that is in the folder, whatever its name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _rows(part: Path, form: str) -> int:
    if form == "parquet":
        from pyarrow.parquet import read_table

        return read_table(part).num_rows
    return len([json.loads(line)["labels"] for line in part.read_text().splitlines()])


def _work(folder: Path, output: Path, form: str) -> Work:
    options = ("--resume", "--device", "cpu", "--part-size", PART_SIZE, "--format", form)
    return abalone("predict", folder / "model", folder / "texts.jsonl", "--output", output, *options)
