"""Training state on disk: one safetensors file, written whole or not at all, and never a pickle."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from abalone.data.cache import written_whole


def save_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
    """Write tensors and JSON-safe notes to `path`; a crash or a full disk leaves what was there before."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with written_whole(path) as file:
        file.write(save(whole, metadata={"notes": json.dumps(notes)}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_tensors` wrote; a damaged file is refused by name."""
    try:
        with safe_open(path, framework="pt") as file:
            notes = json.loads((file.metadata() or {}).get("notes", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, notes  # noqa: SIM118 - not a dict
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"the checkpoint {path} is damaged ({error}); remove it to start again") from None


def training_state(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Everything the next step depends on: weights, optimiser moments, random states."""
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    for parameter, moments in optimiser.state.items():
        for key, value in moments.items():
            state[f"optimiser.{key}.{names[parameter]}"] = torch.as_tensor(value)
    state["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        state["random.cuda"] = torch.cuda.get_rng_state()
    return state


def restore_training_state(model: nn.Module, optimiser: torch.optim.Optimizer, state: Mapping[str, Tensor]) -> None:
    """Put `training_state` back in place, so that the next step is the one that would have come."""
    model.load_state_dict({name.removeprefix("model."): v for name, v in state.items() if name.startswith("model.")})
    parameters = dict(model.named_parameters())
    for name, value in state.items():
        if name.startswith("optimiser."):
            _, key, parameter_name = name.split(".", 2)
            parameter = parameters[parameter_name]
            # AdamW keeps its step count on the CPU unless it is fused; both take it from there.
            value = value if key == "step" and not parameter.is_cuda else value.to(parameter.device)
            optimiser.state[parameter][key] = value
    torch.set_rng_state(state["random.cpu"])
    if torch.cuda.is_available() and "random.cuda" in state:
        torch.cuda.set_rng_state(state["random.cuda"])


class KeptStates:
    """The best epochs' weights, in main memory until they are written together with where the run stands.

    An epoch may take seconds, and the best of 80 epochs is often the latest: writing each would cost more than it.
    What a crash loses is made again, since the run then goes on from before.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._waiting: dict[str, tuple[dict[str, Tensor], dict[str, Any]]] = {}

    def keep(self, names: Sequence[str], state: Mapping[str, Tensor], notes: dict[str, Any]) -> None:
        """Keep a copy of these tensors as they are now, under each of these names."""
        if names:
            copies = {name: value.detach().to("cpu", copy=True) for name, value in state.items()}
            self._waiting |= dict.fromkeys(names, (copies, notes))

    def write(self) -> None:
        """Write what waits."""
        for name, (state, notes) in self._waiting.items():
            save_tensors(self.folder / f"{name}.safetensors", state, notes)
        self._waiting.clear()
