"""Packed batches: the tokens of documents end to end, so that nothing is computed on padding."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Packed:
    """The pieces of a batch of documents, one after the other. A short document is one piece.

    Args:
        tokens: ids [N], or the states [N, h] that frozen lower layers made of them.
        cu_seqlens: [pieces + 1], int32, cumulative lengths; piece p is `tokens[cu_seqlens[p] : cu_seqlens[p + 1]]`.
        longest: no piece has more tokens. A bound, so that shapes can be fixed without looking.
        owner: [pieces], the document each piece belongs to; left out where every piece is a document.
        documents: how many there are.
        filled: whether a last piece holds no document but fills the batch up to a fixed number of tokens.
    """

    tokens: Tensor
    cu_seqlens: Tensor
    longest: int
    documents: int
    owner: Tensor | None = None
    filled: bool = False

    @property
    def pieces(self) -> int:
        """P, the filler not counted."""
        return len(self.cu_seqlens) - 1 - self.filled

    @cached_property
    def firsts(self) -> Tensor:
        """[P], the place of each piece's first token, int64."""
        return self.cu_seqlens[: self.pieces].long()

    @cached_property
    def piece_of(self) -> Tensor:
        """[N], the piece each token is in; P for the filler."""
        everywhere = torch.arange(len(self.tokens), device=self.cu_seqlens.device, dtype=torch.int32)
        return torch.searchsorted(self.cu_seqlens[1:], everywhere, right=True)

    @cached_property
    def positions(self) -> Tensor:
        """[N], the place of each token in its piece."""
        return torch.arange(len(self.tokens), device=self.cu_seqlens.device) - self.cu_seqlens[self.piece_of]

    @cached_property
    def lengths(self) -> Tensor:
        """[P], tokens of each piece."""
        return (self.cu_seqlens[1:] - self.cu_seqlens[:-1])[: self.pieces]

    @cached_property
    def mask(self) -> Tensor:
        """[P, T], true on tokens, false on padding, in the rectangle that `pad` makes."""
        return torch.arange(self.longest, device=self.cu_seqlens.device) < self.lengths.unsqueeze(1)

    @cached_property
    def _places(self) -> Tensor:
        """[N], where each token stands in the flat rectangle; the filler's tokens all fall off its end."""
        places = self.piece_of * self.longest + self.positions
        return places.clamp(max=self.pieces * self.longest) if self.filled else places

    @property
    def rectangular(self) -> bool:
        """Whether all pieces are of the same length, so that nothing needs to be padded."""
        return not self.filled and len(self.tokens) == self.pieces * self.longest

    def pad(self, values: Tensor) -> Tensor:
        """Pad, [N, …] → [P, T, …], with zeros."""
        rectangle = (self.pieces, self.longest, *values.shape[1:])
        if self.rectangular:
            return values.view(rectangle)
        room = values.new_zeros(self.pieces * self.longest + self.filled, *values.shape[1:])
        return room.index_copy(0, self._places, values)[: self.pieces * self.longest].view(rectangle)

    def unpad(self, values: Tensor) -> Tensor:
        """Take padding out, [P, T, …] → [N, …]; zeros for the filler."""
        flat = values.reshape(self.pieces * self.longest, *values.shape[2:])
        if self.rectangular:
            return flat
        if self.filled:
            flat = torch.cat([flat, flat.new_zeros(1, *flat.shape[1:])])
        return flat.index_select(0, self._places)

    def to(self, device: torch.device) -> "Packed":
        """Copy to another device, without waiting for the copy."""
        return self._changed(lambda tensor: tensor.to(device, non_blocking=device.type == "cuda"))

    def pinned(self) -> "Packed":
        """Copy to pinned memory, from which a GPU can copy by itself."""
        return self._changed(lambda tensor: tensor.pin_memory())

    def _changed(self, change: Callable[[Tensor], Tensor]) -> "Packed":
        owner = None if self.owner is None else change(self.owner)
        return replace(self, tokens=change(self.tokens), cu_seqlens=change(self.cu_seqlens), owner=owner)
