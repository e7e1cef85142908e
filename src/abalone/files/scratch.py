"""Arrays that may be larger than memory, and are gone with the process."""

import os
import tempfile

import numpy as np

IN_MEMORY = 2**30  # bytes; what is larger lies in a file


def scratch_array(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """An array of zeros in a temporary file without a name, mapped into memory: the system writes out what it must.

    The file is where `TMPDIR` says.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    with tempfile.TemporaryFile() as file:  # the mapping keeps it until the array is gone
        if hasattr(os, "posix_fallocate"):  # a full disk is an error now, and not a crash in the middle
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
        return np.memmap(file, dtype, "w+", shape=shape)


def array_of(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """An array to be filled: in memory, or a scratch array where it is large."""
    if int(np.prod(shape)) * np.dtype(dtype).itemsize <= IN_MEMORY:
        return np.empty(shape, dtype)
    return scratch_array(shape, dtype)
