"""Device and precision, chosen anew for every run of a process."""

import os

import pytest
import torch

from abalone.training import processes
from abalone.training.processes import _own_device, make_accelerator

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def computed_in(accelerator) -> torch.dtype:
    layer = torch.nn.Linear(4, 4).to(accelerator.device)
    with accelerator.autocast():
        return layer(torch.ones(1, 4, device=accelerator.device)).dtype


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_precision_is_the_one_asked_for(precision, dtype):
    accelerator = make_accelerator("cpu", precision)
    assert accelerator.device == torch.device("cpu")
    assert computed_in(accelerator) == dtype


def test_runs_of_one_process_may_differ():
    """Accelerate itself would keep the first choice, or refuse the second."""
    chosen = [computed_in(make_accelerator("cpu", precision)) for precision in ("fp32", "bf16", "fp32", "bf16")]
    assert chosen == [torch.float32, torch.bfloat16] * 2


@pytest.mark.parametrize("supported", [True, False])
def test_auto_takes_bf16_where_the_processor_is_faster_with_it(supported, monkeypatch):
    monkeypatch.setattr(processes, "cpu_is_faster_in_bf16", lambda: supported)
    assert computed_in(make_accelerator("cpu", "auto")) == (torch.bfloat16 if supported else torch.float32)
    assert computed_in(make_accelerator("cpu", "fp32")) == torch.float32


@no_gpu
def test_auto_is_the_cpu_where_there_is_nothing_else(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert make_accelerator("auto", "fp32").device == torch.device("cpu")


def test_the_environment_is_left_as_it_was():
    before = dict(os.environ)
    make_accelerator("cpu", "fp32")
    assert dict(os.environ) == before


@pytest.mark.parametrize("name", ["gpu", "", "cpuu", "cuda:x"])
def test_names_that_are_no_device(name):
    with pytest.raises(ValueError, match=rf"no device is called '{name}'; use auto, cpu, cuda, cuda:1 or mps"):
        make_accelerator(name)


@no_gpu
@pytest.mark.parametrize("name", ["cuda", "cuda:1", "mps", "xpu", "meta"])
def test_a_device_that_is_not_there(name, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match=f"device '{name}' was asked for, but torch finds none here"):
        make_accelerator(name)
    assert make_accelerator("cpu", "fp32").device == torch.device("cpu")  # a mistake spoils nothing


def test_tensorboard_that_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setattr("abalone.training.processes.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install '\.\[tensorboard\]'"):
        make_accelerator("cpu", "fp32", str(tmp_path))


def test_backward_works_in_either_precision():
    for precision in ("fp32", "bf16"):
        accelerator = make_accelerator("cpu", precision)
        layer = torch.nn.Linear(4, 1)
        optimiser = accelerator.prepare_optimizer(torch.optim.AdamW(layer.parameters(), lr=0.1))
        before = layer.weight.detach().clone()
        with accelerator.autocast():
            loss = layer(torch.ones(2, 4)).sum()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(layer.parameters(), 1.0)
        optimiser.step()
        assert layer.weight.dtype == torch.float32
        assert not torch.equal(layer.weight, before)


class TestSeveralProcesses:
    """What a launcher may have asked for in vain."""

    @pytest.fixture(autouse=True)
    def launched_in_four(self, monkeypatch):
        variables = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}  # on two machines
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    def test_each_has_a_gpu_of_its_machine(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        assert _own_device(torch.device("cuda")) == torch.device("cuda:1")
        assert _own_device(torch.device("cpu")) == torch.device("cpu")

    def test_one_gpu_by_name_cannot_be_shared(self):
        with pytest.raises(ValueError, match="device 'cuda:1' is one GPU, and there are 2 processes"):
            _own_device(torch.device("cuda:1"))

    def test_more_processes_than_gpus(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        with pytest.raises(ValueError, match="2 processes were launched here for 1 GPU: launch one for each"):
            _own_device(torch.device("cuda"))

    def test_processes_that_do_not_find_each_other_do_not_train_apart(self, monkeypatch):
        for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):  # as mpirun leaves it, which Accelerate knows on CPUs only
            monkeypatch.delenv(name)
        monkeypatch.setattr(processes, "choose_device", lambda device: torch.device("meta"))
        with pytest.raises(ValueError, match="launch them with torchrun or accelerate"):
            make_accelerator("auto", "fp32")
