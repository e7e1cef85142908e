"""Attention within short pieces of a packed batch: Triton kernels for NVIDIA GPUs.

Kernels made for long sequences spend much of their time around the work when a sequence has two hundred tokens. Here
one program takes a few rows of one piece and one head, reads the fused projection as it is, and writes its gradient
as one. The backward pass is two kernels, one that sums over keys and one that sums over queries, so that nothing is
added up across programs: no buffer in full precision, no pass to convert it, and the same result every time. Only a
bias by position, which all pieces share, gets its gradient from all programs: a table small enough for the cache.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from abalone.encoder.fast.elementwise_kernels import added_up


class Tiles(NamedTuple):
    """How a kernel cuts a piece up. Sizes are powers of two, from 16."""

    own: int  # rows of the piece that a program keeps
    others: int  # rows that pass by in one turn of its loop
    warps: int
    stages: int


# The fastest on an H200 for pieces of about 200 tokens, with heads 32 and 64 wide alike.
FORWARD = Tiles(64, 64, 4, 3)
QUERIES, KEYS = Tiles(64, 32, 4, 3), Tiles(64, 32, 4, 3)  # of the backward pass

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _key(seed_ptr, HEADS: tl.constexpr):
    """Draw two random numbers for this program's piece and head, from which its dropout follows."""
    a, b, _, _ = tl.randint4x(tl.load(seed_ptr), tl.program_id(2) * HEADS + tl.program_id(1))
    return a, b


@triton.jit
def _kept(a, b, first_query, queries, first_key, keys, DROPPED: tl.constexpr):
    """Return 256 / (256 − DROPPED) where a value of the softmax is kept and 0 where it is dropped.

    Places are `first + arange`, of which one is a row and the other a column. Four values share a random word: those
    of two queries and two keys, each pair eight apart. A thread holds all four in the tensor cores' layout, of the
    tile and of its transpose, so that the compiler finds the words equal and makes each once. A word is the place and
    the first number through a hash without visible bias (lowbias32, whose first step is written out here), with the
    second number mixed in half-way; Philox takes several times the instructions.
    """
    query = (first_query + (queries & 0xFFF7)).to(tl.uint32)
    key = (first_key + (keys & 0xFFF7)).to(tl.uint32)
    word = ((query << 16) ^ query ^ a) ^ key
    word *= 0x7FEB352D
    word ^= (word >> 15) ^ b
    word *= 0x846CA68B
    word ^= word >> 16
    mine = word << (((queries & 8) << 1) | (keys & 8)).to(tl.uint32)  # a byte, moved to the top
    return tl.where(mine >= (DROPPED << 24), 256 / (256 - DROPPED), 0.0)


@triton.jit
def _places(head, first_query, queries, first_key, keys, room):
    """Return the places of these queries' and keys' biases in [heads, room, room]; no tile reaches beyond it."""
    first = tl.multiple_of((head * room + first_query) * room + first_key, 16)  # as all of them are
    return first + (queries * tl.multiple_of(room, 64) + keys)


@triton.jit
def _forward(
    qkv_ptr, cu_seqlens_ptr, seed_ptr, positions_ptr, out_ptr, sums_ptr,
    token_count, room,
    HEADS: tl.constexpr, D: tl.constexpr, DROPPED: tl.constexpr, BIASED: tl.constexpr,
    OWN: tl.constexpr, OTHERS: tl.constexpr,
):  # fmt: skip
    first, head, piece = tl.program_id(0) * OWN, tl.program_id(1), tl.program_id(2)
    start = tl.load(cu_seqlens_ptr + piece)
    length = tl.load(cu_seqlens_ptr + piece + 1) - start
    if first >= length:
        return
    h: tl.constexpr = HEADS * D
    own, others, columns = tl.arange(0, OWN), tl.arange(0, OTHERS), tl.arange(0, D)
    qkv_ptr += start.to(tl.int64) * 3 * h + head * D
    own_there = (first + own < length)[:, None]
    q = tl.load(qkv_ptr + (first + own)[:, None] * 3 * h + columns[None, :], own_there, 0.0)
    if DROPPED > 0:
        a, b = _key(seed_ptr, HEADS)
    top = tl.full((OWN,), float("-inf"), tl.float32)
    total = tl.zeros((OWN,), tl.float32)
    out = tl.zeros((OWN, D), tl.float32)
    for key in range(0, length, OTHERS):
        there = key + others < length
        passing = qkv_ptr + key * 3 * h + (others[:, None] * 3 * h + columns[None, :])
        k = tl.load(passing + h, there[:, None], 0.0)
        v = tl.load(passing + 2 * h, there[:, None], 0.0)
        beyond = tl.where(there, 0.0, float("-inf"))[None, :]  # added, which is cheaper than to choose
        scores = tl.dot(q, tl.trans(k)) * (LOG2_E / D**0.5) + beyond  # [OWN, OTHERS]
        if BIASED:
            places = _places(head, first, own[:, None], key, others[None, :], room)
            scores += tl.load(positions_ptr + places) * LOG2_E
        new_top = tl.maximum(top, tl.max(scores, 1))
        p = tl.math.exp2(scores - new_top[:, None])
        fade = tl.math.exp2(top - new_top)
        total = total * fade + tl.sum(p, 1)
        top = new_top
        if DROPPED > 0:
            p *= _kept(a, b, first, own[:, None], key, others[None, :], DROPPED)
        out = tl.dot(p.to(v.dtype), v, out * fade[:, None])
    out /= total[:, None]
    tokens = start + first + own
    tl.store(out_ptr + tokens.to(tl.int64)[:, None] * h + head * D + columns[None, :], out, own_there)
    tl.store(sums_ptr + (head * token_count + tokens) * 4, top + tl.math.log2(total), first + own < length)


@triton.jit
def _backward_queries(
    grad_ptr, qkv_ptr, cu_seqlens_ptr, seed_ptr, positions_ptr,
    out_ptr, sums_ptr, qkv_grad_ptr, shares_ptr, positions_grad_ptr,
    token_count, room,
    HEADS: tl.constexpr, D: tl.constexpr, DROPPED: tl.constexpr, BIASED: tl.constexpr,
    OWN: tl.constexpr, OTHERS: tl.constexpr,
):  # fmt: skip
    first, head, piece = tl.program_id(0) * OWN, tl.program_id(1), tl.program_id(2)
    start = tl.load(cu_seqlens_ptr + piece)
    length = tl.load(cu_seqlens_ptr + piece + 1) - start
    h: tl.constexpr = HEADS * D
    own, others, columns = tl.arange(0, OWN), tl.arange(0, OTHERS), tl.arange(0, D)
    shares_ptr += (piece * tl.num_programs(0) + tl.program_id(0)) * 3 * h + head * D + columns
    if first >= length:
        tl.store(shares_ptr, tl.zeros((D,), tl.float32))
        return
    qkv_ptr += start.to(tl.int64) * 3 * h + head * D
    own_there = first + own < length
    own_place = (first + own)[:, None] * 3 * h + columns[None, :]
    out_place = start.to(tl.int64) * h + head * D + (first + own)[:, None] * h + columns[None, :]
    q = tl.load(qkv_ptr + own_place, own_there[:, None], 0.0)
    grad = tl.load(grad_ptr + out_place, own_there[:, None], 0.0)
    out = tl.load(out_ptr + out_place, own_there[:, None], 0.0)
    along = tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
    sums_ptr += (head * token_count + start + first + own) * 4
    lse = tl.load(sums_ptr, own_there, float("inf"))
    tl.store(sums_ptr + 1, along, own_there)
    if DROPPED > 0:
        a, b = _key(seed_ptr, HEADS)
    of_q = tl.zeros((OWN, D), tl.float32)
    for key in range(0, length, OTHERS):
        there = key + others < length
        passing = qkv_ptr + key * 3 * h + (others[:, None] * 3 * h + columns[None, :])
        k = tl.load(passing + h, there[:, None], 0.0)
        v = tl.load(passing + 2 * h, there[:, None], 0.0)
        beyond = tl.where(there, 0.0, float("-inf"))[None, :]
        scores = tl.dot(q, tl.trans(k)) * (LOG2_E / D**0.5) - lse[:, None] + beyond  # [OWN, OTHERS]
        if BIASED:
            places = _places(head, first, own[:, None], key, others[None, :], room)
            scores += tl.load(positions_ptr + places) * LOG2_E
        p = tl.math.exp2(scores)
        of_p = tl.dot(grad, tl.trans(v))
        if DROPPED > 0:
            of_p *= _kept(a, b, first, own[:, None], key, others[None, :], DROPPED)
        of_scores = p * (of_p - along[:, None])
        if BIASED:
            tl.atomic_add(positions_grad_ptr + places, of_scores, sem="relaxed")  # zero beyond the piece
        of_q = tl.dot(of_scores.to(k.dtype), k, of_q)
    qkv_grad_ptr += start.to(tl.int64) * 3 * h + head * D
    of_q *= 1 / D**0.5
    tl.store(qkv_grad_ptr + own_place, of_q, own_there[:, None])
    tl.store(shares_ptr, tl.sum(of_q, 0))  # rows beyond the piece are zero


@triton.jit
def _backward_keys(
    grad_ptr, qkv_ptr, cu_seqlens_ptr, seed_ptr, positions_ptr, sums_ptr, qkv_grad_ptr, shares_ptr,
    token_count, room,
    HEADS: tl.constexpr, D: tl.constexpr, DROPPED: tl.constexpr, BIASED: tl.constexpr,
    OWN: tl.constexpr, OTHERS: tl.constexpr,
):  # fmt: skip
    first, head, piece = tl.program_id(0) * OWN, tl.program_id(1), tl.program_id(2)
    start = tl.load(cu_seqlens_ptr + piece)
    length = tl.load(cu_seqlens_ptr + piece + 1) - start
    h: tl.constexpr = HEADS * D
    own, others, columns = tl.arange(0, OWN), tl.arange(0, OTHERS), tl.arange(0, D)
    shares_ptr += (piece * tl.num_programs(0) + tl.program_id(0)) * 3 * h + head * D + columns
    if first >= length:
        tl.store(shares_ptr + h, tl.zeros((D,), tl.float32))
        tl.store(shares_ptr + 2 * h, tl.zeros((D,), tl.float32))
        return
    qkv_ptr += start.to(tl.int64) * 3 * h + head * D
    grad_ptr += start.to(tl.int64) * h + head * D
    sums_ptr += (head * token_count + start) * 4
    own_there = (first + own < length)[:, None]
    own_place = (first + own)[:, None] * 3 * h + columns[None, :]
    k = tl.load(qkv_ptr + h + own_place, own_there, 0.0)
    v = tl.load(qkv_ptr + 2 * h + own_place, own_there, 0.0)
    if DROPPED > 0:
        a, b = _key(seed_ptr, HEADS)
    of_k = tl.zeros((OWN, D), tl.float32)
    of_v = tl.zeros((OWN, D), tl.float32)
    for query in range(0, length, OTHERS):
        there = query + others < length
        rows = others[:, None]
        q = tl.load(qkv_ptr + query * 3 * h + (rows * 3 * h + columns[None, :]), there[:, None], 0.0)
        grad = tl.load(grad_ptr + query * h + (rows * h + columns[None, :]), there[:, None], 0.0)
        # Four numbers a row, of which two are read: with fewer, each thread would load those of its whole tile.
        sums = tl.load(sums_ptr + query * 4 + (rows * 4 + tl.arange(0, 4)[None, :]), there[:, None], 0.0)
        even, odd = tl.split(tl.reshape(sums, (OTHERS, 2, 2)))
        lse, _ = tl.split(even)
        along, _ = tl.split(odd)
        lse = tl.where(there, lse, float("inf"))  # which makes p zero
        # Both transposed, [OWN, OTHERS], so that the next products take them from registers as they are.
        scores = tl.dot(k, tl.trans(q)) * (LOG2_E / D**0.5) - lse[None, :]
        if BIASED:
            places = _places(head, query, others[:, None], first, own[None, :], room)
            scores += tl.trans(tl.load(positions_ptr + places)) * LOG2_E
        p = tl.math.exp2(scores)
        of_p, kept_p = tl.dot(v, tl.trans(grad)), p
        if DROPPED > 0:
            kept = _kept(a, b, query, others[None, :], first, own[:, None], DROPPED)
            of_p, kept_p = of_p * kept, p * kept
        of_v = tl.dot(kept_p.to(grad.dtype), grad, of_v)
        of_k = tl.dot((p * (of_p - along[None, :])).to(q.dtype), q, of_k)
    qkv_grad_ptr += start.to(tl.int64) * 3 * h + head * D
    of_k *= 1 / D**0.5
    tl.store(qkv_grad_ptr + h + own_place, of_k, own_there)
    tl.store(qkv_grad_ptr + 2 * h + own_place, of_v, own_there)
    tl.store(shares_ptr + h, tl.sum(tl.where(own_there, of_k, 0.0), 0))
    tl.store(shares_ptr + 2 * h, tl.sum(tl.where(own_there, of_v, 0.0), 0))


class _PackedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        bias: Tensor,
        positions: Tensor | None,
        cu_seqlens: Tensor,
        longest: int,
        seed: Tensor,
        dropped: int,
    ) -> Tensor:
        tokens, _, heads, d = qkv.shape
        out = qkv.new_empty(tokens, heads * d)
        # Of each token: log₂ of the softmax's denominator, and room for grad · out, which the first kernel of the
        # backward pass finds for the second; then nothing.
        sums = torch.empty(heads, tokens, 4, dtype=torch.float32, device=qkv.device)
        launch = _Launch(qkv, cu_seqlens, longest, dropped, room=None if positions is None else positions.shape[1])
        launch(_forward, FORWARD, qkv, cu_seqlens, seed, positions, out, sums)
        ctx.save_for_backward(qkv, positions, cu_seqlens, seed, out, sums)
        ctx.launch, ctx.precision = launch, bias.dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        qkv, positions, cu_seqlens, seed, out, sums = ctx.saved_tensors
        grad, qkv_grad = grad.contiguous(), torch.empty_like(qkv)
        blocks = max(triton.cdiv(ctx.launch.longest, tiles.own) for tiles in (QUERIES, KEYS))
        shares = torch.zeros if QUERIES.own != KEYS.own else torch.empty  # the coarser leaves some of them out
        of_bias = shares(blocks * (len(cu_seqlens) - 1), 3, *qkv.shape[2:], dtype=torch.float32, device=qkv.device)
        of_positions = None if positions is None else torch.zeros_like(positions)
        inputs = (grad, qkv, cu_seqlens, seed, positions)
        ctx.launch(_backward_queries, QUERIES, *inputs, out, sums, qkv_grad, of_bias, of_positions)
        ctx.launch(_backward_keys, KEYS, *inputs, sums, qkv_grad, of_bias)
        return qkv_grad, added_up(of_bias).flatten().to(ctx.precision), of_positions, None, None, None, None


class _Launch:
    """One program for each block of rows, head and piece; those beyond a piece's end return at once."""

    def __init__(self, qkv: Tensor, cu_seqlens: Tensor, longest: int, dropped: int, *, room: int | None) -> None:
        self.tokens, _, self.heads, self.d = qkv.shape
        self.pieces, self.longest, self.dropped, self.room = len(cu_seqlens) - 1, longest, dropped, room

    def __call__(self, kernel: Any, tiles: Tiles, *tensors: Tensor | None) -> None:
        own, others, warps, stages = tiles
        kernel[(triton.cdiv(self.longest, own), self.heads, self.pieces)](
            *tensors, self.tokens, self.room or 0,
            HEADS=self.heads, D=self.d, DROPPED=self.dropped, BIASED=self.room is not None,
            OWN=own, OTHERS=others, num_warps=warps, num_stages=stages,
        )  # fmt: skip


def packed_attention(
    qkv: Tensor,
    bias: Tensor,
    cu_seqlens: Tensor,
    longest: int,
    seed: Tensor,
    dropout: float = 0.0,
    positions: Tensor | None = None,
) -> Tensor:
    """Compute dropout(softmax(q·kᵀ/√d + positions))·v within each piece.

    Nothing is read back from the device, so that a CUDA graph can hold it.

    Args:
        qkv: [N, 3, heads, d], contiguous, in low precision; d is 32 or 64.
        bias: [3 · heads · d], which `qkv` has in it, added without a gradient. It gets that here: the kernels have
            the rows in their registers that a sum of its own would have to read again.
        cu_seqlens: [pieces + 1], int32, from 0 to N; pieces may be empty.
        longest: no piece has more tokens.
        seed: one integer on the device, from which the dropout follows.
        dropout: share of the softmax that is dropped, rounded to 256ths; what is kept grows to match.
        positions: [heads, R, R], what is added to the score of a query and a key by their places; R is a multiple of
            64 from `longest` on, and what lies beyond a piece's end is any number.

    Returns:
        [N, heads · d].
    """
    dropped = min(round(256 * dropout), 255)
    positions = None if positions is None else positions.float().contiguous()
    result: Tensor = _PackedAttention.apply(  # type: ignore[no-untyped-call]
        qkv, bias, positions, cu_seqlens, longest, seed, dropped
    )
    return result
