"""`abalone train` on a tiny corpus, in the tests' own process or in others, and how far a process has come."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from abalone.cli import app
from patience import PATIENCE

DOCUMENTS = {"train": 160, "val": 40, "test": 40}
BATCH = 8
STEPS_AN_EPOCH = DOCUMENTS["train"] // BATCH
EPOCHS = 5
SETTINGS = {
    "objective": "msc",
    "lexical": False,
    "pooling": "mean",
    "max_length": 16,
    "queue_size": 32,
    "projection_dim": 16,
    "epochs": EPOCHS,
    "batch_size": BATCH,
    "learning_rate": 2e-3,
    "head_learning_rate": 2e-3,
    "precision": "fp32",
    "device": "cpu",
    "checkpoint_seconds": 0,
}


def command(workshop: Path, output: Path, *options: str) -> list[str]:
    """The words after `abalone`, for a folder of `tiny.workshop`."""
    config = ["--config", str(workshop / "config.yaml")]
    return ["train", str(workshop / "papers.jsonl"), "-o", str(output), *config, *options]


def run(*arguments: object) -> Result:
    """The command in this process, which has paid for the imports already."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def assert_refused(result: Result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)  # no traceback
    told = " ".join(result.stderr.replace("│", " ").split())
    for word in words:
        assert word in told


@contextmanager
def starter() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Gives `start(*launcher, arguments=, **variables)`, for a process of its own; none outlives the block.

    `launcher` is a module such as `torch.distributed.run` and its options; `variables` are the process's own.
    """
    with ExitStack() as processes:

        def start(*launcher: str, arguments: list[str], **variables: str) -> "subprocess.Popen[str]":
            program = ["-m", *launcher, "-m", "abalone"] if launcher else ["-m", "abalone"]
            process = subprocess.Popen(
                [sys.executable, *program, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **variables},
            )
            processes.enter_context(process)
            processes.callback(process.kill)
            return process

        yield start


def standing(checkpoint: Path) -> dict[str, Any]:
    """How far a run was. The file is read at once, since it may be replaced at any time.

    It is whole under one of its two names at every moment.
    """
    before = checkpoint.with_name("resume-before.safetensors")
    content = (checkpoint if checkpoint.exists() else before).read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    found: dict[str, Any] = json.loads(header["__metadata__"]["notes"])["standing"]
    return found


def reached(checkpoint: Path) -> int:
    """The step of a checkpoint that a process may be replacing; 0 without one."""
    try:
        return int(standing(checkpoint)["step"])
    except FileNotFoundError:  # nothing yet, or in the moment between its two names
        return 0


def wait_for_step(process: "subprocess.Popen[str]", checkpoint: Path, step: int) -> None:
    """Until the checkpoint of that step, or of a later one, is on the disk."""
    deadline = time.monotonic() + PATIENCE
    while reached(checkpoint) < step:
        assert process.poll() is None, f"it ended before step {step}: {process.communicate()}"
        assert time.monotonic() < deadline, f"no step {step} after {PATIENCE:.0f} s"
        time.sleep(0.002)
