"""Devices, and the precision in which they are fast."""

import platform
import time
from functools import cache

import torch

from abalone.errors import InputError, spelled


def choose_device(device: str = "auto") -> torch.device:
    """Return the device by name; "auto" is CUDA where there is any, then Apple's GPU, then the CPU."""
    if device != "auto":
        try:
            chosen = torch.device(device)
        except RuntimeError:
            raise InputError(f"no device is called {device!r}; use auto, cpu, cuda, cuda:1 or mps") from None
        there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        if not there.get(chosen.type, False) or (chosen.index or 0) >= max(torch.cuda.device_count(), 1):
            raise InputError(
                f"device {device!r} was asked for, but torch finds none here; use {spelled('device', 'auto')}"
            )
        return chosen
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def reading_precision(precision: str) -> torch.dtype | None:
    """Return the precision for predictions: half precision if it was asked for by name, else full (None).

    Thresholds are fitted to what the model says, so "auto" does not depend on the machine here.
    """
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)


def cpu_has_bf16() -> bool:
    """Return whether the processor multiplies bf16 numbers itself, or emulates that; true where torch cannot tell."""
    # Neither name is public. On x86 the second is also true of processors that emulate it.
    asked = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    if platform.machine().lower() not in ("x86_64", "amd64"):
        asked = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    try:
        return asked is None or bool(asked())
    except RuntimeError:
        return True


@cache
def cpu_is_faster_in_bf16() -> bool:
    """Return whether bf16 makes products of the size of a small layer's faster: tried once, for some milliseconds."""
    if not torch.cpu._is_avx512_bf16_supported():
        return False  # it would be emulated
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        x, weight = torch.ones(512, 384, dtype=dtype), torch.ones(384, 1536, dtype=dtype)
        tries = []
        for _ in range(5):
            started = time.perf_counter()
            x @ weight
            tries.append(time.perf_counter() - started)
        seconds[dtype] = min(tries)
    return seconds[torch.bfloat16] < 0.9 * seconds[torch.float32]
