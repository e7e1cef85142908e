"""Device, precision and processes of a training run: torch.amp and torch.distributed."""

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from abalone.config import Precision
from abalone.device import choose_device, cpu_is_faster_in_bf16
from abalone.distributed import ALONE, Ranks, join, own_device
from abalone.errors import InputError


@dataclass(frozen=True, eq=False)
class Runtime:
    """The machine that a run trains on.

    Args:
        device: of this process.
        dtype: half precision for autocast; None computes in fp32.
        ranks: the processes that train together.
    """

    device: torch.device
    dtype: torch.dtype | None = None
    ranks: Ranks = ALONE
    # Gradients in fp16 would underflow. One scaler serves all stages, so that each begins with a scale that fits.
    scaler: torch.amp.GradScaler | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.dtype is torch.float16:
            object.__setattr__(self, "scaler", torch.amp.GradScaler(self.device.type))

    @classmethod
    def start(cls, device: str = "auto", precision: Precision = "auto") -> "Runtime":
        """Choose device and precision; where several processes were launched, join this one to the others.

        Args:
            device: "auto", or what torch calls it: "cpu", "cuda", "cuda:1", "mps".
            precision: "auto" is bf16 where the hardware is faster with it, fp32 elsewhere.
        """
        chosen = own_device(choose_device(device))
        if chosen.type == "cuda" and chosen.index is not None:
            torch.cuda.set_device(chosen)  # for kernels of ours and NCCL, which run on the current one
        return cls(chosen, _autocast_dtype(chosen, precision), join(chosen))

    def autocast(self) -> AbstractContextManager[None]:
        """Compute in half precision within this context, if the run does."""
        return nullcontext() if self.dtype is None else torch.autocast(self.device.type, self.dtype)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of the loss, scaled in fp16."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Let the optimiser make its step; in fp16 only where no gradient overflowed, and adapt the scale."""
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.unscale_(optimizer)
            self.scaler.step(optimizer)
            self.scaler.update()

    def free_memory(self) -> None:
        """Give back the memory of a training that has ended, before the next one begins."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        elif self.device.type == "mps":
            torch.mps.empty_cache()


@contextmanager
def random_state_kept(device: str) -> Iterator[None]:
    """Give the calling program its random state back.

    Args:
        device: where the work is done meanwhile, as for `Runtime.start`.
    """
    kind = choose_device(device).type
    # A seed reaches every GPU; but to ask one for its state would start it.
    gpus = torch.cuda.device_count() if kind == "cuda" or torch.cuda.is_initialized() else 0
    with ExitStack() as put_back, torch.random.fork_rng(range(gpus)):
        if kind == "mps":
            put_back.callback(torch.mps.set_rng_state, torch.mps.get_rng_state())
        yield


def _autocast_dtype(device: torch.device, precision: Precision) -> torch.dtype | None:
    if precision == "auto":
        if device.type == "cuda":
            half = torch.cuda.is_bf16_supported(including_emulation=False)
        else:
            half = device.type == "cpu" and cpu_is_faster_in_bf16()
        return torch.bfloat16 if half else None
    if precision == "bf16":
        if not {"cuda": torch.cuda.is_bf16_supported, "mps": _mps_has_bf16}.get(device.type, lambda: True)():
            raise InputError(f"this {device.type} device cannot compute in bf16: use precision fp32")
        return torch.bfloat16
    # A CPU is no faster in fp16, and not every product is there: it trains in fp32, and only reads in fp16.
    return torch.float16 if precision == "fp16" and device.type != "cpu" else None


def _mps_has_bf16() -> bool:
    return torch.backends.mps.is_macos_or_newer(14, 0)
