"""The queue of earlier documents' embeddings."""

from typing import Any

import torch
from torch import Tensor, nn

from abalone.errors import InputError


class MemoryQueue(nn.Module):
    """The newest `size` embeddings with their labels, oldest dropped first.

    The answer to the "lack of positives": a rare label is seldom twice in a batch, but often in the last few hundred
    documents. It is part of `state_dict`, so that a resumed run goes on with the same memory, and it starts empty:
    no random vectors ever pose as documents.

    Args:
        size: how many documents it holds; the paper uses 512.
        dim: width of an embedding.
        num_labels: width of a row of labels.

    Example:
        >>> queue = MemoryQueue(size=3, dim=2, num_labels=2)
        >>> queue.enqueue(torch.eye(2), torch.tensor([[1, 0], [0, 1]]))
        >>> queue.enqueue(torch.ones(2, 2), torch.tensor([[1, 1], [0, 0]]))
        >>> embeddings, labels = queue.contents()
        >>> embeddings.tolist()
        [[0.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
        >>> labels.int().tolist()
        [[0, 1], [1, 1], [0, 0]]
    """

    embeddings: Tensor
    labels: Tensor
    pointer: Tensor
    count: Tensor

    def __init__(self, size: int, dim: int, num_labels: int) -> None:
        super().__init__()
        for name, value in (("size", size), ("dim", dim), ("num_labels", num_labels)):
            if value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        self.register_buffer("embeddings", torch.zeros(size, dim))
        # A byte a label, and untouched by `.half()`: labels need no precision.
        self.register_buffer("labels", torch.zeros(size, num_labels, dtype=torch.bool))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))  # where the next row goes
        self.register_buffer("count", torch.zeros((), dtype=torch.long))  # rows filled so far, at most `size`
        self._was_full = False

    @property
    def size(self) -> int:
        """How many documents it can hold."""
        return self.embeddings.shape[0]

    def __len__(self) -> int:
        return int(self.count)

    @property
    def full(self) -> bool:
        """Whether every row is filled. Once it is, it stays so, and nobody waits for the device to say it again."""
        self._was_full = self._was_full or len(self) == self.size
        return self._was_full

    @torch.no_grad()
    def enqueue(self, embeddings: Tensor, labels: Tensor) -> None:
        """Add rows [B, dim] with labels [B, num_labels] of 0/1; of more than `size` rows the newest are kept."""
        self._check(embeddings, labels)
        dropped = max(len(embeddings) - self.size, 0)
        # Positions on the device, so that a wrap-around is no special case and nothing waits for the pointer.
        rows = (self.pointer + torch.arange(dropped, len(embeddings), device=self.pointer.device)) % self.size
        self.embeddings[rows] = embeddings[dropped:].to(self.embeddings)
        self.labels[rows] = labels[dropped:].to(self.labels)
        self.pointer.add_(len(embeddings)).remainder_(self.size)
        self.count.add_(len(embeddings)).clamp_(max=self.size)

    def contents(self) -> tuple[Tensor, Tensor]:
        """Return embeddings [n, dim] and labels [n, num_labels] of the n documents it holds, oldest first."""
        filled = len(self)
        oldest = int(self.pointer) if filled == self.size else 0
        order = slice(oldest, filled), slice(0, oldest)
        return torch.cat([self.embeddings[part] for part in order]), torch.cat([self.labels[part] for part in order])

    def references(self) -> tuple[Tensor, Tensor]:
        """Return the documents of `contents` in no particular order: when it is full, without a copy."""
        return (self.embeddings, self.labels) if self.full else self.contents()

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._was_full = False

    def _check(self, embeddings: Tensor, labels: Tensor) -> None:
        for name, rows, width in (
            ("embeddings", embeddings, self.embeddings.shape[1]),
            ("labels", labels, self.labels.shape[1]),
        ):
            if rows.dim() != 2 or rows.shape[1] != width:
                raise InputError(f"{name} must be [rows, {width}], got shape {tuple(rows.shape)}")
        if len(embeddings) != len(labels):
            raise InputError(
                "embeddings and labels must have the same number of rows, "
                f"got shapes {tuple(embeddings.shape)} and {tuple(labels.shape)}"
            )

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        return f"size={self.size}, dim={self.embeddings.shape[1]}, num_labels={self.labels.shape[1]}"
