"""Batches of tokenised documents with their labels, and the embeddings of documents."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from abalone.data.batches import token_budget_batches
from abalone.data.tokens import TokenArray
from abalone.distributed import ALONE, Ranks
from abalone.encoder.packed import Packed
from abalone.encoder.text_encoder import TextEncoder
from abalone.errors import InputError
from abalone.files.cache import array_of, scratch_array
from abalone.progress import advance, overall, track

# Tokens in a batch when encoding: as many as fill the device. A CPU needs few, and batches of few are of more even
# length, so that attention pads less.
CPU_TOKEN_BUDGET, GPU_TOKEN_BUDGET = 4096, 16_384
FROZEN = "frozen"  # a kind of work in the estimate: in the precision of training, unlike other reading
AHEAD = 8  # batches made while the device is busy with earlier ones


@dataclass(frozen=True)
class Batch:
    """The encoder's input, and the labels to learn.

    Where several processes train together, `documents` are this one's share, and `labels` those of the whole batch.
    """

    documents: Packed
    labels: Tensor  # [B, L], bool

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "Batch":
        """Copy to another device, without waiting for the copy."""
        return Batch(self.documents.to(device), self.labels.to(device, non_blocking=device.type == "cuda"))


class Feed(Protocol):
    """Documents that can be drawn in batches, whatever the encoder's input is."""

    labels: csr_array  # [n, L]
    lengths: np.ndarray  # [n], tokens that are read of each

    def __len__(self) -> int: ...

    def packed(self, rows: np.ndarray) -> Packed:
        """Return the encoder's input for some documents."""
        ...


class TokenFeed:
    """Documents as token ids, cut to what the encoder reads.

    Args:
        tokens: the ids of all documents.
        labels: 0/1, [n, L].
        max_length: tokens of a piece, special tokens included.
        max_chunks: pieces of a document; 1 is truncation.
    """

    def __init__(self, tokens: TokenArray, labels: csr_array, max_length: int, max_chunks: int = 1) -> None:
        if len(tokens) != labels.shape[0]:
            raise InputError(f"{len(tokens)} documents but {labels.shape[0]} rows of labels")
        self.tokens, self.labels = tokens, labels
        self.max_length, self.max_chunks = max_length, max_chunks
        self.lengths = np.minimum(tokens.lengths(None), max_length * max_chunks)

    def __len__(self) -> int:
        return len(self.tokens)

    def packed(self, rows: np.ndarray) -> Packed:
        """Return the ids of some documents, each in as many pieces as it needs and may have."""
        if self.max_chunks == 1:
            pieces, owner = [self.tokens.document(int(row), self.max_length) for row in rows], None
        else:
            chunks = [self.tokens.chunks(int(row), self.max_length, self.max_chunks) for row in rows]
            pieces = [piece for document in chunks for piece in document]
            owner = torch.repeat_interleave(torch.tensor([len(document) for document in chunks]))
        cu_seqlens, longest = _cu_seqlens(np.array([len(piece) for piece in pieces]))
        return Packed(torch.from_numpy(np.concatenate(pieces)), cu_seqlens, longest, len(rows), owner)


class FrozenFeed:
    """Documents as the states of an encoder's lower layers, computed once.

    The states lie in a temporary file that is mapped into memory and gone with the process: low precision, because
    it halves the reading, and they are inputs, not weights.
    """

    def __init__(self, documents: Feed, lower: TextEncoder, device: torch.device) -> None:
        if getattr(documents, "max_chunks", 1) > 1:
            raise InputError("freeze_layers and max_chunks cannot be combined: set max_chunks to 1")
        self.labels, self.lengths = documents.labels, documents.lengths
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)])
        self.states = scratch_array((int(self.offsets[-1]), lower.hidden_size), np.float16)  # [tokens, h]
        lower.to(device).eval()
        with torch.inference_mode():
            for rows, batch in encoding_batches(documents, device, "Frozen layers", work=FROZEN, depth=lower.depth):
                states = lower.token_states(batch).half().cpu().numpy()
                for row, document in zip(rows, np.split(states, batch.cu_seqlens[1:-1].cpu().numpy()), strict=True):
                    self.states[self.offsets[row] : self.offsets[row + 1]] = document

    def __len__(self) -> int:
        return len(self.lengths)

    def packed(self, rows: np.ndarray) -> Packed:
        """Return the states [N, h] of some documents' tokens."""
        states = np.concatenate([self.states[self.offsets[row] : self.offsets[row + 1]] for row in rows])
        cu_seqlens, longest = _cu_seqlens(self.lengths[rows])
        return Packed(torch.from_numpy(states.astype(np.float32)), cu_seqlens, longest, len(rows))


class FeedRows:
    """Some documents of a feed, in this order.

    Args:
        documents: the feed.
        rows: which of its documents.
    """

    def __init__(self, documents: Feed, rows: np.ndarray) -> None:
        self._documents, self._rows = documents, rows
        self.labels: csr_array = documents.labels[rows]
        self.lengths = documents.lengths[rows]

    def __len__(self) -> int:
        return len(self._rows)

    def packed(self, rows: np.ndarray) -> Packed:
        """Return the encoder's input for some of them."""
        return self._documents.packed(self._rows[rows])


def _cu_seqlens(lengths: np.ndarray) -> tuple[Tensor, int]:
    """Return the cumulative lengths of pieces, int32 from 0 (`cu_seqlens`), and the longest length."""
    cu_seqlens = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=cu_seqlens[1:])
    return torch.from_numpy(cu_seqlens), int(lengths.max())


def unlabelled(documents: int) -> csr_array:
    """Return an empty label matrix, for documents that have no labels to learn from."""
    return csr_array((documents, 0), dtype=np.int32)  # type: ignore[return-value]  # the stubs think it 1-D


def make_batch(documents: Feed, rows: np.ndarray, ranks: Ranks = ALONE) -> Batch:
    """Make a batch in main memory: some documents, or this process's share of them, with the labels of all."""
    # A process without a share reads a document too, whose row `Ranks.gather` leaves out: so it has gradients, of 0,
    # for the same parameters as the others.
    share = rows[ranks.share(len(rows))] if len(rows) > ranks.index else rows[:1]
    return Batch(documents.packed(share), torch.from_numpy(documents.labels[rows].toarray().astype(bool)))


def ready_batches(
    documents: Feed, batches: Iterable[np.ndarray], device: torch.device, ranks: Ranks = ALONE
) -> Iterator[Batch]:
    """Yield batches in main memory, in order; for a GPU they are made ahead of need, in pinned memory."""
    if device.type != "cuda":
        yield from (make_batch(documents, rows, ranks) for rows in batches)
        return
    remaining = iter(batches)
    with ThreadPoolExecutor(1) as maker:
        made = [maker.submit(_pinned_batch, documents, rows, ranks) for rows in islice(remaining, AHEAD)]
        while made:
            batch = made.pop(0).result()
            made += [maker.submit(_pinned_batch, documents, rows, ranks) for rows in islice(remaining, 1)]
            yield batch


def _pinned_batch(documents: Feed, rows: np.ndarray, ranks: Ranks) -> Batch:
    batch = make_batch(documents, rows, ranks)
    return Batch(batch.documents.pinned(), batch.labels.pin_memory())


def encoding_batches(
    documents: Feed,
    device: torch.device,
    description: str,
    ranks: Ranks = ALONE,
    *,
    work: str = "",
    depth: int = 1,
) -> Iterator[tuple[np.ndarray, Packed]]:
    """Yield all documents, or this process's share of them, in batches of like length, with their rows.

    Each batch that was used is told to the job it belongs to, as `work` of tokens × `depth` of the encoder.
    """
    budget = CPU_TOKEN_BUDGET if device.type == "cpu" else GPU_TOKEN_BUDGET
    # Every so-many-th batch, since the longest documents come first.
    for rows in track(token_budget_batches(documents.lengths, budget)[ranks.index :: ranks.count], description):
        yield rows, documents.packed(rows).to(device)
        overall().done(work, depth * ranks.count * int(documents.lengths[rows].sum()))


def embed(
    encoder: TextEncoder,
    documents: Feed,
    device: torch.device,
    description: str = "Encoding",
    *,
    precision: torch.dtype | None = None,
    ranks: Ranks = ALONE,
    work: str = "read",
) -> np.ndarray:
    """Encode documents, one vector each: [n, h], float32, in the documents' order.

    Products are in `precision`, by default float32. Several `ranks` that all call this encode a share each, and get
    the vectors of all documents. Within a job whose time is estimated it counts as `work` of that kind.
    """
    embeddings = array_of((len(documents), encoder.hidden_size), np.float32)
    if ranks.count > 1:
        embeddings[:] = 0  # what others encode is added
    training = encoder.training
    encoder.to(device).eval()
    with torch.inference_mode(), _reading(device, precision):
        for rows, batch in encoding_batches(documents, device, description, ranks, work=work, depth=encoder.depth):
            embeddings[rows] = encoder(batch).float().cpu().numpy()
            advance(len(rows) * ranks.count)
    encoder.train(training)
    ranks.all_reduce(embeddings)
    return embeddings


@contextmanager
def _reading(device: torch.device, precision: torch.dtype | None) -> Iterator[None]:
    """Read in this precision; by default in full, where a GPU multiplies as TF32: to three digits, and far faster."""
    if precision is not None:
        with torch.autocast(device.type, precision):
            yield
    elif device.type == "cuda":
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
    else:
        yield
