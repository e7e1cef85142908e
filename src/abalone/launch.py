"""What a launcher (torchrun, accelerate, mpirun) has told this process: its number, and of how many. Without torch."""

import os

_VARIABLES = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))


def launched() -> tuple[int, int]:
    """The number of this process, from 0 on, and how many were launched to do one job together."""
    for number, count in _VARIABLES:
        if os.environ.get(count, "1") != "1":
            return int(os.environ.get(number, "0")), int(os.environ[count])
    return 0, 1


def is_main() -> bool:
    """Whether this is the process that writes, prints and shows bars; true where there is only one."""
    return launched()[0] == 0
