import pytest
import torch

import abalone.device
from abalone.device import choose_device, cpu_has_bf16, cpu_is_faster_in_bf16, reading_precision


def test_a_processor_without_the_instructions_is_not_tried(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    cpu_is_faster_in_bf16.cache_clear()
    assert not cpu_is_faster_in_bf16()
    cpu_is_faster_in_bf16.cache_clear()


@pytest.mark.parametrize(("half", "faster"), [(1.0, True), (3.0, False)])
def test_the_faster_precision_is_found_by_trying(half, faster, monkeypatch):
    """A product takes two seconds in full precision, and `half` in the other, by a clock that nothing else moves."""
    now = 0.0

    def multiply(x: torch.Tensor, y: torch.Tensor) -> None:
        nonlocal now
        now += 2 if x.dtype == torch.float32 else half

    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.Tensor, "__matmul__", multiply)
    monkeypatch.setattr(abalone.device.time, "perf_counter", lambda: now)
    cpu_is_faster_in_bf16.cache_clear()
    assert cpu_is_faster_in_bf16() == faster
    cpu_is_faster_in_bf16.cache_clear()


def test_texts_are_read_in_full_precision_unless_another_is_named():
    assert [reading_precision(name) for name in ("auto", "fp32", "bf16")] == [None, None, torch.bfloat16]


def test_a_device_that_is_not_there():
    with pytest.raises(ValueError, match="no device is called 'nowhere'"):
        choose_device("nowhere")


@pytest.mark.parametrize("supported", [True, False])
def test_x86_is_asked_for_its_bf16_instructions(supported, monkeypatch):
    monkeypatch.setattr(abalone.device.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: supported, raising=False)
    assert cpu_has_bf16() == supported


def test_a_torch_that_cannot_be_asked_is_believed_to_have_bf16(monkeypatch):
    monkeypatch.setattr(abalone.device.platform, "machine", lambda: "x86_64")
    monkeypatch.delattr(torch.cpu, "_is_avx512_bf16_supported")
    assert cpu_has_bf16()
