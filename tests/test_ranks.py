"""How processes speak to each other: in order, with gradients, and never waiting for one that is gone."""

import os
import signal
import time
from itertools import chain

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing import ProcessExitedException

from abalone.ranks import ALONE, RankLostError, Ranks
from together import run_together


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("documents", [0, 1, 2, 7, 8, 32, 33])
def test_shares_are_the_whole_in_order(count, documents):
    everything = list(range(documents))
    shares = [everything[Ranks(index, count).share(documents)] for index in range(count)]
    assert list(chain.from_iterable(shares)) == everything
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)  # the main process always has a document


def test_alone_there_is_nobody_to_ask():
    rows = torch.rand(3, 2, requires_grad=True)
    assert ALONE.gather(rows, 3) is rows
    assert ALONE.any(True, False) == (True, False)
    assert ALONE.told_by_main(lambda: 5) == 5
    ALONE.wait()
    before = torch.get_rng_state()
    with ALONE.own_random_numbers(0):
        assert torch.equal(torch.get_rng_state(), before)


def speak(index: int, count: int, folder) -> None:
    """All that these processes do for the tests below, since starting them costs more than this."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # by which the survivor would be ended before it can tell
    dist.init_process_group("gloo")
    ranks = Ranks(index, count, first_here=index == 0)
    check_gradients(ranks)
    check_messages(ranks)
    check_files(ranks)
    check_random_numbers(ranks)
    check_that_the_first_goes_first(ranks, folder)
    (folder / f"spoke-{index}").touch()
    ranks.wait()
    if ranks.main:  # through which the processes have found each other
        os.kill(os.getpid(), signal.SIGKILL)
    check_that_a_loss_is_noticed(ranks)
    (folder / "noticed").touch()


def check_gradients(ranks: Ranks) -> None:
    """A weight before the gathering, one behind it, and one that only two documents of five come by."""
    documents, labels = torch.arange(10.0, dtype=torch.float64).reshape(5, 2), torch.tensor([1.0, 0, 1, 1, 0]).double()

    def loss_of(own: slice, gather) -> tuple[torch.Tensor, list[torch.Tensor]]:
        torch.manual_seed(0)
        weights = [torch.rand(2, 3, dtype=torch.float64), torch.rand(3, dtype=torch.float64)]
        before, behind = (weight.requires_grad_() for weight in weights)
        features = gather(torch.tanh(0.1 * documents[own] @ before))  # [5, 3]
        similar = features @ features.T  # documents of one process meet those of another
        return (similar.logsumexp(1) * labels - features @ behind).square().mean(), [before, behind]

    whole, expected = loss_of(slice(None), lambda rows: rows)
    whole.backward()
    loss, found = loss_of(ranks.share(5), lambda rows: ranks.gather(rows, 5))
    torch.testing.assert_close(loss, whole)
    loss.backward()
    ranks.average_gradients([*found, torch.ones(1)])  # one that has none
    for parameter, other in zip(found, expected, strict=True):
        torch.testing.assert_close(parameter.grad, other.grad)


def check_messages(ranks: Ranks) -> None:
    assert ranks.any(ranks.index == 1, False, True) == (True, False, True)
    assert ranks.told_by_main(lambda: {"name": "é", "value": 0.1 + 0.2, "from": ranks.index})["from"] == 0

    def fail() -> int:
        raise ValueError("the disk is full")

    kind, words = (ValueError, "") if ranks.main else (RankLostError, "the main process has stopped: ")
    with pytest.raises(kind, match=f"^{words}the disk is full"):
        ranks.told_by_main(fail)


def check_files(ranks: Ranks) -> None:
    tensors = {
        "half": torch.tensor([0.1, 2.0], dtype=torch.bfloat16),
        "switch": torch.tensor([[True, False]]),
        "count": torch.tensor(7),
        "strided": torch.arange(6.0).reshape(2, 3).T,
        "bytes": torch.get_rng_state(),
    }
    reads = []

    def read():
        reads.append(1)
        return tensors, {"epoch": 3}

    found, notes = ranks.read_by_main(read)
    assert notes == {"epoch": 3}
    assert len(reads) == ranks.main
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert name == "bytes" or torch.equal(found[name], tensor), name
        assert found[name].dtype == tensor.dtype

    module = torch.nn.BatchNorm1d(3)
    module.register_buffer("switches", torch.tensor([ranks.main]))
    torch.nn.init.constant_(module.weight, ranks.index)
    ranks.make_equal(module)
    assert module.weight.tolist() == [0, 0, 0]
    assert module.switches.tolist() == [True]


def check_random_numbers(ranks: Ranks) -> None:
    torch.manual_seed(5)
    drawn = []
    for place in ((0, 1), (0, 2), (0, 1)):
        with ranks.own_random_numbers(*place):
            drawn.append(torch.rand(4))
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[1])
    gathered = ranks.gather(torch.stack([drawn[0], torch.rand(4)]), 2 * ranks.count)
    of_place, elsewhere = gathered[0::2], gathered[1::2]
    assert not torch.equal(of_place[0], of_place[1])
    assert torch.equal(elsewhere[0], elsewhere[1])


def check_that_the_first_goes_first(ranks: Ranks, folder) -> None:
    with ranks.first_here_goes_first():
        if ranks.first_here:
            time.sleep(0.1)
            (folder / "made").touch()
        assert (folder / "made").exists()


def check_that_a_loss_is_noticed(ranks: Ranks) -> None:
    for ask in (lambda: ranks.gather(torch.zeros(1, 1), 2), lambda: ranks.any(True), lambda: ranks.told_by_main(int)):
        with pytest.raises(
            RankLostError, match=r"another of the 2 processes has ended or cannot be reached \([^\[.]+"
        ) as lost:
            ask()
        assert "imed out" not in str(lost.value)  # noticed, not waited for in vain


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What two processes have left behind, of which one was killed at the end."""
    folder = tmp_path_factory.mktemp("together")
    with pytest.raises(ProcessExitedException, match="SIGKILL"):
        run_together(2, speak, 2, folder)
    return folder


@pytest.mark.parametrize("index", [0, 1])
def test_processes_speak(index, together):
    assert (together / f"spoke-{index}").exists()


def test_a_process_that_is_killed_is_noticed(together):
    assert (together / "noticed").exists()
