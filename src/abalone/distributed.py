"""Processes that train one model together: joining their process group, and the collectives.

All walk through the same program over the same documents, and hold the same weights, queue and prototypes. A process
encodes its share of each batch alone; the embeddings are gathered, so that everything behind the encoder, the loss
above all, sees the whole batch on every rank.
"""

import atexit
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from abalone.device import choose_device
from abalone.errors import InputError, spelled
from abalone.launch import launched, launched_here

T = TypeVar("T")

BUCKET = 2**24  # numbers that travel together: large enough for the network, small enough beside the gradients
PATIENCE = timedelta(hours=2)  # for the main process to do alone what the others wait for, such as tokenizing
PORT = 29500  # where processes of one machine meet if the launcher names no port, as torchrun and accelerate do


class RankLostError(ConnectionError):
    """Another process of the run has ended, or cannot be reached."""


@dataclass(frozen=True)
class Ranks:
    """The processes of a run. With one process, as by default, no method communicates.

    Args:
        index: the rank of this process; 0 is the main process, which writes and prints.
        count: the world size.
        first_here: whether this is the first process on its machine.
    """

    index: int = 0
    count: int = 1
    first_here: bool = True

    @property
    def main(self) -> bool:
        """Return whether this is the process that writes and prints."""
        return self.index == 0

    def share(self, documents: int, index: int | None = None) -> slice:
        """Return the part of a batch that is this rank's, or another's: the first ones take what does not divide."""
        index = self.index if index is None else index
        least, more = divmod(documents, self.count)
        start = index * least + min(index, more)
        return slice(start, start + least + (index < more))

    def gather(self, rows: Tensor, documents: int) -> Tensor:
        """All-gather the rows that the ranks have computed of their shares, in order: [share, …] → [documents, …].

        Gradients flow back to the process that a row came from. What stands behind this has then the same gradient
        on all processes, and what stands before it has only its own rows' part. The part is multiplied by the number
        of processes, so that `average_gradients` is right for both.

        Args:
            rows: of this process's share; more rows than that, which stand in for an empty one, are left out.
            documents: in the whole batch.
        """
        if self.count == 1:
            return rows
        own = self.share(documents)
        gathered: Tensor = _Gathered.apply(rows[: own.stop - own.start], self, documents)  # type: ignore[no-untyped-call]
        return gathered

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Give every parameter the mean of its gradients on all ranks: the gradient of the whole batch's loss."""
        if self.count == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for bucket in _buckets(gradients):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            with _noticing_loss(self):
                dist.all_reduce(flat)
            parts = flat.div_(self.count).split([gradient.numel() for gradient in bucket])
            torch._foreach_copy_(bucket, [part.view_as(g) for part, g in zip(parts, bucket, strict=True)])

    @contextmanager
    def own_random_numbers(self, *place: int) -> Iterator[None]:
        """Draw other random numbers on every rank, those of dropout, and the same ones again at the same place.

        No random state of it has to be saved, and the numbers drawn elsewhere stay the same on all ranks.
        """
        if self.count == 1:
            yield
            return
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(int(np.random.SeedSequence([*place, self.index]).generate_state(1)[0]))
            yield

    def broadcast_module(self, module: torch.nn.Module) -> None:
        """Broadcast the parameters and buffers of rank 0."""
        if self.count > 1:
            with torch.no_grad(), _noticing_loss(self):
                for tensor in (*module.parameters(), *module.buffers()):
                    dist.broadcast(_bytes(tensor) if tensor.dtype is torch.bool else tensor, 0)

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return for each flag whether some rank has set it."""
        if self.count == 1:
            return flags
        votes = torch.tensor(flags, dtype=torch.int32)
        with _noticing_loss(self):
            dist.all_reduce(votes, dist.ReduceOp.MAX, group=_messages())
        return tuple(bool(vote) for vote in votes.tolist())

    def all_reduce(self, values: np.ndarray) -> None:
        """Sum an array over all ranks, in place."""
        if self.count > 1:
            with _noticing_loss(self):
                dist.all_reduce(torch.from_numpy(values), group=_messages())

    def from_main(self, work: Callable[[], T]) -> T:
        """Do `work` on rank 0 only and broadcast its result, a value that JSON can hold."""
        if self.count == 1:
            return work()
        if not self.main:
            told = json.loads(self._broadcast(None).numpy().tobytes())
            if "failed" in told:
                raise RankLostError(f"the main process has stopped: {told['failed']}")
            value: T = told["value"]
            return value
        try:
            value = work()
        except BaseException as error:
            self._broadcast(_encoded({"failed": str(error)}))
            raise
        self._broadcast(_encoded({"value": value}))
        return value

    def tensors_from_main(self, read: Callable[[], tuple[dict[str, Tensor], Any]]) -> tuple[dict[str, Tensor], Any]:
        """Read tensors and metadata on rank 0 only, and broadcast them to main memory.

        The others need no access to its disk. JSON must be able to hold the metadata.
        """
        if self.count == 1:
            return read()
        tensors: dict[str, Tensor] = {}

        def contents() -> tuple[dict[str, tuple[str, list[int]]], Any]:
            found, notes = read()
            tensors.update({name: tensor.contiguous() for name, tensor in found.items()})
            kinds = {name: (str(t.dtype).removeprefix("torch."), list(t.shape)) for name, t in tensors.items()}
            return kinds, notes

        kinds, notes = self.from_main(contents)
        for name, (dtype, shape) in kinds.items():
            if not self.main:
                tensors[name] = torch.empty(shape, dtype=getattr(torch, dtype))
            with _noticing_loss(self):
                dist.broadcast(_bytes(tensors[name]), 0, group=_messages())
        return tensors, notes

    def barrier(self) -> None:
        """Go on when all ranks are here."""
        if self.count > 1:
            with _noticing_loss(self):
                dist.barrier(group=_messages())

    @contextmanager
    def first_here_goes_first(self) -> Iterator[None]:
        """Let one process of each machine do first what leaves files in its cache that spare the others the work."""
        if not self.first_here:
            self.barrier()
        yield
        if self.first_here:
            self.barrier()

    def _broadcast(self, message: Tensor | None) -> Tensor:
        size = torch.tensor([0 if message is None else len(message)])
        with _noticing_loss(self):
            dist.broadcast(size, 0, group=_messages())
            message = torch.empty(int(size), dtype=torch.uint8) if message is None else message
            dist.broadcast(message, 0, group=_messages())
        return message


ALONE = Ranks()


def own_device(device: torch.device) -> torch.device:
    """Return the device of this process: where a GPU is asked for, each process of a machine has one of its own."""
    if device.type != "cuda" or launched()[1] == 1:
        return device
    local_rank, processes = launched_here()
    if device.index is not None and processes > 1:
        raise InputError(
            f"device {str(device)!r} is one GPU, and there are {processes} processes: use {spelled('device', 'cuda')}"
        )
    gpus = torch.cuda.device_count()
    if processes > gpus:
        raise InputError(
            f"{processes} processes were launched here for {gpus} GPU{'s' * (gpus != 1)}: launch one for each, "
            f"or use {spelled('device', 'cpu')}"
        )
    return torch.device("cuda", local_rank or 0)


def join(device: torch.device) -> Ranks:
    """Join the processes that were launched together, of which this is one, and return them.

    They meet in torch's default process group: nccl on GPUs, gloo on CPUs. A group that the calling program has made
    is used, and stays the program's.

    Args:
        device: of this process, as `own_device` returns it.
    """
    rank, count = launched()
    local_rank, processes = launched_here()
    # Without its number on this machine, no process knows which GPU is its own.
    together = device.type == "cpu" or (device.type == "cuda" and local_rank is not None)
    if count > 1 and together and not dist.is_initialized():
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, _meeting_point(count, processes), rank=rank, world_size=count)
        _made.append(dist.group.WORLD)
        if device.type == "cpu" and not os.environ.get("OMP_NUM_THREADS"):
            torch.set_num_threads(max(torch.get_num_threads() // processes, 1))  # or they fight for the cores
    world = dist.get_world_size() if dist.is_initialized() else 1
    if world != count or (count > 1 and not together):  # each would train a model of its own, or all use one GPU
        raise InputError(
            f"several processes were launched that cannot work together on {device.type}: "
            f"launch them with torchrun or accelerate, or use {spelled('device', 'cpu')}"
        )
    if count == 1:
        return ALONE
    atexit.unregister(_leave)  # of an earlier run in this process
    atexit.register(_leave)
    return Ranks(dist.get_rank(), count, first_here=not local_rank)


def launched_ranks(device: str = "auto") -> Ranks:
    """Join the processes that were launched together, in a program that trains nothing."""
    if launched()[1] == 1:
        return ALONE
    own = own_device(choose_device(device))
    if own.type == "cuda":
        torch.cuda.set_device(own)  # for all that asks for "cuda" after this
    return join(own)


def _meeting_point(count: int, processes: int) -> str:
    """Return where the processes find each other, in the form of `init_process_group`."""
    if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
        return "env://"
    if "MASTER_ADDR" not in os.environ and processes < count:
        raise InputError("processes were launched on several machines: set MASTER_ADDR to the name of the first one")
    return f"tcp://{os.environ.get('MASTER_ADDR', '127.0.0.1')}:{os.environ.get('MASTER_PORT', PORT)}"


def _leave() -> None:
    """Destroy our process groups at the end of the program, or the threads that listen to them may make it crash."""
    # A GPU that waits for a process that is gone would be waited for.
    if dist.is_initialized() and not (_losses and dist.get_backend() != "gloo"):
        if dist.group.WORLD in _made:
            dist.destroy_process_group()
        elif _messages.cache_info().currsize:
            dist.destroy_process_group(_messages())
    _made.clear()
    _messages.cache_clear()


_made: list[dist.ProcessGroup | None] = []  # the default process group, unless the calling program made it
_losses: list[str] = []  # what was noticed


@cache
def _messages() -> dist.ProcessGroup:
    """Return the group for what travels in main memory, so that a GPU is not waited for."""
    group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=PATIENCE)
    return group


class _Gathered(torch.autograd.Function):
    """Implements `Ranks.gather`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, ranks: Ranks, documents: int) -> Tensor:
        ctx.ranks, ctx.documents = ranks, documents
        shares = (ranks.share(documents, index) for index in range(ranks.count))
        sizes = [share.stop - share.start for share in shares]
        mine = rows.new_zeros(max(sizes), *rows.shape[1:])  # all send as much as the first
        mine[: len(rows)] = rows
        parts = [torch.empty_like(mine) for _ in sizes]
        with _noticing_loss(ranks):
            dist.all_gather(parts, mine)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient[ctx.ranks.share(ctx.documents)] * ctx.ranks.count, None, None


@contextmanager
def _noticing_loss(ranks: Ranks) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # Without gloo's own place in the code before it, and its advice behind.
        reason = re.sub(r"^\[\S+:\d+\] ", "", str(error).strip() or "?").splitlines()[0].split(". ")[0]
        _losses.append(f"another of the {ranks.count} processes has ended or cannot be reached ({reason})")
        raise RankLostError(_losses[-1]) from error


def _buckets(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    numbers = 0
    for tensor in tensors:
        if bucket and (tensor.dtype != bucket[0].dtype or numbers + tensor.numel() > BUCKET):
            yield bucket
            bucket, numbers = [], 0
        bucket.append(tensor)
        numbers += tensor.numel()
    if bucket:
        yield bucket


def _bytes(tensor: Tensor) -> Tensor:
    """View the memory of a tensor as bytes: not every type travels."""
    return tensor.view(-1).view(torch.uint8)


def _encoded(message: Mapping[str, Any]) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(message).encode()), dtype=torch.uint8)
