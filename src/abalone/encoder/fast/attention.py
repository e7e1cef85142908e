"""Attention within each piece of a packed batch, by the fastest kernel that fits."""

from functools import cache, cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from abalone.encoder.packed import Packed

SHORT, WIDTHS = 512, (32, 64)  # tokens of a piece, and widths of a head, for which our kernels are made
ROUND = 64  # a bias has rows and columns for a multiple of so many tokens: the tiles of our kernels end there


@cache
def has_packed_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether kernels for packed tokens, torch's and ours, run there: Ampere and later, bf16 or fp16."""
    low = dtype in (torch.bfloat16, torch.float16)
    return low and device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


class PieceAttention:
    """softmax(q·kᵀ/√d + bias)·v within each piece. Made once a batch, for all its layers.

    On CUDA in low precision kernels of variable length read the packed tokens as they are: ours for short pieces,
    torch's for the rest. Torch's know no position bias, and other devices have neither: there the pieces are padded
    to a rectangle for this one product, which is a few hundredths of a layer's arithmetic.

    Args:
        layout: where the pieces are.
        dtype: of queries, keys and values.
        bias: [heads, R, R], added before the softmax; R is T, or more, rounded up to a multiple of `ROUND`.
        dropout: share of the softmax that is dropped.
        width: of a head, where our kernels can be used.
    """

    def __init__(
        self,
        layout: Packed,
        dtype: torch.dtype,
        *,
        bias: Tensor | None = None,
        dropout: float = 0.0,
        width: int | None = None,
    ) -> None:
        self.layout, self.dropout, self.bias, self.dtype = layout, dropout, bias, dtype
        packed = has_packed_kernels(layout.cu_seqlens.device, dtype)
        self.ours = packed and layout.longest <= SHORT and width in WIDTHS
        self.packed = packed and bias is None

    def by_ours(self, projected: Tensor, bias: Tensor, seed: Tensor) -> Tensor:
        """Attend with our kernel, where `ours` is true: one product [N, 3, heads, d] → [N, h].

        Args:
            bias: [3h], in `projected` already, but without a gradient: it gets it here.
            seed: one integer on the device, from which the dropout follows.
        """
        from abalone.encoder.fast.attention_kernels import packed_attention

        layout = self.layout
        return packed_attention(projected, bias, layout.cu_seqlens, layout.longest, seed, self.dropout, self.bias)

    def __call__(self, projected: tuple[Tensor, ...]) -> Tensor:
        """Attend: one product [N, 3, heads, d], or three [N, 1, heads, d] → [N, h]."""
        layout = self.layout
        queries, keys, values = (x for product in projected for x in product.unbind(1))  # [N, heads, d] each
        if self.packed:
            return self._within(queries, keys, values, layout.cu_seqlens, layout.longest)
        q, k, v = (layout.pad(x).transpose(1, 2) for x in (queries, keys, values))  # [P, heads, T, d]
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=self._mask, dropout_p=self.dropout)
        return layout.unpad(attended.transpose(1, 2)).flatten(1)

    def of_firsts(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend from the first token of each piece alone: queries [P, heads, d] → [P, h]."""
        layout = self.layout
        if self.packed:
            cu_seqlens = torch.arange(layout.pieces + 1, dtype=torch.int32, device=queries.device)
            if layout.filled:  # the filler asks nothing
                cu_seqlens = torch.cat([cu_seqlens, cu_seqlens[-1:]])
            return self._within(queries, keys, values, cu_seqlens, 1)
        q = queries.unsqueeze(2)  # [P, heads, 1, d]
        k, v = (layout.pad(x).transpose(1, 2) for x in (keys, values))
        mask = _mask(layout, self.dtype, self.bias, queries=1)
        attended: Tensor = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=self.dropout)
        return attended.flatten(1)

    @cached_property
    def _mask(self) -> Tensor | None:
        return _mask(self.layout, self.dtype, self.bias, queries=self.layout.longest)

    def _within(self, queries: Tensor, keys: Tensor, values: Tensor, cu_seqlens: Tensor, longest: int) -> Tensor:
        # The public `varlen_attn` is the same kernel without its dropout.
        sizes = cu_seqlens, self.layout.cu_seqlens, longest, self.layout.longest
        flash = torch.ops.aten._flash_attention_forward
        attended: Tensor = flash(queries, keys, values, *sizes, self.dropout, False, False)[0]
        return attended.flatten(1)


def _mask(layout: Packed, dtype: torch.dtype, bias: Tensor | None, *, queries: int) -> Tensor | None:
    """Return the rectangle's mask: bool [P, 1, 1, T], or [P, heads, queries, T] to add; none where all is there."""
    ragged = layout.mask[:, None, None, :]
    if bias is None:
        return None if layout.rectangular else ragged
    return bias[:, :queries, : layout.longest].to(dtype).masked_fill(~ragged, torch.finfo(dtype).min)
