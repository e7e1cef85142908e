"""Copies in main memory: of one moment, and in the same place the next time."""

import pytest
import torch
from torch import nn

from abalone.training.checkpoint import PLACE, Snapshot, _room

KINDS = {
    "half": torch.tensor([0.1, 1e-3, 3.0], dtype=torch.bfloat16),
    "switch": torch.tensor([[True, False], [False, False]]),
    "count": torch.tensor(7),
    "none": torch.empty(0, 3),
    "strided": torch.arange(6.0).reshape(2, 3).T,
    "trained": nn.Parameter(torch.ones(2)),
    "random": torch.get_rng_state(),
}


def same(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype
        assert torch.equal(tensor, other[name]), name


def test_every_kind_of_tensor_is_copied():
    snapshot = Snapshot()
    snapshot.take(KINDS)
    same(snapshot.tensors(), KINDS)
    for tensor in snapshot.tensors().values():
        assert tensor.is_contiguous()
        assert tensor.numel() == 0 or tensor.data_ptr() % PLACE == 0
        assert not tensor.requires_grad


def test_it_is_of_one_moment():
    state = {"weight": torch.ones(3), "step": torch.tensor(1)}
    snapshot = Snapshot()
    snapshot.take(state)
    for tensor in state.values():
        tensor.add_(1)
    same(snapshot.tensors(), {"weight": torch.ones(3), "step": torch.tensor(1)})
    places = {name: tensor.data_ptr() for name, tensor in snapshot.tensors().items()}
    snapshot.take(state)
    same(snapshot.tensors(), state)
    assert {name: tensor.data_ptr() for name, tensor in snapshot.tensors().items()} == places


@pytest.mark.parametrize(
    "other", [{"a": torch.ones(3)}, {"b": torch.ones(2)}, {"a": torch.ones(2).double()}, {"a": torch.ones(1, 2)}]
)
def test_other_tensors_get_another_room(other):
    snapshot = Snapshot()
    snapshot.take({"a": torch.zeros(2)})
    snapshot.take(other)
    same(snapshot.tensors(), other)


def test_memory_that_cannot_be_pinned_does_as_well(monkeypatch):
    def refusing(*size, pin_memory=False, **kind):
        if pin_memory:
            raise RuntimeError("CUDA error: out of memory")
        return plain(*size, **kind)

    plain = torch.empty
    monkeypatch.setattr(torch, "empty", refusing)
    room = _room(KINDS, pinned=True)
    assert {name: (tensor.dtype, tensor.shape) for name, tensor in room.items()} == {
        name: (tensor.dtype, tensor.shape) for name, tensor in KINDS.items()
    }


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_not_waited_for_and_what_comes_after_does_no_harm():
    state = {"weight": torch.ones(2**20, device="cuda"), "random": torch.get_rng_state()}
    snapshot = Snapshot()
    snapshot.take(state)  # pins
    for turn in range(3):
        torch.cuda._sleep(10**8)
        snapshot.take(state)
        assert not snapshot._copied.query()
        state["weight"].add_(1)
        copied = snapshot.tensors()["weight"]
        assert copied.is_pinned()
        assert torch.equal(copied, torch.full((2**20,), turn + 1.0))
