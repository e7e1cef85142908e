"""Device and precision, chosen anew for every run of a process."""

import os

import pytest
import torch

from abalone.training import runtime as runtime_module
from abalone.training.runtime import Runtime

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def computed_in(runtime) -> torch.dtype:
    layer = torch.nn.Linear(4, 4).to(runtime.device)
    with runtime.autocast():
        return layer(torch.ones(1, 4, device=runtime.device)).dtype


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float32)],  # a CPU is no faster in fp16
)
def test_precision_is_the_one_asked_for(precision, dtype):
    runtime = Runtime.start("cpu", precision)
    assert runtime.device == torch.device("cpu")
    assert computed_in(runtime) == dtype
    assert runtime.scaler is None


def test_gradients_in_fp16_are_scaled():
    assert isinstance(Runtime(torch.device("cpu"), torch.float16).scaler, torch.amp.GradScaler)
    assert Runtime(torch.device("cpu"), torch.bfloat16).scaler is None


def test_runs_of_one_process_may_differ():
    chosen = [computed_in(Runtime.start("cpu", precision)) for precision in ("fp32", "bf16", "fp32", "bf16")]
    assert chosen == [torch.float32, torch.bfloat16] * 2


@pytest.mark.parametrize("supported", [True, False])
def test_auto_takes_bf16_where_the_processor_is_faster_with_it(supported, monkeypatch):
    monkeypatch.setattr(runtime_module, "cpu_is_faster_in_bf16", lambda: supported)
    assert computed_in(Runtime.start("cpu", "auto")) == (torch.bfloat16 if supported else torch.float32)
    assert computed_in(Runtime.start("cpu", "fp32")) == torch.float32


@pytest.mark.parametrize(("supported", "dtype"), [(True, torch.bfloat16), (False, None)])
def test_auto_on_a_gpu_takes_bf16_where_it_is_not_emulated(supported, dtype, monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **options: asked.append(options) or supported)
    assert runtime_module._autocast_dtype(torch.device("cuda"), "auto") is dtype
    assert asked == [{"including_emulation": False}]


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_bf16_that_the_device_does_not_have_is_refused(kind, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda *_: False)
    with pytest.raises(ValueError, match=f"{kind} device cannot compute in bf16: use precision fp32"):
        runtime_module._autocast_dtype(torch.device(kind), "bf16")


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_bf16_that_the_device_has_is_taken(kind, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda *version: version == (14, 0))
    assert runtime_module._autocast_dtype(torch.device(kind), "bf16") is torch.bfloat16


@pytest.mark.parametrize(("name", "chosen"), [("cuda:1", [torch.device("cuda:1")]), ("cuda", []), ("cpu:0", [])])
def test_the_gpu_that_is_named_is_the_one_that_kernels_run_on(name, chosen, monkeypatch):
    current = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    assert Runtime.start(name, "fp32").device == torch.device(name)
    assert current == chosen


@no_gpu
def test_auto_is_the_cpu_where_there_is_nothing_else(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert Runtime.start("auto", "fp32").device == torch.device("cpu")


def test_the_environment_is_left_as_it_was():
    before = dict(os.environ)
    Runtime.start("cpu", "fp32")
    assert dict(os.environ) == before


@pytest.mark.parametrize("name", ["gpu", "", "cpuu", "cuda:x"])
def test_names_that_are_no_device(name):
    with pytest.raises(ValueError, match=rf"no device is called '{name}'; use auto, cpu, cuda, cuda:1 or mps"):
        Runtime.start(name)


@no_gpu
@pytest.mark.parametrize("name", ["cuda", "cuda:1", "mps", "xpu", "meta"])
def test_a_device_that_is_not_there(name, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match=f"device '{name}' was asked for, but torch finds none here"):
        Runtime.start(name)
    assert Runtime.start("cpu", "fp32").device == torch.device("cpu")  # a mistake spoils nothing


def test_backward_works_in_either_precision():
    for precision in ("fp32", "bf16"):
        runtime = Runtime.start("cpu", precision)
        layer = torch.nn.Linear(4, 1)
        optimiser = torch.optim.AdamW(layer.parameters(), lr=0.1)
        before = layer.weight.detach().clone()
        with runtime.autocast():
            loss = layer(torch.ones(2, 4)).sum()
        runtime.backward(loss)
        optimiser.step()
        assert layer.weight.dtype == torch.float32
        assert not torch.equal(layer.weight, before)
