"""An ONNX network in onnxruntime, and whether this processor multiplies 8-bit numbers exactly."""

import mmap
from base64 import b64decode
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from abalone.errors import install_hint

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

# onnxruntime's name for: unsigned by unsigned 8-bit products where signed ones would be cut off. Slower, and exact.
EXACT_PRODUCTS = "session.x64quantprecision"
# A model with one `MatMulInteger`: "a" [1, 2] in, times (127, 127), "c" [1, 1] out. The package `onnx`, which would
# make it, is not there where files are only run.
PROBE = b64decode(
    "CAU6VgoYCgFhCgFiEgFjIg1NYXRNdWxJbnRlZ2VyEgFwKg0IAggBEANCAWJKAn9/"
    "WhMKAWESDgoMCAISCAoCCAEKAggCYhMKAWMSDgoMCAYSCAoCCAEKAggBQgQKABAK"
)


def open_session(source: str | Path | bytes, name: str, threads: int = 0, *, exact: bool = False) -> "InferenceSession":
    """Open a file, or its content.

    Args:
        source: the file.
        name: what messages call it.
        threads: to compute with; 0 is one for each core.
        exact: whether 8-bit products are exact on a processor that would cut them off, at the cost of speed.
    """
    try:
        import onnxruntime
    except ImportError:
        raise ImportError(f"running an ONNX file needs onnxruntime: {install_hint('onnx')}") from None
    onnxruntime.disable_telemetry_events()  # some of its builds report what they run to their maker
    if not isinstance(source, bytes):
        with Path(source).open("rb"):  # a missing file or right is told as such
            pass
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors; the rest is about graph nodes
    options.add_session_config_entry(EXACT_PRODUCTS, str(int(exact)))
    content = source if isinstance(source, bytes) else str(source)
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own classes, which have no common ancestor but this
        raise ValueError(f"{name} is not an ONNX model: {str(error).splitlines()[0]}") from None


def has_8_bit_products(source: str | Path | bytes) -> bool:
    """Tell by the names of its operators, which come before the weights."""
    if isinstance(source, bytes):
        return b"MatMulInteger" in source
    with Path(source).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"MatMulInteger") >= 0


@cache
def processor_saturates() -> bool:
    """Tell whether 8-bit products are cut off here, by a product: 255 · 127 + 255 · 127 needs 17 bits."""
    computed = open_session(PROBE, "the probe", 1).run(["c"], {"a": np.full((1, 2), 255, np.uint8)})[0]
    return int(computed.item()) != 2 * 255 * 127
