"""Measurement of time and memory, and the table of results."""

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def best_seconds(*runs: Callable[[], object], repeat: int = 7) -> list[float]:
    """Return the shortest time of each of `runs`, taken in turns so that a busy moment of the machine affects all."""
    best = [float("inf")] * len(runs)
    for _ in range(repeat + 1):  # the first round warms up and is hardly ever the best
        for which, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[which] = min(best[which], time.perf_counter() - start)
    return best


def extra_memory(run: Callable[[], object]) -> int:
    """Return the bytes by which the peak of resident memory during `run` exceeds the memory before (Linux)."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def in_new_process(script: str, *arguments: object, **environment: str) -> Any:
    """Return the JSON that `script` prints in a new process, where nothing is warm and the memory peak is its own."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def resident_memory(process: int) -> int:
    """Return the resident bytes of a process (Linux)."""
    return _status("VmRSS", str(process))


def _status(field: str, process: str = "self") -> int:
    line = next(line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


@dataclass(frozen=True)
class Line:
    """One measurement: ours, the plain implementation, and the ratio we promise, if any."""

    what: str
    plain: str
    ours: str
    ratio: str
    promised: str = ""


def show(title: str, lines: list[Line]) -> None:
    """Print the table of one part."""
    table = Table(title=title, title_justify="left")
    for column in ("what", "plain", "ours", "ratio", "promised"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for line in lines:
        table.add_row(line.what, line.plain, line.ours, line.ratio, line.promised)
    Console(width=120).print(table)
