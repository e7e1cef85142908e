"""Environment variables of a launcher (torchrun, accelerate, mpirun): rank and world size, without importing torch."""

import os
from typing import NamedTuple


class _Launcher(NamedTuple):
    rank: str
    world_size: str
    local_rank: str
    local_world_size: str


_LAUNCHERS = (
    _Launcher("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),  # torchrun, accelerate
    _Launcher(*(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))),  # Open MPI
    _Launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),  # MPICH, Intel MPI
)


def _launcher() -> _Launcher | None:
    return next((names for names in _LAUNCHERS if os.environ.get(names.world_size, "1") != "1"), None)


def launched() -> tuple[int, int]:
    """Return the rank of this process and the world size; 0 and 1 where nothing was launched together."""
    names = _launcher()
    return (0, 1) if names is None else (int(os.environ.get(names.rank, "0")), int(os.environ[names.world_size]))


def launched_here() -> tuple[int | None, int]:
    """Return the rank among the processes of this machine, None if the launcher does not tell it, and their number."""
    names = _launcher()
    if names is None:
        return 0, 1
    rank = os.environ.get(names.local_rank)
    return None if rank is None else int(rank), int(os.environ.get(names.local_world_size, launched()[1]))


def is_main() -> bool:
    """Return whether this is rank 0, which writes, prints and shows progress bars; true for a single process."""
    return launched()[0] == 0
