"""Device and precision, through Accelerate, which also owns processes where there are several."""

import os
from importlib.util import find_spec

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState

from abalone.config import Precision
from abalone.device import choose_device, cpu_is_faster_in_bf16

_ACCELERATE_NAMES = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}


def make_accelerator(
    device: str = "auto", precision: Precision = "auto", tracker_folder: str | None = None
) -> Accelerator:
    """An `Accelerator` for one run.

    Args:
        device: "auto", or what torch calls it: "cpu", "cuda", "cuda:1", "mps".
        precision: "auto" is bf16 where the hardware is faster with it, fp32 elsewhere.
        tracker_folder: where TensorBoard files go; none are written where left out.
    """
    chosen = choose_device(device)
    if tracker_folder is not None and find_spec("tensorboard") is None:
        raise ImportError("tensorboard= needs the package tensorboard: pip install 'abalone-mltc[tensorboard]'")
    # Accelerate keeps device and precision for the life of the process; a library is called more than once.
    if PartialState._shared_state and PartialState().num_processes == 1:
        AcceleratorState._reset_state(reset_partial_state=True)
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
    if accelerator.num_processes > 1:
        raise ValueError(f"training runs in one process for now, and was launched in {accelerator.num_processes}")
    if chosen.type == "cuda" and chosen.index is not None:
        torch.cuda.set_device(chosen)  # for kernels of ours, which run on the current one
    if tracker_folder is not None:
        accelerator.init_trackers("abalone")
    return accelerator


def _choose_precision(device: torch.device, precision: Precision) -> Precision:
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if device.type == "cpu" and cpu_is_faster_in_bf16() else "fp32"
