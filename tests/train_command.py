"""`abalone train` on a tiny corpus, in the tests' own process or in others, and how far a process has come."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from abalone.cli import app

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
    "folds": 0,
    "batch_size": BATCH,
    "learning_rate": 2e-3,
    "head_learning_rate": 2e-3,
    "precision": "fp32",
    "device": "cpu",
    "checkpoint_seconds": 0,
}

# A process that strikes itself cannot be late, as one that is watched from outside can on a busy machine.
# The loop's own steps count; those that are timed beforehand, on copies, do not.
KILLED_AT_STEP = """
import os, signal, sys
from abalone.cli import app
from abalone.training import loop

left = iter(range(int(sys.argv.pop(1))))

class Struck(loop.Step):
    def __call__(self, *arguments, **options):
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        super().__call__(*arguments, **options)

loop.Step = Struck
app(prog_name="abalone")
"""


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

    `launcher` is a module such as `torch.distributed.run` and its options; `variables` are the process's own. With
    `killed_at=` it is killed in a step, after so many that it has finished.
    """
    with ExitStack() as processes:

        def start(
            *launcher: str, arguments: list[str], killed_at: int | None = None, **variables: str
        ) -> "subprocess.Popen[str]":
            program = ["-m", *launcher, "-m", "abalone"] if launcher else ["-m", "abalone"]
            if killed_at is not None:
                program = ["-c", KILLED_AT_STEP, str(killed_at)]
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
