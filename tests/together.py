"""Several processes that were launched together, as `torchrun` would launch them, for tests."""

import os
import socket
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing as multiprocessing


def environment(index: int, count: int, port: int) -> dict[str, str]:
    """What a launcher tells process `index`."""
    words = {"RANK": index, "LOCAL_RANK": index, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_PORT": port}
    return {"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in words.items()}}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_together(count: int, work: Callable[..., None], *arguments: Any) -> None:
    """Call `work(index, *arguments)` in `count` new processes; an error in one of them is raised here."""
    multiprocessing.start_processes(
        _launched, (count, free_port(), work, arguments), nprocs=count, start_method="spawn"
    )


def _launched(index: int, count: int, port: int, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ.update(environment(index, count, port))
    torch.set_num_threads(1)
    warnings.simplefilter("error")  # as in the tests' own process
    work(index, *arguments)
