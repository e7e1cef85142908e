"""Tensors as they are at one moment, in main memory, while training goes on."""

from collections.abc import Mapping

import torch
from torch import Tensor

PLACE = 64  # bytes; every tensor begins at a multiple of it


class Snapshot:
    """A copy of some tensors in main memory, which a later copy uses again.

    A GPU copies by itself, between the work that it was given before and what comes after: for that the memory is
    pinned, which takes longer than the copy does, and therefore is done once.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, tuple[torch.dtype, torch.Size]] = {}
        self._tensors: dict[str, Tensor] = {}
        self._copied: torch.cuda.Event | None = None

    def take(self, state: Mapping[str, Tensor]) -> None:
        """Copy these tensors as they are now, without waiting for a GPU; the copy before is lost."""
        on_gpu = any(value.is_cuda for value in state.values())
        kinds = {name: (value.dtype, value.shape) for name, value in state.items()}
        if kinds != self._kinds:
            self._tensors = _room(state, pinned=on_gpu)
            self._kinds = kinds
        for name, value in state.items():
            self._tensors[name].copy_(value.detach(), non_blocking=value.is_cuda)
        if on_gpu:
            self._copied = torch.cuda.Event()
            self._copied.record()

    def tensors(self) -> Mapping[str, Tensor]:
        """The copies, once all are there."""
        if self._copied is not None:
            self._copied.synchronize()
            self._copied = None
        return self._tensors


def _room(state: Mapping[str, Tensor], *, pinned: bool) -> dict[str, Tensor]:
    """Places for tensors of these kinds in one piece of memory: torch rounds every piece that is pinned up, to 2ⁿ."""
    places, size = {}, 0
    for name, value in state.items():
        places[name] = slice(size, size + value.numel() * value.element_size())
        size = -(-places[name].stop // PLACE) * PLACE
    try:
        room = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
    except RuntimeError:  # so much cannot be pinned here: copies will be waited for
        room = torch.empty(size, dtype=torch.uint8)
    return {name: room[places[name]].view(value.dtype).view(value.shape) for name, value in state.items()}
