"""Strikes work in a process with SIGKILL at random moments, starts it again, and looks at what it has left each time.

The processes are forked from one that has the imports behind it, so that a strike costs no more than the work itself.
"""

import json
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from random import Random

from abalone.files.atomic import ASIDE, PARTIAL
from abalone.training.checkpoint import check_tensors
from patience import PATIENCE

Work = Callable[[], object]

PRELOADED = ["abalone.cli", "abalone.training.pipeline", "abalone.inference.export", "onnxruntime", "onnxscript"]
BETWEEN_LOOKS = 0.002  # seconds at most: a file is written, synced and renamed in about as many


def unfinished(folder: Path) -> list[Path]:
    """What lies under a temporary name; `os.walk` does not mind that things come and go."""
    found = []
    for place, folders, files in os.walk(folder):
        found += [Path(place) / name for name in (*folders, *files) if name.endswith((PARTIAL, ASIDE))]
        folders[:] = [name for name in folders if not name.endswith((PARTIAL, ASIDE))]
    return found


def whole_files(folder: Path) -> list[Path]:
    """All others."""
    left = unfinished(folder)
    return [path for path in folder.rglob("*") if path.is_file() and not any(map(path.is_relative_to, left))]


def assert_files_are_whole(folder: Path) -> None:
    """Every file that has its name can be read to the end, and every model folder has all its files."""
    for path in whole_files(folder):
        if path.name.startswith(("resume", "epoch-")):
            check_tensors(path)
        elif path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix == ".jsonl":
            assert path.read_bytes().endswith(b"\n"), path
        if path.name == "abalone.json":
            from abalone.inference.folder import load

            load(path.parent)


@dataclass
class Struck:
    """What became of work that was struck again and again."""

    kills: int = 0
    in_a_write: int = 0  # of these left something unfinished
    status: int | None = None  # of the process that ended by itself
    told: str = ""  # by that process


def strike(
    first: Work,
    again: Work,
    folder: Path,
    random: Random,
    *,
    kills: int,
    within: float,
    last: Work | None = None,
    after_kill: Callable[[], None] = lambda: None,
) -> Struck:
    """Start work in a process, kill it, start it `again`, kill it, …, and after so many kills let it end.

    Every other strike waits for a file to be written and falls into that; the rest fall anywhere.

    Args:
        first, again: what the process does, at first and after a kill; something that can be pickled.
        folder: where it writes. After each kill every file in it must be whole or have a temporary name.
        random: when to strike.
        kills: how often; less where the work is done before a strike.
        within: seconds, about as long as it takes undisturbed.
        last: what the process does that is let end; `again` where left out.
        after_kill: further things that must then be so.
    """
    struck = Struck()
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "log"
        while True:
            if struck.kills < kills:
                process = start(again if struck.kills else first, log)
                _wait(process, folder, random, within)
            else:
                process = start(last or again, log)
                process.join(PATIENCE)
                assert process.exitcode is not None, f"it does not end: {log.read_text()}"
            process.kill()
            process.join()
            if process.exitcode != -signal.SIGKILL:  # it was done before the strike
                struck.status, struck.told = process.exitcode, log.read_text(errors="replace")
                return struck
            struck.kills += 1
            struck.in_a_write += bool(unfinished(folder))
            assert_files_are_whole(folder)
            after_kill()


def _wait(process: ForkServerProcess, folder: Path, random: Random, within: float) -> None:
    """Until a random moment, or the end of the process."""
    anywhere = random.random() < 0.5
    process.join(random.uniform(0, within if anywhere else within / 2))
    if not anywhere:
        _stop_in_a_write(process, folder, random)


def _stop_in_a_write(process: ForkServerProcess, folder: Path, random: Random) -> None:
    """Look at random moments whether a file is being written, and stop the process within a write.

    It is stopped while we look, so it does not depend on the machine how much of a write is over by then.
    """
    while process.exitcode is None:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(process.pid, signal.SIGSTOP)
            if unfinished(folder):
                return
            os.kill(process.pid, signal.SIGCONT)
        time.sleep(random.uniform(0, BETWEEN_LOOKS))


def start(work: Work, log: Path) -> ForkServerProcess:
    """Start a process that prints to `log`."""
    context = multiprocessing.get_context("forkserver")
    _preload()
    process = context.Process(target=_do, args=(work, str(log), dict(os.environ)))
    process.start()
    return process


@cache
def _preload() -> None:
    """Start the process that others are forked from, and wait until it is ready."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=int)
    process.start()
    process.join()


def _do(work: Work, log: str, environment: dict[str, str]) -> None:
    """What the process does. Its variables are those of now, not of when the first of them was started."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.update(environment)
    import torch

    torch.set_num_threads(1)
    work()


def abalone(*arguments: object) -> Work:
    """A command as work."""
    return partial(_run, [str(argument) for argument in arguments])


def _run(arguments: list[str]) -> None:
    from abalone.cli import app

    app(arguments)
