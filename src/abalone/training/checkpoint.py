"""Training state as one safetensors file: written whole or not at all, with a checksum, and never a pickle."""

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from abalone.files.atomic import written_whole

# Any byte that flips, and any cut, changes it; at 4 GB/s it costs little beside the disk.
NO_CHECKSUM = f"{0:08x}"
BLOCK = 2**24  # bytes that are read at a time
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class DamagedError(ValueError):
    """A file is not what was written."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"the checkpoint {path} is damaged ({reason})")


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any], *, keep_as: Path | None = None
) -> None:
    """Write tensors and JSON-safe notes to `path`; a crash or a full disk leaves what was there before.

    Args:
        path: the file.
        tensors: on any device; one at a time is copied to main memory.
        notes: whatever JSON can hold.
        keep_as: the name that what was at `path` before gets, once the new file is complete.
    """
    # The widest first, so that every one starts at a multiple of its own width.
    ordered = dict(sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])))
    header = _header(ordered, notes, NO_CHECKSUM)
    with written_whole(path, keep_as=keep_as) as file:
        file.write(header)
        checksum = zlib.crc32(header)
        for tensor in ordered.values():
            content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
            file.write(content)
            checksum = zlib.crc32(content, checksum)
        file.seek(0)
        file.write(_header(ordered, notes, f"{checksum:08x}"))


def _header(tensors: Mapping[str, Tensor], notes: Mapping[str, Any], checksum: str) -> bytes:
    """What a safetensors file begins with: its own length, and what lies where behind it."""
    entries: dict[str, Any] = {"__metadata__": {"checksum": checksum, "notes": json.dumps(notes)}}
    start = 0
    for name, tensor in tensors.items():
        stop = start + tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, stop]}
        start = stop
    header = json.dumps(entries).encode()
    padded = -(-len(header) // 8) * 8
    return padded.to_bytes(8, "little") + header.ljust(padded)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_tensors` wrote; a damaged file is refused by name."""
    notes = check_tensors(path)
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, notes  # noqa: SIM118 - not a dict
    except SafetensorError as error:
        raise DamagedError(path, error) from None


def check_tensors(path: Path) -> dict[str, Any]:
    """The notes of a file, if all of it is as it was written."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if len(start) < 8 or length > os.fstat(file.fileno()).st_size:
                raise DamagedError(path, "it is truncated, or not a checkpoint")
            header = file.read(length)
            metadata = json.loads(header)["__metadata__"]
            stored, notes = metadata["checksum"], json.loads(metadata["notes"])
            # As it was before the checksum was known.
            blank = header.replace(_named(stored), _named(NO_CHECKSUM), 1)
            checksum = zlib.crc32(blank, zlib.crc32(start))
            while block := file.read(BLOCK):
                checksum = zlib.crc32(block, checksum)
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, DamagedError):
            raise
        raise DamagedError(path, "its header is not readable") from None
    if stored != f"{checksum:08x}":
        raise DamagedError(path, "its checksum does not match")
    if not isinstance(notes, dict):
        raise DamagedError(path, "it is something else")
    return notes


def _named(checksum: str) -> bytes:
    return json.dumps({"checksum": checksum})[1:-1].encode()


def training_state(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Everything the next step depends on: weights, optimiser moments, random states."""
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    for parameter, moments in optimiser.state.items():
        for key, value in moments.items():
            state[f"optimiser.{key}.{names[parameter]}"] = torch.as_tensor(value)
    state["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        state["random.cuda"] = torch.cuda.get_rng_state()
    return state


def restore_training_state(model: nn.Module, optimiser: torch.optim.Optimizer, state: Mapping[str, Tensor]) -> None:
    """Put `training_state` back in place, so that the next step is the one that would have come."""
    model.load_state_dict({name.removeprefix("model."): v for name, v in state.items() if name.startswith("model.")})
    parameters = dict(model.named_parameters())
    for name, value in state.items():
        if name.startswith("optimiser."):
            _, key, parameter_name = name.split(".", 2)
            parameter = parameters[parameter_name]
            # AdamW keeps its step count on the CPU unless it is fused; both take it from there.
            value = value if key == "step" and not parameter.is_cuda else value.to(parameter.device)
            optimiser.state[parameter][key] = value
    torch.set_rng_state(state["random.cpu"])
    if torch.cuda.is_available() and "random.cuda" in state:
        torch.cuda.set_rng_state(state["random.cuda"])
