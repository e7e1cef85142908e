"""The matrices' update against AdamW, lerp and copies one after the other; on a GPU, or in Triton's interpreter."""

import copy
import os

import pytest
import torch
from transformers import AutoModel, BertConfig

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu":
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs a GPU, or Triton's interpreter", allow_module_level=True)
    pytest.importorskip("triton")
from abalone.encoder.architectures import adapter_of  # noqa: E402
from abalone.encoder.fast.update_kernels import MatrixUpdate  # noqa: E402
from abalone.encoder.fast.weights import LowPrecisionWeights, RowGradients  # noqa: E402 - not without Triton

RATE, DECAY, MOMENTUM = 3e-2, 0.1, 0.75
TINY = {"vocab_size": 9, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 80}
TINY["max_position_embeddings"] = 6


def is_copy(matrix):
    nearest = matrix.parameter.detach().bfloat16()
    # The interpreter rounds towards zero.
    torch.testing.assert_close(matrix.copy, nearest, rtol=0 if DEVICE.type == "cuda" else 8e-3, atol=0)


class Both:
    """The same encoder twice, moved by our kernel and by torch."""

    def __init__(self, *, slow=True, frozen=0, tables=False):
        torch.manual_seed(0)
        model = AutoModel.from_config(BertConfig(**TINY), add_pooling_layer=False).to(DEVICE)
        for layer in model.encoder.layer[:frozen]:
            layer.requires_grad_(False)
        self.plain, self.model = copy.deepcopy(model), model
        self.copies = LowPrecisionWeights(adapter_of(model), torch.bfloat16)
        self.matrices = [matrix for matrix in self.copies.matrices if matrix.parameter.requires_grad]
        self.tables = self.copies.tables if tables else []
        if tables:
            self.copies.row_gradients = RowGradients.of(self.tables)
        mine = [*(matrix.parameter for matrix in self.matrices), *self.tables]
        self.adamw = torch.optim.AdamW(mine, RATE, weight_decay=DECAY)
        self.adamw.param_groups[0]["lr"] = torch.tensor(RATE, device=DEVICE)
        names = {parameter: name for name, parameter in model.named_parameters()}
        self.moved = [self.plain.get_parameter(names[parameter]) for parameter in mine]
        self.reference = torch.optim.AdamW(self.moved, RATE, weight_decay=DECAY)
        self.slow = copy.deepcopy(model).requires_grad_(False) if slow else None
        self.slow_copies = LowPrecisionWeights(adapter_of(self.slow), torch.bfloat16) if slow else None
        self.expected_slow = [parameter.detach().clone() for parameter in self.moved]
        self.make()

    def make(self):
        self.update = MatrixUpdate(self.adamw, self.copies, self.slow_copies, MOMENTUM)

    def step(self, divisor=1.0):
        for matrix, parameter in zip(self.matrices, self.moved[: len(self.matrices)], strict=True):
            matrix.gradient.copy_(torch.randn(matrix.gradient.shape))
            parameter.grad = matrix.gradient.float() / divisor
        if self.tables:
            self.fill_rows()
            gradients = self.copies.row_gradients.sums.split([len(table) for table in self.tables])
            for parameter, gradient in zip(self.moved[-len(self.tables) :], gradients, strict=True):
                parameter.grad = gradient / divisor
        self.update(torch.tensor(divisor, device=DEVICE))
        self.reference.step()
        for slow, parameter in zip(self.expected_slow, self.moved, strict=True):
            slow.lerp_(parameter.detach(), 1 - MOMENTUM)

    def fill_rows(self):
        """What a backward pass does: a gradient in some rows, and a mark on these."""
        sums, touched = self.copies.row_gradients
        rows = torch.rand(len(sums), device=DEVICE) < 0.4
        sums[rows] = torch.randn(int(rows.sum()), sums.shape[1], device=DEVICE)
        touched[rows] = 1

    def check(self):
        for mine, parameter in zip(self.tables, self.moved[len(self.matrices) :], strict=True):
            torch.testing.assert_close(mine, parameter, rtol=1e-5, atol=1e-6)
        if self.tables:
            self.check_rows_are_clean()
            if self.slow_copies is not None:
                for mine, slow in zip(self.slow_copies.tables, self.expected_slow[-len(self.tables) :], strict=True):
                    torch.testing.assert_close(mine, slow, rtol=1e-5, atol=1e-6)
        for matrix, parameter in zip(self.matrices, self.moved[: len(self.matrices)], strict=True):
            torch.testing.assert_close(matrix.parameter, parameter, rtol=1e-5, atol=1e-6)
            is_copy(matrix)
        if self.slow_copies is not None:
            followers = self.slow_copies.matrices[-len(self.matrices) :]
            for matrix, slow in zip(followers, self.expected_slow[: len(followers)], strict=True):
                torch.testing.assert_close(matrix.parameter, slow, rtol=1e-5, atol=1e-6)
                is_copy(matrix)

    def check_rows_are_clean(self):
        sums, touched = self.copies.row_gradients
        assert not sums.any()
        assert not touched.any()


@pytest.mark.parametrize("slow", [True, False])
@pytest.mark.parametrize("frozen", [0, 1])
def test_the_same_as_torch_one_after_the_other(slow, frozen):
    both = Both(slow=slow, frozen=frozen)
    for divisor in (1.0, 2.5, 1.0):
        both.step(divisor)
        both.check()
    lowest = both.model.encoder.layer[0].output.dense.weight
    assert torch.equal(lowest, both.plain.encoder.layer[0].output.dense.weight) == bool(frozen)


@pytest.mark.parametrize("slow", [True, False])
def test_tables_of_which_some_rows_have_a_gradient(slow):
    both = Both(slow=slow, tables=True)
    for divisor in (1.0, 2.5, 1.0):
        both.step(divisor)
        both.check()


@pytest.mark.parametrize("divisor", [float("nan"), float("inf")])
@pytest.mark.parametrize("tables", [True, False])
def test_nothing_moves_where_the_gradient_is_nan_or_infinite(divisor, tables):
    both = Both(tables=tables)
    both.step()
    moving = [tensor for matrix in both.matrices for tensor in (matrix.parameter, matrix.copy)] + both.tables
    before = [tensor.clone() for tensor in moving]
    for matrix in both.matrices:
        matrix.gradient.fill_(1.0)
    if tables:
        both.fill_rows()
        both.copies.row_gradients.sums[3], both.copies.row_gradients.touched[3] = divisor, 1
    both.update(torch.tensor(divisor, device=DEVICE))
    after = moving
    if tables:
        both.check_rows_are_clean()
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    both.step()
    both.check()  # the step was not counted either


def test_it_goes_on_from_moments_that_were_brought_back():
    both = Both(tables=True)
    both.step()
    for moments in both.adamw.state.values():
        for name, value in moments.items():
            moments[name] = value.clone()  # other places, as from a checkpoint
    both.make()
    both.step()
    both.check()


def test_norm_of_all_gradients():
    both = Both()
    both.step()
    expected = torch.stack([matrix.gradient.float().norm() for matrix in both.matrices]).norm()
    torch.testing.assert_close(both.update.norm(), expected, rtol=1e-4, atol=0)
    both = Both(tables=True)
    both.step()
    both.fill_rows()
    copies = [matrix.gradient.float().norm() for matrix in both.matrices]
    expected = torch.stack([*copies, 100 * both.copies.row_gradients.sums.norm()]).norm()
    both.copies.row_gradients.sums.mul_(100)
    torch.testing.assert_close(both.update.norm(), expected, rtol=1e-4, atol=0)
