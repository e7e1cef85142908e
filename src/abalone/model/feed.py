"""Tokenised documents with their labels, as the batches a model takes."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from abalone.data.batches import pad, token_budget_batches
from abalone.data.tokens import TokenArray
from abalone.model.encoder import TextEncoder
from abalone.progress import track

TOKEN_BUDGET = 16_384  # tokens in a batch when encoding: fills a processor's caches, and a small GPU


@dataclass(frozen=True)
class Batch:
    """What goes into the encoder, and the labels to learn."""

    inputs: dict[str, Tensor]  # keyword arguments of `TextEncoder.forward`
    labels: Tensor  # [B, L], bool


class Feed(Protocol):
    """Documents that can be drawn in batches, whatever the encoder's input is."""

    labels: csr_array  # [n, L]
    lengths: np.ndarray  # [n], tokens that are read of each

    def __len__(self) -> int: ...

    def inputs(self, rows: np.ndarray) -> dict[str, Tensor]:
        """The encoder's input for some documents."""
        ...


class TokenFeed:
    """Documents as token ids, cut to what the encoder reads.

    Args:
        tokens: the ids of all documents.
        labels: 0/1, [n, L].
        pad_id: the tokenizer's padding id.
        max_length: tokens of a piece, special tokens included.
        max_chunks: pieces of a document; 1 is truncation.
    """

    def __init__(
        self, tokens: TokenArray, labels: csr_array, pad_id: int, max_length: int, max_chunks: int = 1
    ) -> None:
        if len(tokens) != labels.shape[0]:
            raise ValueError(f"{len(tokens)} documents but {labels.shape[0]} rows of labels")
        self.tokens, self.labels, self.pad_id = tokens, labels, pad_id
        self.max_length, self.max_chunks = max_length, max_chunks
        whole = tokens.lengths(None)
        self.lengths = np.minimum(whole, max_length * max_chunks)

    def __len__(self) -> int:
        return len(self.tokens)

    def inputs(self, rows: np.ndarray) -> dict[str, Tensor]:
        """`input_ids` and `attention_mask`, [pieces, T], and `owner` where documents have several pieces."""
        if self.max_chunks == 1:
            input_ids, mask = pad([self.tokens.document(int(row), self.max_length) for row in rows], self.pad_id)
            return {"input_ids": input_ids, "attention_mask": mask}
        pieces = [self.tokens.chunks(int(row), self.max_length, self.max_chunks) for row in rows]
        input_ids, mask = pad([piece for document in pieces for piece in document], self.pad_id)
        owner = torch.repeat_interleave(torch.tensor([len(document) for document in pieces]))
        return {"input_ids": input_ids, "attention_mask": mask, "owner": owner}


class FrozenFeed:
    """Documents as the states of an encoder's lower layers, computed once.

    The states lie in a temporary file that is mapped into memory and gone with the process: half precision, because
    it halves the reading, and they are inputs, not weights.
    """

    def __init__(self, documents: Feed, lower: TextEncoder, device: torch.device) -> None:
        if getattr(documents, "max_chunks", 1) > 1:
            raise ValueError("freeze_layers and max_chunks cannot be combined: set max_chunks to 1")
        self.labels, self.lengths = documents.labels, documents.lengths
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)])
        with tempfile.TemporaryFile() as file:  # without a name; the mapping keeps it until the feed is gone
            shape = (int(self.offsets[-1]), lower.hidden_size)
            if hasattr(os, "posix_fallocate"):  # a full disk is an error now, and not a crash in the middle
                os.posix_fallocate(file.fileno(), 0, max(2 * shape[0] * shape[1], 1))
            self.states = np.memmap(file, np.float16, "w+", shape=shape)  # [tokens, h]
        lower.to(device).eval()
        with torch.inference_mode():
            for rows, batch in encoding_batches(documents, device, "Computing the frozen layers"):
                states = lower.token_states(**batch).half().cpu().numpy()
                for row, document in zip(rows, states, strict=True):
                    self.states[self.offsets[row] : self.offsets[row + 1]] = document[: self.lengths[row]]

    def __len__(self) -> int:
        return len(self.lengths)

    def inputs(self, rows: np.ndarray) -> dict[str, Tensor]:
        """`inputs_embeds` [B, T, h] and `attention_mask` [B, T]."""
        lengths = self.lengths[rows]
        mask = np.arange(lengths.max()) < lengths[:, None]
        states = np.zeros((*mask.shape, self.states.shape[1]), np.float32)
        states[mask] = np.concatenate([self.states[self.offsets[row] : self.offsets[row + 1]] for row in rows])
        return {"inputs_embeds": torch.from_numpy(states), "attention_mask": torch.from_numpy(mask.astype(np.int64))}


def unlabelled(documents: int) -> csr_array:
    """The labels of documents that have none to learn from."""
    return csr_array((documents, 0), dtype=np.int32)  # type: ignore[return-value]  # the stubs think it 1-D


def make_batch(documents: Feed, rows: np.ndarray, device: torch.device) -> Batch:
    """Some documents with their labels, on the device."""
    labels = torch.from_numpy(documents.labels[rows].toarray().astype(bool))
    return Batch(_move(documents.inputs(rows), device), labels.to(device, non_blocking=True))


def encoding_batches(
    documents: Feed, device: torch.device, description: str
) -> Iterator[tuple[np.ndarray, dict[str, Tensor]]]:
    """All documents in batches of like length, with the rows they stand in."""
    for rows in track(token_budget_batches(documents.lengths, TOKEN_BUDGET), description):
        yield rows, _move(documents.inputs(rows), device)


def embed(encoder: TextEncoder, documents: Feed, device: torch.device, description: str = "Encoding") -> np.ndarray:
    """One vector a document, [n, h], float32, in the documents' order."""
    embeddings = np.empty((len(documents), encoder.hidden_size), np.float32)
    training = encoder.training
    encoder.to(device).eval()
    with torch.inference_mode():
        for rows, inputs in encoding_batches(documents, device, description):
            embeddings[rows] = encoder(**inputs).float().cpu().numpy()
    encoder.train(training)
    return embeddings


def _move(inputs: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    return {name: value.to(device, non_blocking=True) for name, value in inputs.items()}
