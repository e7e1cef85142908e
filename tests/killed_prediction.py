"""Bulk prediction that is killed again and again: what it leaves each time, and what it comes to in the end.

The processes are forked from one that has the imports behind it, so that a kill costs no more than the work itself.
"""

import hashlib
import json
import multiprocessing
import shutil
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from signal import SIGKILL

import tiny
from abalone import AbaloneClassifier

TEXTS, PART_SIZE, PATIENCE = 1200, 40, 120.0


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
    classifier = AbaloneClassifier(encoder=encoder, max_length=20, epochs=1, objective="bce", device="cpu")
    classifier.fit(texts[:120], labels[:120], run_folder=folder / "run").save_pretrained(folder / "model")
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    _ended(_start(folder, folder / "warm-up", form))
    started = time.monotonic()
    assert _ended(_start(folder, folder / "undisturbed", form)) == 0
    return Prepared(folder, form, contents(folder / "undisturbed"), time.monotonic() - started)


def strike_and_resume(prepared: Prepared, kills: int, seed: int) -> None:
    """Predict with kills at random moments, half of them while a file is being written, and let it end at last."""
    random, struck = Random(seed), prepared.folder / f"struck-{seed}"
    while kills:
        process = _start(prepared.folder, struck, prepared.form)
        _wait(process, struck, random, prepared.seconds)
        process.kill()
        process.join()
        assert_whole(struck, prepared.form)
        if process.exitcode == 0:  # it was done before the strike
            assert contents(struck) == prepared.wanted
            shutil.rmtree(struck)
        else:
            assert process.exitcode == -SIGKILL
            kills -= 1
    assert _ended(_start(prepared.folder, struck, prepared.form)) == 0
    assert contents(struck) == prepared.wanted


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


def _wait(process: multiprocessing.Process, folder: Path, random: Random, within: float) -> None:
    process.join(random.uniform(0, within))
    if random.random() < 0.5:
        before = set(folder.glob(".*"))
        while process.exitcode is None and not set(folder.glob(".*")) - before:
            time.sleep(0.0005)
        time.sleep(random.uniform(0, 0.01))  # about as long as writing a part and putting it in place takes


def _ended(process: multiprocessing.Process) -> int | None:
    process.join(PATIENCE)
    process.kill()
    process.join()
    return process.exitcode


def _start(folder: Path, output: Path, form: str) -> multiprocessing.Process:
    process = _context().Process(target=_predict, args=(folder, output, form))
    process.start()
    return process


@cache
def _context() -> "multiprocessing.context.ForkServerContext":
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["abalone.cli", "abalone.model.folder", "pyarrow.parquet"])
    return context


def _predict(folder: Path, output: Path, form: str) -> None:
    """What each process does."""
    import torch

    from abalone.cli import app

    torch.set_num_threads(1)
    command = ["predict", folder / "model", folder / "texts.jsonl", "--output", output, "--resume", "--device", "cpu"]
    app([str(word) for word in (*command, "--part-size", PART_SIZE, "--format", form)])
