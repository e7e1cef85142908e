import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from abalone import MemoryQueue


def rows(start: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbered documents: embedding (i, −i), labels the low bits of i."""
    i = torch.arange(start, start + n)
    return torch.stack([i, -i], 1).float(), torch.stack([i % 2, i // 2 % 2, i // 4 % 2], 1)


@given(size=st.integers(1, 9), batches=st.lists(st.integers(0, 12), max_size=8))
def test_holds_the_newest_rows_oldest_first(size, batches):
    queue = MemoryQueue(size=size, dim=2, num_labels=3)
    total = 0
    for n in batches:
        queue.enqueue(*rows(total, n))
        total += n
        embeddings, labels = queue.contents()
        expected = rows(max(total - size, 0), min(total, size))
        assert torch.equal(embeddings, expected[0])
        assert torch.equal(labels.long(), expected[1])
        assert len(queue) == min(total, size)


def test_starts_empty():
    embeddings, labels = MemoryQueue(size=4, dim=2, num_labels=3).contents()
    assert embeddings.shape == (0, 2)
    assert labels.shape == (0, 3)


def test_survives_state_dict_and_goes_on_in_the_same_place():
    queue = MemoryQueue(size=4, dim=2, num_labels=3)
    queue.enqueue(*rows(0, 6))
    other = MemoryQueue(size=4, dim=2, num_labels=3)
    other.load_state_dict(queue.state_dict())
    for q in (queue, other):
        q.enqueue(*rows(6, 3))
    assert torch.equal(queue.contents()[0], other.contents()[0])
    assert torch.equal(other.contents()[0], rows(5, 4)[0])


NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_GPU)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_goes_on_after_a_move_and_from_its_state(dtype, device):
    moved = MemoryQueue(size=4, dim=2, num_labels=3)
    moved.enqueue(*rows(0, 3))
    moved.to(device, dtype)
    restored = MemoryQueue(size=4, dim=2, num_labels=3).to(device, dtype)
    restored.enqueue(*rows(100, 4))
    assert restored.full
    restored.load_state_dict(moved.state_dict())
    for queue in (moved, restored):
        assert not queue.full
        queue.enqueue(*rows(3, 3))
        embeddings, labels = queue.contents()
        assert (embeddings.dtype, labels.dtype, embeddings.device.type) == (dtype, torch.bool, device)
        assert torch.equal(embeddings.float().cpu(), rows(2, 4)[0])
        assert torch.equal(labels.long().cpu(), rows(2, 4)[1])


def test_all_of_it_moves():
    queue = MemoryQueue(size=4, dim=2, num_labels=3).to("meta")  # where a part left behind would meet what has moved
    queue.enqueue(*rows(0, 3))
    assert {buffer.device.type for buffer in queue.buffers()} == {"meta"}


def test_keeps_values_and_not_the_graph():
    queue = MemoryQueue(size=4, dim=2, num_labels=3)
    embeddings = rows(0, 2)[0].requires_grad_()
    queue.enqueue(embeddings, rows(0, 2)[1])
    assert not queue.contents()[0].requires_grad


def test_bad_input_is_named():
    queue = MemoryQueue(size=4, dim=2, num_labels=3)
    with pytest.raises(ValueError, match=r"labels must be \[rows, 3\], got shape \(2, 2\)"):
        queue.enqueue(torch.zeros(2, 2), torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"embeddings must be \[rows, 2\], got shape \(2, 5\)"):
        queue.enqueue(torch.zeros(2, 5), torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"same number of rows, got shapes \(1, 2\) and \(2, 3\)"):
        queue.enqueue(torch.zeros(1, 2), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        MemoryQueue(size=0, dim=2, num_labels=3)
