"""Share the work of a benchmark among processes that write their results into one folder."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from abalone.files.atomic import lock


@contextmanager
def claimed(target: Path) -> Iterator[bool]:
    """Yield whether this process should make a file: it is missing, and no other process is making it.

    A claim ends with its process, also when that is killed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as file:
        try:
            lock(file.fileno())
        except BlockingIOError:
            yield False
            return
        yield not target.exists()


def run_side_by_side(jobs: int, module: str, arguments: Sequence[str]) -> None:
    """Run the same command in several processes, under NVIDIA's MPS where it is installed, and wait for all.

    Without MPS, processes on one GPU take turns.
    """
    with _mps() as environment:
        command = [sys.executable, "-m", module, *arguments]
        running = [subprocess.Popen(command, env=environment) for _ in range(jobs)]
        failed = [process.args for process in running if process.wait() != 0]
    if failed:
        raise SystemExit(f"{len(failed)} of {jobs} processes failed; start the command again to do what is missing")


@contextmanager
def _mps() -> Iterator[dict[str, str]]:
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield dict(os.environ)
        return
    with TemporaryDirectory() as folder:
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        subprocess.run([control, "-d"], env=environment, check=True)
        try:
            yield environment
        finally:
            subprocess.run([control], input=b"quit\n", env=environment, check=False)
