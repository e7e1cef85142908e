"""Device, precision and processes, through Accelerate, and launched by it or by `torchrun`."""

import atexit
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState

from abalone.config import Precision
from abalone.device import choose_device, cpu_is_faster_in_bf16
from abalone.errors import install_hint
from abalone.launch import launched
from abalone.ranks import ALONE, Ranks, leave

_ACCELERATE_NAMES = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}


@contextmanager
def left_as_found(device: str) -> Iterator[None]:
    """Give the program that calls us its random numbers back, and its own `Accelerator` what all of them share.

    Args:
        device: where the work is done meanwhile, as for `make_accelerator`.
    """
    kind = choose_device(device).type
    # A seed reaches every GPU; but to ask one for its state would start it.
    gpus = torch.cuda.device_count() if kind == "cuda" or torch.cuda.is_initialized() else 0
    with ExitStack() as put_back, torch.random.fork_rng(range(gpus)):
        if kind == "mps":
            put_back.callback(torch.mps.set_rng_state, torch.mps.get_rng_state())
        for state in (PartialState, AcceleratorState, GradientState):
            put_back.callback(state._shared_state.update, dict(state._shared_state))
            put_back.callback(state._shared_state.clear)  # which comes first, as the last is called first
        yield


def make_accelerator(
    device: str = "auto", precision: Precision = "auto", tracker_folder: str | None = None
) -> Accelerator:
    """An `Accelerator` for one run. Where several processes were launched, it joins this one to the others.

    Args:
        device: "auto", or what torch calls it: "cpu", "cuda", "cuda:1", "mps".
        precision: "auto" is bf16 where the hardware is faster with it, fp32 elsewhere.
        tracker_folder: where TensorBoard files go; none are written where left out.
    """
    chosen = _own_device(choose_device(device))
    if tracker_folder is not None and find_spec("tensorboard") is None:
        raise ImportError(f"tensorboard= needs the package tensorboard: {install_hint('tensorboard')}")
    # Accelerate keeps device and precision for the life of the process; a library is called more than once.
    if PartialState._shared_state:
        AcceleratorState._reset_state(reset_partial_state=True)
    if chosen.type == "cuda" and chosen.index is not None:
        torch.cuda.set_device(chosen)  # for kernels of ours and NCCL, which run on the current one
    before = os.environ.get("ACCELERATE_TORCH_DEVICE")
    os.environ["ACCELERATE_TORCH_DEVICE"] = str(chosen)
    try:
        accelerator = Accelerator(
            cpu=chosen.type == "cpu",
            mixed_precision=_ACCELERATE_NAMES[_choose_precision(chosen, precision)],
            log_with="tensorboard" if tracker_folder else None,
            project_dir=tracker_folder,
        )
    finally:
        del os.environ["ACCELERATE_TORCH_DEVICE"]
        if before is not None:
            os.environ["ACCELERATE_TORCH_DEVICE"] = before
    joined = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    if accelerator.num_processes != max(joined, launched()[1]):  # each would train a model of its own in one folder
        raise ValueError(
            f"several processes were launched that cannot work together on {chosen.type}: "
            "launch them with torchrun or accelerate, or use device='cpu'"
        )
    if tracker_folder is not None:
        accelerator.init_trackers("abalone")
    return accelerator


def join_ranks(accelerator: Accelerator) -> Ranks:
    """The processes that were launched together, of which this is one."""
    if accelerator.num_processes == 1:
        return ALONE
    atexit.unregister(leave)  # of an earlier run in this process
    atexit.register(leave)
    return Ranks(accelerator.process_index, accelerator.num_processes, accelerator.is_local_main_process)


def launched_ranks(device: str = "auto") -> Ranks:
    """The same for a program that trains nothing."""
    return ALONE if launched()[1] == 1 else join_ranks(make_accelerator(device, "fp32"))


def _own_device(chosen: torch.device) -> torch.device:
    """With several processes on a machine, each has a GPU of its own."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", launched()[1]))
    if chosen.type != "cuda" or launched()[1] == 1:
        return chosen
    if chosen.index is not None and processes > 1:
        raise ValueError(f"device {str(chosen)!r} is one GPU, and there are {processes} processes: use device='cuda'")
    gpus = torch.cuda.device_count()
    if processes > gpus:
        raise ValueError(
            f"{processes} processes were launched here for {gpus} GPU{'s' * (gpus != 1)}: launch one for each, "
            "or use device='cpu'"
        )
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def _choose_precision(device: torch.device, precision: Precision) -> Precision:
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if device.type == "cpu" and cpu_is_faster_in_bf16() else "fp32"
