"""The Triton kernels, on a GPU or, where there is none, in Triton's interpreter (`make test-kernels`)."""

import os

import pytest
import torch
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs a GPU, or Triton's interpreter", allow_module_level=True)
    pytest.importorskip("triton")
from abalone.encoder.fast.elementwise_kernels import add_and_normalise, gelu  # noqa: E402 - not without Triton

ROUNDING = {"rtol": 8e-3, "atol": 8e-3}  # of bfloat16


def draw(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=DEVICE).to(dtype).requires_grad_()


def norm_inputs(rows, width):
    torch.manual_seed(rows)
    return draw(rows, width, dtype=torch.bfloat16), draw(width), draw(rows, width), draw(width), draw(width)


@pytest.mark.parametrize("shape", [(5, 32), (9, 48), (1, 384)])
@pytest.mark.parametrize("wanted", ["both", "whole", "half"])
def test_norm_of_the_sum(shape, wanted):
    given = norm_inputs(*shape)
    mixed, bias, states, weight, norm_bias = given
    whole, half = add_and_normalise(*given, torch.tensor([5], device=DEVICE), eps=1e-5, dropout=0.0)
    expected = F.layer_norm(mixed.float() + bias + states, shape[1:], weight, norm_bias, 1e-5)
    torch.testing.assert_close(whole, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(half.float(), whole, **ROUNDING)
    gradients = torch.randn(*shape, device=DEVICE), torch.randn(*shape, device=DEVICE).bfloat16()
    used = {"both": (0, 1), "whole": (0,), "half": (1,)}[wanted]
    ours = torch.autograd.grad([(whole, half)[i] for i in used], given, [gradients[i] for i in used])
    theirs = torch.autograd.grad(expected, given, sum(gradients[i].float() for i in used))
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.float(), reference.float(), **ROUNDING)


def test_dropout_is_the_same_in_both_directions_and_follows_the_seed():
    rows, width, share = 300, 64, 0.25
    ones = torch.ones(rows, width, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    nothing, unit = torch.zeros(width, device=DEVICE), torch.ones(width, device=DEVICE)
    states = torch.zeros(rows, width, device=DEVICE, requires_grad=True)

    def run(seed):
        seed = torch.tensor([seed], device=DEVICE)
        return add_and_normalise(ones, nothing, states, unit, nothing, seed, eps=1e-5, dropout=share)[0]

    out = run(3)
    kept = out > 0  # what is kept is above the mean of its row
    assert abs(kept.float().mean().item() - (1 - share)) < 0.01
    assert (kept.float().mean(0) - (1 - share)).abs().max() < 0.15  # in every column
    of_ones, of_states = torch.autograd.grad(out, (ones, states), torch.randn(rows, width, device=DEVICE))
    torch.testing.assert_close(of_ones.float(), of_states * kept / (1 - share), **ROUNDING)
    assert torch.equal(run(3), out)
    assert not torch.equal(run(4), out)


@pytest.mark.parametrize("shape", [(6, 40), (3, 1100)])
def test_gelu(shape):
    torch.manual_seed(0)
    x = (4 * torch.randn(*shape, device=DEVICE)).bfloat16().requires_grad_()
    bias = draw(shape[1])
    out, expected = gelu(x, bias), F.gelu(x.float() + bias)
    torch.testing.assert_close(out.float(), expected, **ROUNDING)
    gradient = torch.randn(*shape, device=DEVICE).bfloat16()
    ours = torch.autograd.grad(out, (x, bias), gradient)
    theirs = torch.autograd.grad(expected, (x, bias), gradient.float())
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.float(), reference.float(), **ROUNDING)


def test_gelu_is_exact_far_from_nothing_too():
    x = torch.linspace(-6, 6, 1024, device=DEVICE).half().unsqueeze(0)
    out = gelu(x, torch.zeros(1024, device=DEVICE))
    torch.testing.assert_close(out.double(), F.gelu(x.double()), rtol=2e-3, atol=1e-7)
