"""Device and precision, chosen anew for every run of a process."""

import os

import pytest
import torch

from abalone.training import processes
from abalone.training.processes import make_accelerator

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
    with pytest.raises(ImportError, match=r"pip install 'abalone-mltc\[tensorboard\]'"):
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
