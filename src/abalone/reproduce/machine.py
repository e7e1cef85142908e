"""On what a result was made: machine and versions."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from abalone import __version__
from abalone.device import choose_device

PACKAGES = ("torch", "transformers", "scikit-learn", "numpy")


def machine(device: str) -> dict[str, object]:
    """The processor, and the GPU if `device` is one."""
    chosen = choose_device(device)
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else None,
        "device": str(chosen),
    }


def versions() -> dict[str, str]:
    """Of this library, Python, and what the figures depend on."""
    found = {"abalone": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
