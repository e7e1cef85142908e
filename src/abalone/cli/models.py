"""How every command that predicts opens its model: a folder, or an ONNX file made from one."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from abalone.config import Precision
from abalone.files.errors import printable

if TYPE_CHECKING:
    from abalone.inference.predictor import Predictor

DEVICE_HELP = "Where to compute: auto, cpu, cuda, cuda:1, mps."


def open_model(model: Path, device: str, precision: Precision | None = None) -> "Predictor":
    """The model in a file or a folder."""
    return _open_onnx(model, device, precision) if model.is_file() else _open_folder(model, device, precision)


def _open_folder(model: Path, device: str, precision: Precision | None) -> "Predictor":
    """Torch is imported only if the model has an encoder."""
    from abalone.inference.folder import load

    settings = {} if precision is None else {"precision": precision}
    opened = load(model, only_to_answer=True, device=device, **settings)
    if opened.backend is None:
        tell_unused_device(device)
    return opened


def tell_unused_device(device: str) -> None:
    """Say that a model without an encoder is not computed where a person wants it."""
    if device not in ("auto", "cpu"):
        note = f"note: --device {printable(device)} is not used: a model without an encoder runs on the processor."
        typer.echo(note, err=True)


def _open_onnx(model: Path, device: str, precision: Precision | None) -> "Predictor":
    """Nothing here may import torch, even by way of another module."""
    from abalone.inference.onnx_model import OnnxModel

    if device not in ("auto", "cpu"):
        raise ValueError(f"an ONNX file runs on the processor, not on device={device!r}; give the model folder instead")
    if precision is not None:
        raise ValueError("the precision of an ONNX file is fixed when it is exported; give the model folder instead")
    return OnnxModel.load(model)
