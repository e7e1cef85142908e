"""Several processes that train one model: which of them this is, and how they speak to each other.

All walk through the same program over the same documents, and hold the same weights, queue and prototypes. A process
encodes its share of each batch alone; what comes out goes to all of them, so that everything behind the encoder, the
loss above all, sees the whole batch everywhere.
"""

import json
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

T = TypeVar("T")

BUCKET = 2**24  # numbers that travel together: large enough for the network, small enough beside the gradients
PATIENCE = timedelta(hours=2)  # for the main process to do alone what the others wait for, such as tokenizing


class RankLostError(ConnectionError):
    """Another process of the run has ended, or cannot be reached."""


@dataclass(frozen=True)
class Ranks:
    """The processes of a run. With one process, as by default, every method does nothing or what is left to do.

    Args:
        index: the number of this one; 0 is the main process, which writes and prints.
        count: how many there are.
        first_here: whether this is the first one on its machine.
    """

    index: int = 0
    count: int = 1
    first_here: bool = True

    @property
    def main(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.index == 0

    def share(self, documents: int, index: int | None = None) -> slice:
        """Which of so many documents are this process's, or another's: the first ones take what does not divide."""
        index = self.index if index is None else index
        least, more = divmod(documents, self.count)
        start = index * least + min(index, more)
        return slice(start, start + least + (index < more))

    def gather(self, rows: Tensor, documents: int) -> Tensor:
        """What every process has made of its share, in order: [share, …] → [documents, …].

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
        """Give every parameter the mean of its gradients on all processes: that of the whole batch's loss."""
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
        """Other random numbers on every process, dropout's, and the same ones again at the same place in a run.

        Nothing of it is to be saved, and the numbers drawn elsewhere stay the same on all processes.
        """
        if self.count == 1:
            yield
            return
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(int(np.random.SeedSequence([*place, self.index]).generate_state(1)[0]))
            yield

    def make_equal(self, module: torch.nn.Module) -> None:
        """Give every process the main one's parameters and buffers."""
        if self.count > 1:
            with torch.no_grad(), _noticing_loss(self):
                for tensor in (*module.parameters(), *module.buffers()):
                    dist.broadcast(_bytes(tensor) if tensor.dtype is torch.bool else tensor, 0)

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """For each flag, whether a process has set it."""
        if self.count == 1:
            return flags
        votes = torch.tensor(flags, dtype=torch.int32)
        with _noticing_loss(self):
            dist.all_reduce(votes, dist.ReduceOp.MAX, group=_messages())
        return tuple(bool(vote) for vote in votes.tolist())

    def add_up(self, values: np.ndarray) -> None:
        """The sum of an array over all processes, in its place."""
        if self.count > 1:
            with _noticing_loss(self):
                dist.all_reduce(torch.from_numpy(values), group=_messages())

    def told_by_main(self, work: Callable[[], T]) -> T:
        """What the main process finds when it does `work`, which the others do not; a value that JSON can hold."""
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

    def read_by_main(self, read: Callable[[], tuple[dict[str, Tensor], Any]]) -> tuple[dict[str, Tensor], Any]:
        """What the main process reads: tensors in main memory, and notes that JSON can hold.

        The others need no access to its disk.
        """
        if self.count == 1:
            return read()
        tensors: dict[str, Tensor] = {}

        def contents() -> tuple[dict[str, tuple[str, list[int]]], Any]:
            found, notes = read()
            tensors.update({name: tensor.contiguous() for name, tensor in found.items()})
            kinds = {name: (str(t.dtype).removeprefix("torch."), list(t.shape)) for name, t in tensors.items()}
            return kinds, notes

        kinds, notes = self.told_by_main(contents)
        for name, (dtype, shape) in kinds.items():
            if not self.main:
                tensors[name] = torch.empty(shape, dtype=getattr(torch, dtype))
            with _noticing_loss(self):
                dist.broadcast(_bytes(tensors[name]), 0, group=_messages())
        return tensors, notes

    def wait(self) -> None:
        """Go on when all are here."""
        if self.count > 1:
            with _noticing_loss(self):
                dist.barrier(group=_messages())

    @contextmanager
    def first_here_goes_first(self) -> Iterator[None]:
        """Let one process of each machine do what leaves something on its disk that spares the others the work."""
        if not self.first_here:
            self.wait()
        yield
        if self.first_here:
            self.wait()

    def _broadcast(self, message: Tensor | None) -> Tensor:
        size = torch.tensor([0 if message is None else len(message)])
        with _noticing_loss(self):
            dist.broadcast(size, 0, group=_messages())
            message = torch.empty(int(size), dtype=torch.uint8) if message is None else message
            dist.broadcast(message, 0, group=_messages())
        return message


ALONE = Ranks()


class _Gathered(torch.autograd.Function):
    """See `Ranks.gather`."""

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


def leave() -> None:
    """Take leave of the others at the end of a program, or the threads that listen to them may make it crash there."""
    _messages.cache_clear()
    # A GPU that waits for a process that is gone would be waited for.
    if dist.is_initialized() and not (_losses and dist.get_backend() != "gloo"):
        dist.destroy_process_group()


_losses: list[str] = []  # what was noticed


@cache
def _messages() -> dist.ProcessGroup:
    """Where processes talk in main memory, so that a GPU is not waited for."""
    group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=PATIENCE)
    return group


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
    """The same memory as bytes: not every type travels."""
    return tensor.view(-1).view(torch.uint8)


def _encoded(message: Mapping[str, Any]) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(message).encode()), dtype=torch.uint8)
