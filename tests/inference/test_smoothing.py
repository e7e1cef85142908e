"""Smoothing changes nothing but what 8 bits make of a layer with outliers."""

import torch
from torch import nn

from abalone.inference.smoothing import Smoothed, smooth


class Block(nn.Module):
    """Something square, something that widens, something that narrows."""

    def __init__(self):
        super().__init__()
        self.square, self.wide, self.narrow = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, states):
        return self.narrow(torch.relu(self.wide(self.square(states))))


def in_8_bits(values, dim=None):
    """Rounded to 255 steps of the whole range, or of each row's."""
    largest = values.abs().max() if dim is None else values.abs().amax(dim, keepdim=True)
    return (values / largest * 127).round() / 127 * largest


def test_the_function_stays_and_square_layers_are_left_alone():
    torch.manual_seed(0)
    block, states = Block(), torch.randn(4, 5, 8)
    before, beyond = block(states), block(10 * states)
    smooth(block, states=states)
    assert [type(layer) for layer in (block.square, block.wide, block.narrow)] == [nn.Linear, Smoothed, Smoothed]
    torch.testing.assert_close(block(states), before)
    torch.testing.assert_close(block(10 * states), beyond)  # also where inputs are larger than those it has seen


def test_eight_bits_lose_less():
    torch.manual_seed(0)
    layer, states = nn.Linear(64, 128, bias=False), torch.randn(200, 64)
    states[:, 3] *= 50  # the outlier
    exact = states @ layer.weight.T
    plain = in_8_bits(states) @ in_8_bits(layer.weight, 1).T
    holder = nn.Sequential(layer)
    smooth(holder, input=states)
    smoothed = in_8_bits(states * holder[0].factor) @ in_8_bits(holder[0].layer.weight, 1).T
    assert (smoothed - exact).abs().mean() < 0.5 * (plain - exact).abs().mean()


def test_an_entry_that_is_always_zero():
    layer = nn.Linear(4, 2)
    states = torch.tensor([[0.0, 1.0, -2.0, 0.0]])
    before = layer(states)
    holder = nn.Sequential(layer)
    smooth(holder, input=states)
    torch.testing.assert_close(holder(states), before)
    assert torch.isfinite(holder[0].layer.weight).all()
