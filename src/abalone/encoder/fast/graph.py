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

    Args:
        function: what to do with a batch on the device. It leaves its results in tensors that outlive it, and it may
            neither look at values nor depend on anything but the shapes of the batch.
        documents: in every batch.
        lengths: tokens of every document there is.
    """

    def __init__(self, function: Callable[[Batch], None], documents: int, lengths: np.ndarray) -> None:
        self.function, self.documents, self.longest = function, documents, int(lengths.max())
        self.most = int(np.sort(lengths)[-documents:].sum())  # tokens that a batch can have
        self.grain = min(
            GRAIN, self.longest
        )  # what fills a batch up is a piece too, and no piece is longer than `longest`
        self._plain_calls = 0
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Batch]] = {}
        self._pool = torch.cuda.graph_pool_handle()  # one after the other, graphs can use the same memory

    def fits(self, batch: Batch) -> bool:
        """Return whether the batch has the shape that graphs are recorded for."""
        return len(batch) == self.documents and batch.documents.owner is None

    def __call__(self, batch: Batch) -> None:
        """Call the function with a batch that lies in pinned memory."""
        device = torch.device("cuda", torch.cuda.current_device())
        if self._plain_calls < WARM_UP:
            self._plain_calls += 1
            self.function(batch.to(device))
            return
        sizes = [self._filled_up(len(batch.documents.tokens))]
        if not self._graphs:  # the largest first: the others then find room in the memory it took
            torch.cuda.empty_cache()
            sizes.insert(0, self._filled_up(self.most))
        for size in sizes:
            if size not in self._graphs:
                self._graphs[size] = self._record(batch, size, device)
        graph, place = self._graphs[sizes[-1]]
        _put(batch, place)
        graph.replay()

    def _filled_up(self, tokens: int) -> int:
        return -(-tokens // self.grain) * self.grain

    def _record(self, batch: Batch, size: int, device: torch.device) -> tuple[torch.cuda.CUDAGraph, Batch]:
        tokens = batch.documents.tokens
        place = Batch(
            Packed(
                torch.zeros(size, *tokens.shape[1:], dtype=tokens.dtype, device=device),
                torch.tensor([0] * (self.documents + 1) + [size], dtype=torch.int32, device=device),
                self.longest,
                self.documents,
                filled=True,
            ),
            torch.zeros(batch.labels.shape, dtype=torch.bool, device=device),
        )
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream()
        # Other threads may go on: batches are being pinned while this one records.
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
            self.function(place)
        return graph, place


def _put(batch: Batch, place: Batch) -> None:
    """Copy a batch to where a graph looks for it; the filler keeps whatever ids were there before."""
    source, target = batch.documents, place.documents
    target.tokens[: len(source.tokens)].copy_(source.tokens, non_blocking=True)
    target.cu_seqlens[: len(source.cu_seqlens)].copy_(source.cu_seqlens, non_blocking=True)
    place.labels.copy_(batch.labels, non_blocking=True)
