"""Fuzzing the command line: every command, with arguments and inputs of every kind."""

import os
import random
import shutil
import subprocess
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import yaml
from typer.main import get_command
from typer.testing import CliRunner

import fuzz_models
import fuzz_readers
import fuzz_settings
from abalone.cli import app
from abalone.config import Config
from abalone.reproduce.results import CORPUS, RESULTS
from fuzzing import LONGEST, Target
from mutations import mutated
from patience import PATIENCE

Numbers = random.Random
CHEAP = ("stats", "evaluate", "predict", "report", "reproduce", "serve", "demo")  # what does not train
STATUS = {0, 1, 2}
ODD = (
    "", " ", "-", "--", "-1", "0", "1", "1.5", "1e9", "x", "ä\u2028🐚", "\udcff", "a" * 4000, ".",
    "~nobody/x", "/dev/null", "/etc/hostname", "rcv1", "arxiv", "reuters", "aapd", "all", "test", "train", "cpu",
    "cuda", "cuda:99", "mps", "auto", "%s", "$(id)", "9" * 23, "nan", "inf", "text", "labels", "split", ";", "datasets",
    "ablation", "latex", "csv", "MSC,BCE", "0,1", "0,,1",
)  # fmt: skip

NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "8",
    "0.5",
    "1e-3",
    "-1",
    "nan",
    "inf",
    "-inf",
    "1e30",
    "2147483648",
    "9223372036854775808",
    "9" * 30,
)
OBJECTIVES = (
    "bce",
    "msc",
    "supcon",
    "mulcon+bce",
    "mulcon",
    "msc+10*bce",
    "msc+1e999*bce",
    "bce+",
    "asymmetric",
    "jscl",
    "x",
)
# What is written goes nowhere but to the folder of the case: the fuzzer runs on somebody's machine.
WRITTEN = ("output", "plot", "tracker_folder", "skip_bad_rows")
DESTINATIONS = (
    "out2",
    "file.txt",
    "empty",
    "a/b/out",
    "x" * 300,
    "",
    " ",
    "out.png",
    "out.jsonl",
    "out.parquet",
    "ä\udcff",
)
KNOWN: dict[str, tuple[str, ...]] = {  # values that an option may well have, beside those that it may not
    **{field.name: NUMBERS for field in fields(Config) if isinstance(field.default, int | float)},
    **dict.fromkeys(
        ("top", "port", "max_texts", "max_characters", "max_body", "stop_after", "jobs", "patience"), NUMBERS
    ),
    **dict.fromkeys(("objective", "finetune_objective"), OBJECTIVES),
    "device": ("cpu", "auto", "cuda:99"),
    "split": ("all", "test", "train", "validation"),
    "pooling": ("cls", "mean", "normalized_mean"),
    "precision": ("fp32", "bf16", "fp16", "auto"),
    "classifier": ("probe", "finetune"),
    "thresholds": ("macro", "micro", "half"),
    "schedule": ("cosine", "linear"),
}
PRINTED = (
    "--print-only", "--seeds", "0", "--temperatures", "0.1", "--learning-rates", "5e-5", "--epochs", "2",
    "--baseline-epochs", "2", "--finetune-epochs", "1",
)  # fmt: skip


@cache
def workshop() -> Path:
    """A folder with a model, an encoder, an ONNX file, data and results, whole and damaged; removed at the end."""
    held = TemporaryDirectory(prefix="abalone-fuzz-")
    workshop.__dict__["held"] = held  # so that it is removed with the process and not before
    place = Path(held.name)
    fuzz_readers.put(fuzz_models.model_files(), place)
    fuzz_readers.put(fuzz_models.encoder_files(), place)
    fuzz_readers.put(fuzz_settings.stored(), place / "results")
    (place / "m.onnx").write_bytes(fuzz_models.onnx_file())
    for files in fuzz_readers.own_files().values():
        fuzz_readers.put(files, place / "data")
    fuzz_readers.put(fuzz_readers.own_folders()["splits"], place / "splits")
    (place / "settings.yaml").write_text(
        yaml.safe_dump({"epochs": 1, "batch_size": 8, "encoder": str(place / "encoder")})
    )
    return place


def material(numbers: Numbers, place: Path) -> list[str]:
    """Names of things in `place`: links to the workshop's, and some that are damaged."""
    for name in ("model", "encoder", "results", "m.onnx", "splits", "settings.yaml"):
        (place / name).symlink_to(workshop() / name)
    names = ["model", "encoder", "m.onnx", "splits", "settings.yaml", "results"]
    for whole in numbers.sample(sorted(path.name for path in (workshop() / "data").iterdir()), 3):
        (place / whole).write_bytes((workshop() / "data" / whole).read_bytes())
        (place / f"bad-{whole}").write_bytes(mutated((workshop() / "data" / whole).read_bytes(), numbers))
        names += [whole, f"bad-{whole}"]
    (place / "empty").mkdir()
    (place / "file.txt").write_text("a\nb\n")
    (place / "bad.yaml").write_bytes(mutated((workshop() / "settings.yaml").read_bytes(), numbers))
    damaged = place / "bad"
    fuzz_readers.put_damaged(fuzz_models.model_files(), damaged, numbers)
    shutil.copytree(workshop() / "results", place / "bad-results")
    name = numbers.choice((RESULTS, CORPUS))
    (place / "bad-results" / name).write_bytes(
        fuzz_settings.damaged_lines((workshop() / "results" / name).read_bytes(), numbers)
    )
    return [*names, "empty", "file.txt", "bad.yaml", "bad/model", "bad-results", "nowhere"]


def command_line(name: str, numbers: Numbers, names: list[str]) -> list[str]:
    """The command with what it asks for, mostly, and some of its options with whatever."""
    first = {
        "stats": lambda: [data()],
        "evaluate": lambda: [model(), data()],
        "predict": lambda: [model(), data()],
        "report": lambda: [model(), "--data", data(), "--output", "out.html"],
        "reproduce": lambda: [
            numbers.choice(("datasets", "ablation", "comparison", "all")),
            data(),
            "--output",
            results(),
            *PRINTED,
        ],
        "serve": lambda: [model()],
        "export": lambda: [model(), "--output", "out.onnx"],
        "train": lambda: [data(), "--output", "out", "--config", "settings.yaml", "--device", "cpu"],
        "demo": list,
    }

    def anything() -> str:
        return numbers.choice((numbers.choice(names), numbers.choice(ODD)))

    def value(option: Any) -> str:
        if option.name in WRITTEN:
            return numbers.choice(DESTINATIONS)
        if numbers.random() < 0.1:
            return anything()
        return numbers.choice(KNOWN[option.name]) if option.name in KNOWN else anything()

    def data() -> str:
        if numbers.random() < 0.2:
            return anything()
        kind = ("own", "written") if numbers.random() < 0.6 else ("bad-",)
        return numbers.choice([name for name in names if name.startswith(kind)] or names)

    def model() -> str:
        return numbers.choice(("model", "model", "bad/model", "m.onnx", anything()))

    def results() -> str:
        return numbers.choice(("results", "bad-results", "bad-results", *DESTINATIONS))

    given = first[name]() if numbers.random() < 0.9 else [anything() for _ in range(numbers.randrange(4))]
    options = [parameter for parameter in get_command(app).commands[name].params if parameter.opts[0].startswith("--")]
    options = [option for option in options if option.name in KNOWN] if numbers.random() < 0.5 else options
    for option in numbers.sample(options, min(len(options), numbers.choice((0, 1, 1, 2, 4)))):
        if option.name in ("epochs", "output") and name in ("train", "reproduce"):
            continue  # how long it works, and where
        given.append(numbers.choice((*option.opts, *option.secondary_opts)))
        if not getattr(option, "is_flag", False):
            given.append(value(option))
    if numbers.random() < 0.05:
        given.insert(numbers.randint(0, len(given)), numbers.choice(ODD))
    return [name, *given]


def check(names: tuple[str, ...], numbers: Numbers, place: Path) -> None:
    """One command in this process."""
    made = material(numbers, place)
    line = command_line(numbers.choice(names), numbers, made)
    before = set(place.rglob("*"))
    here = Path.cwd()
    os.chdir(place)
    try:
        with (
            patch.dict(
                os.environ, ABALONE_CACHE=str(place / "cache"), HF_HUB_OFFLINE="1", WANDB_MODE="offline", COLUMNS="100"
            ),
            patch("abalone.serving.server.serve", lambda app, bound, ready: ready()),  # else it would go on for ever
            patch("abalone.demo.run_demo", lambda folder: None),  # minutes, and nothing that a person gives it
        ):
            result = CliRunner().invoke(app, line)
    finally:
        os.chdir(here)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(f"{line} raised") from result.exception
    assert_told(line, result.exit_code, result.stdout, result.stderr)
    if result.exit_code:
        new = {path.name for path in place.rglob("*") if path not in before and "cache" not in path.parts}
        left = {name for name in new if name.startswith(".") or name in ("out", "out.html", "out.onnx")}
        assert not left, f"{line} failed and left {left}"


def assert_told(line: list[str], status: int, told: str, errors: str) -> None:
    """The status is ours, and where it is not 0 there is one message, and no more than a person reads."""
    assert status in STATUS, (line, status, errors)
    assert "Traceback" not in told + errors, (line, errors)
    if status:
        assert "error" in errors.lower() or "usage" in errors.lower() or "failed" in errors, (line, errors)
        message = errors[errors.lower().rfind("error") :]
        assert len(message) < 2 * LONGEST, (line, len(message))
    assert "\x1b" not in told + errors, (line, errors)


def check_cheap(numbers: Numbers, place: Path) -> None:
    """A command that does not train."""
    check(CHEAP, numbers, place)


def check_training(numbers: Numbers, place: Path) -> None:
    """A command that trains, or exports."""
    check(("train", "train", "export"), numbers, place)


def check_process(numbers: Numbers, place: Path) -> None:
    """A command in a process of its own, with any bytes on its standard input."""
    made = material(numbers, place)
    line = command_line(numbers.choice(("stats", "evaluate", "predict")), numbers, made)
    if line[0] == "predict" and numbers.random() < 0.7:
        line = ["predict", "model"]
    done = subprocess.run(
        [sys.executable, "-m", "abalone", *line],
        input=mutated(fuzz_readers.own_files()["own.jsonl"]["own.jsonl"], numbers),
        capture_output=True,
        cwd=place,
        env={**os.environ, "ABALONE_CACHE": str(place / "cache"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        timeout=PATIENCE,
        check=False,
    )
    assert_told(line, done.returncode, done.stdout.decode(), done.stderr.decode())


TARGETS = {
    "commands/reading": Target(check_cheap, small=12, share=1.5, seconds=60, prepare=workshop),
    "commands/training": Target(check_training, small=1, share=0.15, seconds=90, prepare=workshop),
    "commands/processes": Target(check_process, small=0, share=0.02, seconds=120, prepare=workshop),
}
