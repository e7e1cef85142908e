import torch
from hypothesis import given
from hypothesis import strategies as st

from abalone.encoder.packed import Packed


def packed(lengths, filler=None, longest=None):
    ends = torch.tensor([0, *lengths, *([] if filler is None else [filler])]).cumsum(0).int()
    return Packed(
        torch.arange(int(ends[-1])) + 1, ends, longest or max(lengths), len(lengths), filled=filler is not None
    )


def test_where_tokens_are():
    batch = packed([3, 1, 2])
    assert batch.firsts.tolist() == [0, 3, 4]
    assert batch.piece_of.tolist() == [0, 0, 0, 1, 2, 2]
    assert batch.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert batch.lengths.tolist() == [3, 1, 2]
    assert batch.mask.int().tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
    assert batch.pad(batch.tokens).tolist() == [[1, 2, 3], [4, 0, 0], [5, 6, 0]]


def test_the_filler_is_no_piece():
    batch = packed([2, 1], filler=4, longest=3)
    assert batch.pieces == 2
    assert batch.pad(batch.tokens).tolist() == [[1, 2, 0], [3, 0, 0]]
    assert batch.unpad(batch.pad(batch.tokens)).tolist() == [1, 2, 3, 0, 0, 0, 0]
    nothing = packed([2, 1], filler=0)
    assert nothing.pad(nothing.tokens).tolist() == [[1, 2], [3, 0]]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.none() | st.integers(0, 5), st.integers(0, 3))
def test_padding_is_undone(lengths, filler, spare):
    batch = packed(lengths, filler, max(lengths) + spare)
    values = torch.rand(len(batch.tokens), 2)
    rectangle = batch.pad(values)
    assert rectangle.shape == (len(lengths), max(lengths) + spare, 2)
    assert not rectangle[~batch.mask].any()
    assert torch.equal(batch.unpad(rectangle)[: sum(lengths)], values[: sum(lengths)])
