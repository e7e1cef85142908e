"""Checkpoints of a stage: safetensors files with a checksum, whole or absent, and never a pickle."""

import json
import os
import warnings
import zlib
from collections.abc import Collection, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from abalone.errors import InputError, spelled
from abalone.files.atomic import PARTIAL, written_whole

RESUME = "resume.safetensors"  # all that is needed to go on
BEFORE = "resume-before.safetensors"  # the same of the time before, should that one be damaged
EPOCH = "epoch-{}.safetensors"  # what a finished model is made from, after so many epochs
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
PLACE = 64  # bytes; every tensor begins at a multiple of it


class DamagedError(InputError):
    """A checkpoint is damaged."""

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
    """Return the header of a safetensors file: its own length, then names, types and places of the tensors."""
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
    """Read tensors and metadata that `save_tensors` wrote; a damaged file is refused by name."""
    notes = check_tensors(path)
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, notes  # noqa: SIM118 - not a dict
    except SafetensorError as error:
        raise DamagedError(path, error) from None


def check_tensors(path: Path) -> dict[str, Any]:
    """Return the metadata of a file after checking its checksum."""
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
    """Return all that the next step depends on: weights, optimiser moments, random states."""
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
    """Restore a `training_state`, so that the next step is the one that would have come."""
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


def has_checkpoint(folder: Path) -> bool:
    """Return whether a stage has been saved in `folder`."""
    return any((folder / name).exists() for name in (RESUME, BEFORE))


def holds_something_else(folder: Path) -> bool:
    """Return whether something else than checkpoints of a stage is at that name, or among them."""
    if not folder.is_dir():
        return folder.exists()
    ours = (RESUME, BEFORE, EPOCH.format("*"), f".*{PARTIAL}")
    return not all(any(fnmatch(path.name, name) for name in ours) for path in folder.iterdir())


class Checkpoints:
    """Writes and reads the checkpoints in a folder.

    A checkpoint names the epochs whose weights it needs. An epoch's file is written before the first checkpoint that
    names it, and removed when neither of the two that are kept does: whichever of them a run goes on from, it finds
    the epochs it knew of, and no others.

    Weights wait in main memory until then. An epoch may take seconds, and the best of 80 epochs is often the latest:
    writing each would cost more than it. What a crash loses is made again, since the run then goes on from before.

    Reading changes nothing on the disk, so that several processes may read at once; one of them writes.

    Args:
        folder: where they are.
        beside: write in a thread, from a copy in main memory, while training goes on: for training on a GPU, which
            would stand still for seconds. The copy takes the file's size, rounded up to 2ⁿ. On a CPU neither it nor
            the thread would be free: there the file is written from the tensors themselves, in the time it takes.
    """

    def __init__(self, folder: Path, *, beside: bool = False) -> None:
        self.folder = folder
        self._writer = futures.ThreadPoolExecutor(1, "checkpoint") if beside else None
        self._writing: futures.Future[None] | None = None
        self._state = Snapshot()  # what is being written beside training
        self._waiting: dict[int, Snapshot] = {}
        self._leaving: dict[int, Snapshot] = {}  # epochs that are being written, or could not be
        self._free: list[Snapshot] = []  # whose memory the next epochs use again
        self._latest_epochs: set[int] = set()  # that the checkpoint we stand on needs
        self._latest_is_damaged = False

    def keep(self, epoch: int, state: Mapping[str, Tensor], wanted: Collection[int]) -> None:
        """Keep a copy of these tensors as they are now; of the epochs that wait, forget those not `wanted` any more."""
        if self._writing is not None and self._writing.done():
            self.wait()
        self._free += [self._waiting.pop(waiting) for waiting in self._waiting.keys() - set(wanted)]
        snapshot = self._free.pop() if self._free else Snapshot()
        snapshot.take(state)
        self._waiting[epoch] = snapshot

    def write(self, state: Mapping[str, Tensor], notes: Mapping[str, Any], epochs: Collection[int]) -> None:
        """Write where the run stands, with the epochs that it needs; what is there now becomes the one before.

        Beside training it returns when the state is copied; whether it could be written `wait` tells, or the next call.
        """
        self.wait()
        waiting = self._leaving | self._waiting
        self._leaving = {epoch: waiting.pop(epoch) for epoch in sorted(waiting.keys() & set(epochs))}
        self._waiting = {}
        self._free += waiting.values()
        # Copies are waited for here: the thread must ask nothing of a GPU on which this one may be recording.
        kept = {epoch: snapshot.tensors() for epoch, snapshot in self._leaving.items()}
        notes = {**notes, "epochs": sorted(epochs)}
        if self._writer is None:
            self._write(state, notes, kept)
            self._set_free()
        else:
            self._state.take(state)
            self._writing = self._writer.submit(self._write, self._state.tensors(), notes, kept)

    def wait(self) -> None:
        """Go on when nothing is being written any more; an error if it could not be."""
        if self._writing is not None:
            futures.wait([self._writing])  # if this is interrupted, it can be waited for again
            done, self._writing = self._writing, None
            done.result()
            self._set_free()

    @contextmanager
    def completed_at_the_end(self) -> Iterator[None]:
        """Wait at the end of the block, however it ends, until nothing is being written."""
        try:
            yield
        except BaseException:
            with suppress(Exception):  # there is an error already
                self.wait()
            raise
        self.wait()

    def _write(
        self, state: Mapping[str, Tensor], notes: Mapping[str, Any], kept: Mapping[int, Mapping[str, Tensor]]
    ) -> None:
        try:
            for epoch, weights in kept.items():
                save_tensors(self._file_of(epoch), weights, {"epoch": epoch})
            save_tensors(
                self.folder / RESUME,
                state,
                notes,
                keep_as=None if self._latest_is_damaged else self.folder / BEFORE,
            )
        except OSError as error:
            left = "the last good one stays" if has_checkpoint(self.folder) else "nothing was saved before"
            reason = f"no checkpoint could be written ({error.strerror or error}); {left}. Make room, and go on with "
            raise OSError(error.errno, reason + f"{spelled('resume', True)}.", error.filename) from error
        self._latest_is_damaged = False
        needed = {EPOCH.format(epoch) for epoch in self._latest_epochs | set(notes["epochs"])}
        self._latest_epochs = set(notes["epochs"])
        for file in self.folder.glob(EPOCH.format("*")):
            if file.name not in needed:
                file.unlink(missing_ok=True)

    def _set_free(self) -> None:
        self._free += self._leaving.values()
        self._leaving = {}

    def read(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Read the latest checkpoint that is whole, with all epochs it needs; warn of one that is damaged."""
        self.wait()
        wrong: list[DamagedError] = []
        for name in (RESUME, BEFORE):
            if not (self.folder / name).exists():
                continue  # killed in the moment between the two names: the other one is whole
            try:
                tensors, notes = load_tensors(self.folder / name)
                if "epochs" not in notes:
                    raise DamagedError(self.folder / name, "it is something else")
                for epoch in notes["epochs"]:
                    self._check(epoch)
            except DamagedError as error:
                wrong.append(error)
                continue
            if wrong:
                warnings.warn(f"{wrong[0]}; going on from the one before it, {self.folder / name}", stacklevel=4)
            self._latest_epochs, self._latest_is_damaged = set(notes["epochs"]), bool(wrong)
            return tensors, notes
        reasons = ", and ".join(map(str, wrong)) or f"there is no checkpoint in {self.folder}"
        raise InputError(f"{reasons}; remove the folder {self.folder} to do this stage again")

    def epoch(self, epoch: int) -> dict[str, Tensor]:
        """Return the weights after so many epochs, which the latest checkpoint needs."""
        self.wait()
        return load_tensors(self._file_of(epoch))[0]

    def _check(self, epoch: int) -> None:
        if not self._file_of(epoch).exists():
            raise DamagedError(self._file_of(epoch), "it is gone")
        check_tensors(self._file_of(epoch))

    def _file_of(self, epoch: int) -> Path:
        return self.folder / EPOCH.format(epoch)


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
        """Return the copies, once all are there."""
        if self._copied is not None:
            self._copied.synchronize()
            self._copied = None
        return self._tensors


def _room(state: Mapping[str, Tensor], *, pinned: bool) -> dict[str, Tensor]:
    """Allocate the tensors in one piece of memory: torch rounds every piece that is pinned up, to 2ⁿ."""
    places, size = {}, 0
    for name, value in state.items():
        places[name] = slice(size, size + value.numel() * value.element_size())
        size = -(-places[name].stop // PLACE) * PLACE
    try:
        room = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
    except RuntimeError:  # so much cannot be pinned here: copies will be waited for
        room = torch.empty(size, dtype=torch.uint8)
    return {name: room[places[name]].view(value.dtype).view(value.shape) for name, value in state.items()}
