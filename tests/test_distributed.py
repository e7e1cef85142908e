"""How processes speak to each other: in order, with gradients, and never waiting for one that is gone."""

import os
import signal
import time
from itertools import chain

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing import ProcessExitedException

from abalone import distributed
from abalone.distributed import ALONE, RankLostError, Ranks, join, launched_ranks, own_device
from together import environment, free_port, run_together

CPU = torch.device("cpu")


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
    assert ALONE.from_main(lambda: 5) == 5
    ALONE.barrier()
    before = torch.get_rng_state()
    with ALONE.own_random_numbers(0):
        assert torch.equal(torch.get_rng_state(), before)


def speak(index: int, count: int, folder) -> None:
    """All that these processes do for the tests below, since starting them costs more than this."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # by which the survivor would be ended before it can tell
    dist.init_process_group("gloo")
    of_the_program = dist.group.WORLD
    ranks = join(CPU)
    assert dist.group.WORLD is of_the_program
    assert (ranks.index, ranks.count, ranks.first_here) == (index, count, index == 0)
    check_gradients(ranks)
    check_messages(ranks)
    check_files(ranks)
    check_random_numbers(ranks)
    check_that_the_first_goes_first(ranks, folder)
    (folder / f"spoke-{index}").touch()
    ranks.barrier()
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
    assert ranks.from_main(lambda: {"name": "é", "value": 0.1 + 0.2, "from": ranks.index})["from"] == 0

    def fail() -> int:
        raise ValueError("the disk is full")

    kind, words = (ValueError, "") if ranks.main else (RankLostError, "the main process has stopped: ")
    with pytest.raises(kind, match=f"^{words}the disk is full"):
        ranks.from_main(fail)


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

    found, notes = ranks.tensors_from_main(read)
    assert notes == {"epoch": 3}
    assert len(reads) == ranks.main
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert name == "bytes" or torch.equal(found[name], tensor), name
        assert found[name].dtype == tensor.dtype

    module = torch.nn.BatchNorm1d(3)
    module.register_buffer("switches", torch.tensor([ranks.main]))
    torch.nn.init.constant_(module.weight, ranks.index)
    ranks.broadcast_module(module)
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
    for ask in (lambda: ranks.gather(torch.zeros(1, 1), 2), lambda: ranks.any(True), lambda: ranks.from_main(int)):
        with pytest.raises(
            RankLostError, match=r"another of the 2 processes has ended or cannot be reached \([^\[.]+"
        ) as lost:
            ask()
        assert "imed out" not in str(lost.value)  # noticed, not waited for in vain


def run_as_mpirun_does(index: int, count: int, folder) -> None:
    """Be told by other variables, and of no meeting point; make one model in the group that the library makes."""
    for name in environment(0, 1, 0):
        os.environ.pop(name)
    for name, value in (("RANK", index), ("SIZE", count), ("LOCAL_RANK", index), ("LOCAL_SIZE", count)):
        os.environ[f"OMPI_COMM_WORLD_{name}"] = str(value)
    os.environ["MASTER_PORT"] = (folder / "port").read_text()
    ranks = launched_ranks("cpu")
    assert (ranks.index, ranks.count, ranks.first_here) == (index, count, index == 0)
    assert ranks.any(index == 1) == (True,)
    assert launched_ranks("cpu") == ranks  # a second run of the same process
    (folder / f"joined-{index}").touch()


def leave_the_programs_group(index: int, count: int) -> None:
    """Leave it to the program at the end, but for our own group."""
    dist.init_process_group("gloo")
    ranks = join(CPU)
    assert ranks.any(index == 1) == (True,)
    distributed._leave()
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == count
    dist.destroy_process_group()


@pytest.mark.slow
def test_processes_of_mpirun_find_each_other(tmp_path):
    (tmp_path / "port").write_text(str(free_port()))
    run_together(2, run_as_mpirun_does, 2, tmp_path)
    assert len(list(tmp_path.glob("joined-*"))) == 2


@pytest.mark.slow
def test_group_of_the_program_is_left_to_it():
    run_together(2, leave_the_programs_group, 2)


class TestLaunchedInVain:
    """Refusals of what a launcher may have asked for."""

    @pytest.fixture(autouse=True)
    def launched_in_four(self, monkeypatch):
        variables = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}  # on two machines
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("MASTER_ADDR", raising=False)

    def test_each_has_a_gpu_of_its_machine(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        assert own_device(torch.device("cuda")) == torch.device("cuda:1")
        assert own_device(CPU) == CPU

    def test_one_gpu_by_name_cannot_be_shared(self):
        with pytest.raises(ValueError, match="device 'cuda:1' is one GPU, and there are 2 processes"):
            own_device(torch.device("cuda:1"))

    def test_more_processes_than_gpus(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        with pytest.raises(ValueError, match="2 processes were launched here for 1 GPU: launch one for each"):
            own_device(torch.device("cuda"))

    @pytest.mark.parametrize("kind", ["meta", "mps", "cuda"])
    def test_processes_that_do_not_find_each_other_do_not_train_apart(self, kind, monkeypatch):
        for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):  # no process knows which GPU is its own
            monkeypatch.delenv(name)
        with pytest.raises(ValueError, match="launch them with torchrun or accelerate"):
            join(torch.device(kind))

    def test_a_process_group_of_the_program_does_not_say_which_gpu_is_whose(self, monkeypatch):
        monkeypatch.delenv("LOCAL_RANK")
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
        monkeypatch.setattr(dist, "get_world_size", lambda: 4)
        with pytest.raises(ValueError, match="launch them with torchrun or accelerate"):
            join(torch.device("cuda"))

    def test_each_process_that_only_predicts_has_a_gpu_of_its_own(self, monkeypatch):
        current = []
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "set_device", current.append)
        monkeypatch.setattr(distributed, "join", lambda device: Ranks(3, 4))
        assert launched_ranks("cuda") == Ranks(3, 4)
        assert current == [torch.device("cuda:1")]

    def test_machines_without_a_meeting_point(self):
        with pytest.raises(ValueError, match="set MASTER_ADDR"):
            join(CPU)


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
