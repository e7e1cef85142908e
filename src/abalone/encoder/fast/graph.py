"""CUDA graphs of the work on a batch: recorded once for each size, then replayed without Python."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Generic, TypeVar

import numpy as np
import torch

from abalone.encoder.feed import Batch
from abalone.encoder.packed import Packed

GRAIN = 128  # batches are filled up to a multiple of this many tokens, so that a few graphs serve all
# Tokens that fill batches up before one more graph is recorded: what is trained on while one is. 172 recordings of
# MiniLM-L6 took 9.6 s on an H200, in each of which its step reads 100,000 tokens.
FILLER = 100_000
FIRST = -1  # the priority of the stream whose kernels go before those of the second
WARM_UP = 3  # batches done plainly first: what allocates for good, as the optimiser does, must not be recorded

Result = TypeVar("Result")


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Use a CUDA stream that can be recorded, which the default one cannot; do nothing on other devices."""
    if device.type != "cuda":
        yield
        return
    before, stream = torch.cuda.current_stream(device), torch.cuda.Stream(device, priority=FIRST)
    stream.wait_stream(before)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        before.wait_stream(stream)


class Aside(Generic[Result]):
    """Work that the rest of a recording does not wait for: it goes to a second stream until it is joined.

    Two streams fill a GPU where one leaves parts of it idle. Of two such works the second begins after the first.
    Outside a recording the work is done at once.
    """

    def __init__(self, work: Callable[[], Result]) -> None:
        self._done: torch.cuda.Event | None = None
        if not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
            self._result = work()
            return
        stream = _second_stream(torch.cuda.current_device())
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._result = work()
            self._done = stream.record_event()

    def join(self) -> Result:
        """Go on only when it is done, with what came of it; necessary before the recording ends."""
        if self._done is not None:
            torch.cuda.current_stream().wait_event(self._done)
        return self._result


@cache
def _second_stream(device: int) -> torch.cuda.Stream:
    """Return one stream for all recordings: memory that one took on it is free for the next, and for it alone."""
    return torch.cuda.Stream(device)


class Captured:
    """A function of a batch, replayed from CUDA graphs. Call it within `own_stream`.

    A graph is recorded for a number of documents and a number of tokens. Batches of a few tokens less use it as well,
    until what fills them up has cost as much as a graph of their own: short trainings record few, long ones waste
    little.

    Args:
        function: what to do with a batch on the device. It leaves its results in tensors that outlive it, and it may
            neither look at values nor depend on anything but the shapes of the batch.
        batch_size: documents of a batch; the last of an epoch has what is left.
        lengths: tokens of every document there is.
    """

    def __init__(self, function: Callable[[Batch], None], batch_size: int, lengths: np.ndarray) -> None:
        self.function, self.longest = function, int(lengths.max())
        self.documents = {min(batch_size, len(lengths)), len(lengths) % batch_size} - {0}
        self.most_documents = max(self.documents)  # of a batch; such a one is recorded first, whichever comes first
        # What fills a batch up is a piece too, and no piece is longer than `longest`.
        self.grain = min(GRAIN, self.longest)
        self.most = int(np.sort(lengths)[-batch_size:].sum())  # tokens that a batch can have
        self._plain_calls = self._filler = 0
        self._graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Batch]] = {}  # by documents and tokens
        self._pool = torch.cuda.graph_pool_handle()  # one after the other, graphs can use the same memory

    def fits(self, batch: Batch) -> bool:
        """Return whether the batch has a shape that graphs are recorded for."""
        return len(batch) in self.documents and batch.documents.owner is None

    def __call__(self, batch: Batch) -> None:
        """Call the function with a batch that lies in pinned memory."""
        if self._plain_calls < WARM_UP:
            self._plain_calls += 1
            self.function(batch.to(torch.device("cuda", torch.cuda.current_device())))
            return
        if not self._graphs:  # the largest first: the others then find room in the memory it took
            torch.cuda.empty_cache()
            self._record(batch, self.most_documents, self._filled_up(self.most))
        shape = len(batch), self._size(len(batch), len(batch.documents.tokens))
        if shape not in self._graphs:
            self._record(batch, *shape)
        graph, place = self._graphs[shape]
        _put(batch, place)
        graph.replay()

    def _size(self, documents: int, tokens: int) -> int:
        """Return the number of tokens of the graph to use, one that is there or a new one."""
        own = self._filled_up(tokens)
        there = [size for count, size in self._graphs if count == documents and own <= size <= tokens + self.longest]
        nearest = min(there, default=own)
        self._filler += nearest - own
        if self._filler <= FILLER:
            return nearest
        self._filler = 0
        return own

    def _filled_up(self, tokens: int) -> int:
        return -(-tokens // self.grain) * self.grain

    def _record(self, batch: Batch, documents: int, size: int) -> None:
        tokens, device = batch.documents.tokens, torch.device("cuda", torch.cuda.current_device())
        place = Batch(
            Packed(
                torch.zeros(size, *tokens.shape[1:], dtype=tokens.dtype, device=device),
                torch.tensor([0] * (documents + 1) + [size], dtype=torch.int32, device=device),
                self.longest,
                documents,
                filled=True,
            ),
            torch.zeros(documents, batch.labels.shape[1], dtype=torch.bool, device=device),
        )
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream()
        # Other threads may go on: batches are being pinned while this one records.
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
            self.function(place)
        self._graphs[documents, size] = graph, place


def _put(batch: Batch, place: Batch) -> None:
    """Copy a batch to where a graph looks for it; the filler keeps whatever ids were there before."""
    source, target = batch.documents, place.documents
    target.tokens[: len(source.tokens)].copy_(source.tokens, non_blocking=True)
    target.cu_seqlens[: len(source.cu_seqlens)].copy_(source.cu_seqlens, non_blocking=True)
    place.labels.copy_(batch.labels, non_blocking=True)
