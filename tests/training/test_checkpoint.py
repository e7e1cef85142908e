"""Training state on disk: whole or not at all, and nothing forgotten."""

import resource

import pytest
import torch
from safetensors.torch import load_file, save
from torch import nn

from abalone.encoder.queue import MemoryQueue
from abalone.training.checkpoint import (
    DamagedError,
    check_tensors,
    load_tensors,
    restore_training_state,
    save_tensors,
    training_state,
)


class Toy(nn.Module):
    """Something with weights, dropout, a queue and a part that is not trained."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.5)
        self.queue = MemoryQueue(size=6, dim=width, num_labels=2)
        self.frozen = nn.Linear(width, width).requires_grad_(False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.frozen(self.dropout(self.layer(inputs)))


def make(seed: int) -> tuple[Toy, torch.optim.AdamW]:
    torch.manual_seed(seed)
    model = Toy()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return model, torch.optim.AdamW(trained, lr=0.1)


def step(model: Toy, optimiser: torch.optim.Optimizer) -> None:
    inputs = torch.randn(4, 4)
    loss = model(inputs).square().mean()
    loss.backward()
    optimiser.step()
    optimiser.zero_grad()
    model.queue.enqueue(model.layer(inputs), torch.ones(4, 2))


def test_tensors_and_notes_come_back(tmp_path):
    tensors = {
        "half": torch.tensor([0.1, 1e-3], dtype=torch.bfloat16),
        "switch": torch.tensor([[True, False]]),
        "count": torch.tensor(7),
        "none": torch.empty(0, 3),
        "strided": torch.arange(6.0).reshape(2, 3).T,
        "trained": nn.Parameter(torch.ones(2)),
    }
    notes = {"epoch": 3, "best": {"loss": 0.1}, "history": [{"seconds": 0.1 + 0.2}]}
    path = tmp_path / "run" / "state.safetensors"
    save_tensors(path, tensors, notes)
    found, found_notes = load_tensors(path)
    assert found_notes == notes
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("saved_after", [0, 1, 3])
def test_the_next_step_is_the_one_that_would_have_come(saved_after, tmp_path):
    model, optimiser = make(seed=0)
    for _ in range(saved_after):
        step(model, optimiser)
    save_tensors(tmp_path / "state", training_state(model, optimiser), {})
    for _ in range(3):
        step(model, optimiser)

    other, other_optimiser = make(seed=1)
    torch.rand(5)
    restore_training_state(other, other_optimiser, load_tensors(tmp_path / "state")[0])
    if saved_after:  # there are no moments before the first step
        moments = other_optimiser.state[other.layer.weight]
        assert moments["step"] == saved_after
        assert moments["exp_avg"].abs().sum() > 0
    assert len(other.queue) == min(4 * saved_after, 6)
    for _ in range(3):
        step(other, other_optimiser)
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
    for key, value in optimiser.state[model.layer.weight].items():
        assert torch.equal(other_optimiser.state[other.layer.weight][key], value), key


def test_the_state_names_everything():
    model, optimiser = make(seed=0)
    step(model, optimiser)
    state = training_state(model, optimiser)
    assert {
        "model.layer.weight",
        "model.frozen.weight",
        "model.queue.embeddings",
        "model.queue.pointer",
    } <= state.keys()
    assert {
        "optimiser.exp_avg.layer.weight",
        "optimiser.exp_avg_sq.layer.bias",
        "optimiser.step.layer.bias",
    } <= state.keys()
    assert "optimiser.exp_avg.frozen.weight" not in state
    torch.testing.assert_close(state["random.cpu"], torch.get_rng_state())


def test_the_random_numbers_of_a_gpu_go_on_too(monkeypatch):
    """With a GPU that is none; `test_training_on_gpu.py` has a real one."""
    model, optimiser = make(seed=0)
    stored = torch.arange(16, dtype=torch.uint8)
    given: list[torch.Tensor] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: stored)
    monkeypatch.setattr(torch.cuda, "set_rng_state", given.append)
    state = training_state(model, optimiser)
    restore_training_state(model, optimiser, state)
    assert len(given) == 1
    assert torch.equal(given[0], stored)
    on_cpu = {name: value for name, value in state.items() if name != "random.cuda"}
    restore_training_state(model, optimiser, on_cpu)  # saved where there was no GPU
    assert len(given) == 1


@pytest.fixture
def checkpoint(tmp_path):
    """One of every kind of tensor, so small that every byte of it can be tried."""
    path = tmp_path / "resume.safetensors"
    tensors = {"weight": torch.randn(3), "step": torch.tensor(2), "switch": torch.tensor([True]), "none": torch.ones(0)}
    save_tensors(path, tensors, {"epoch": 1})
    return path


def assert_refused(path):
    for read in (load_tensors, check_tensors):
        with pytest.raises(DamagedError, match=rf"the checkpoint {path} is damaged \(.+\)"):
            read(path)


def test_any_byte_that_flips_is_noticed(checkpoint):
    content = checkpoint.read_bytes()
    for position in range(len(content)):
        for bit in (1, 0x20, 0x80):  # 0x20: another case of the same letter
            damaged = bytearray(content)
            damaged[position] ^= bit
            checkpoint.write_bytes(damaged)
            assert_refused(checkpoint)


def test_a_byte_that_flips_behind_many_megabytes_is_noticed(tmp_path):
    path = tmp_path / "resume.safetensors"
    save_tensors(path, {"weight": torch.zeros(40_000_000, dtype=torch.uint8)}, {})
    assert check_tensors(path) == {}
    for position in (-1, -15_000_000):
        with path.open("r+b") as file:
            file.seek(position, 2)
            file.write(b"\1")
        assert_refused(path)
        with path.open("r+b") as file:
            file.seek(position, 2)
            file.write(b"\0")


def test_any_cut_is_noticed(checkpoint):
    content = checkpoint.read_bytes()
    for length in range(len(content)):
        checkpoint.write_bytes(content[:length])
        assert_refused(checkpoint)


@pytest.mark.parametrize(
    "content",
    [
        b"\0" * 500,
        b"\xff" * 500,
        b"PK\3\4 an archive",
        b"{}",
        (2).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (4).to_bytes(8, "little") + b"null",
        save({"weight": torch.ones(2)}),
        save({"weight": torch.ones(2)}, metadata={"checksum": "00000000", "notes": "{}"}),
        save({"weight": torch.ones(2)}, metadata={"checksum": "00000000", "notes": "3"}),
    ],
)
def test_a_foreign_file_is_noticed(content, checkpoint):
    checkpoint.write_bytes(content)
    assert_refused(checkpoint)


def test_a_tail_is_noticed(checkpoint):
    checkpoint.write_bytes(checkpoint.read_bytes() + b"\0")
    assert_refused(checkpoint)


def test_other_tools_read_it(tmp_path):
    tensors = {
        "a": torch.randn(2, 3),
        "b": torch.arange(3, dtype=torch.uint8),
        "c": torch.randn(5, dtype=torch.float64),
    }
    save_tensors(tmp_path / "state", tensors, {"epoch": 1})
    found = load_file(tmp_path / "state")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor)


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path):
    """A limit on file size fails in the middle of writing, as a full disk does."""
    path = tmp_path / "resume.safetensors"
    save_tensors(path, {"weight": torch.ones(10)}, {"step": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            save_tensors(path, {"weight": torch.zeros(10_000)}, {"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    tensors, notes = load_tensors(path)
    assert notes == {"step": 1}
    assert torch.equal(tensors["weight"], torch.ones(10))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
