"""The files of an encoder's folder, before a library builds anything of what they say."""

import json
from math import prod
from pathlib import Path

from safetensors import SafetensorError, safe_open

SLACK = 10  # times as many layers as tensors are still built, for architectures whose layers share all weights


def require_readable(folder: Path) -> None:
    """Raise `PermissionError` for a file that may not be read; safetensors would say that it is not there."""
    for pattern in ("*.json", "*.safetensors"):
        for file in folder.glob(pattern):
            if file.is_file():
                file.open("rb").close()


def refuse_beyond_weights(folder: Path) -> None:
    """Raise where the configuration speaks of far more than the weights hold.

    `transformers` builds what the configuration says, and looks at the weights afterwards: a million layers, of which
    the file has six, take minutes. What is off by less is built quickly, and refused then, since weights are missing.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        shapes = [shape for file in folder.glob("model*.safetensors") for shape in _shapes(file)]
    except (OSError, ValueError, RecursionError, SafetensorError):
        return  # which `transformers` tells
    if not shapes or not isinstance(config, dict):
        return
    tensors, numbers = len(shapes), sum(map(prod, shapes))
    most = {"layer": SLACK * tensors, "size": numbers, "embeddings": numbers}
    for name, value in config.items():
        if isinstance(value, int | float) and any(kind in name and value > limit for kind, limit in most.items()):
            raise ValueError(
                f"config.json has {name} {value:,}, and the weights are {tensors:,} tensors, {numbers:,} numbers in all"
            )


def _shapes(file: Path) -> list[list[int]]:
    with safe_open(file, framework="pt") as tensors:
        return [tensors.get_slice(name).get_shape() for name in tensors.keys()]  # noqa: SIM118 - not a dict
