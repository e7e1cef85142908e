"""Which device to compute on."""

import torch


def choose_device(device: str = "auto") -> torch.device:
    """The device by name; "auto" is CUDA where there is any, then Apple's GPU, then the CPU."""
    if device != "auto":
        try:
            chosen = torch.device(device)
        except RuntimeError:
            raise ValueError(f"no device is called {device!r}; use auto, cpu, cuda, cuda:1 or mps") from None
        there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        if not there.get(chosen.type, False) or (chosen.index or 0) >= max(torch.cuda.device_count(), 1):
            raise ValueError(f"device {device!r} was asked for, but torch finds none here; use device='auto'")
        return chosen
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
