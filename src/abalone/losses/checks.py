"""Checks of the losses' inputs; errors name the argument and the offending shape or value."""

import math

import torch
from torch import Tensor


class NotFiniteError(ValueError):
    """An input holds NaN or infinity: in training, the sign that it has diverged."""


def values_can_be_read(tensor: Tensor) -> bool:
    """Return whether values may be read: not while a CUDA graph is captured or code is compiled.

    Reading a value waits for the device, which a captured step must never do. Shapes are always checked.
    """
    capturing = tensor.is_cuda and torch.cuda.is_current_stream_capturing()
    return not capturing and not torch.compiler.is_compiling()


def check_temperature(temperature: float) -> float:
    """Raise unless the temperature is finite and above zero."""
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature must be a finite number above 0, got {temperature}")
    return float(temperature)


def check_at_least_zero(name: str, value: float) -> float:
    """Raise unless the number is finite and at least zero."""
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a finite number of at least 0, got {value}")
    return float(value)


def check_matrix(name: str, tensor: Tensor, *, dims: str = "[rows, dim]") -> None:
    """Raise unless it is floating point, with as many dimensions as `dims` names, and not empty."""
    wanted = dims.count(",") + 1
    if tensor.dim() != wanted:
        raise ValueError(f"{name} must be {dims}, got shape {tuple(tensor.shape)}")
    if not tensor.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {tensor.dtype}")
    if 0 in tensor.shape:
        raise ValueError(f"{name} must not be empty, got shape {tuple(tensor.shape)}")


def check_same_rows(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Raise unless there is one row of `tensor` for each row of `other`."""
    if tensor.shape[0] != other.shape[0]:
        raise ValueError(
            f"{name} and {other_name} must have the same number of rows, "
            f"got shapes {tuple(tensor.shape)} and {tuple(other.shape)}"
        )


def check_columns(name: str, tensor: Tensor, columns: int, meaning: str) -> None:
    """Raise unless `tensor` has as many columns as the matrix that it is compared with."""
    if tensor.dim() != 2 or tensor.shape[1] != columns:
        raise ValueError(f"{name} must be [rows, {columns}] to match {meaning}, got shape {tuple(tensor.shape)}")


def check_finite(name: str, tensor: Tensor, *, of: Tensor | None = None) -> None:
    """Raise `NotFiniteError` for NaN and infinity; the message describes `of` where `tensor` is derived from it."""
    if values_can_be_read(tensor) and not bool(torch.isfinite(tensor).all()):
        row = int((~torch.isfinite(tensor)).nonzero()[0, 0])
        shape = tuple((tensor if of is None else of).shape)
        raise NotFiniteError(f"{name} holds NaN or infinite values, first in row {row} of shape {shape}")
