"""The one training loop, for every objective.

It knows of batches, steps, epochs and checkpoints; what is minimised, and what is measured, is given to it.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from abalone.config import Schedule
from abalone.data.batches import shuffled_batches
from abalone.losses.checks import NotFiniteError
from abalone.model.feed import Feed, make_batch
from abalone.training.checkpoint import load_tensors, restore_training_state, save_tensors, training_state
from abalone.training.interruption import finish_step_first
from abalone.training.objectives import Objective
from abalone.training.progress import EpochBar

RESUME = "resume.safetensors"  # in the run's folder: all that is needed to go on


@dataclass(frozen=True)
class Plan:
    """How long, how fast, and what is kept on the way; the values come from `Config`."""

    epochs: int
    batch_size: int
    learning_rate: float
    head_learning_rate: float
    schedule: Schedule
    accumulation: int = 1
    weight_decay: float = 0.01
    warmup: float = 0.05
    clip: float = 1.0
    patience: int | None = None
    seed: int = 0
    checkpoint_seconds: float = 300
    keep_lowest: tuple[str, ...] = ()  # measures whose best epoch is kept under `<measure>.safetensors`
    keep_highest: tuple[str, ...] = ()


@dataclass
class Standing:
    """Where a run is: enough to go on from, and to tell its story."""

    epoch: int = 0
    batch: int = 0  # batches done in this epoch
    step: int = 0  # optimiser steps done
    loss_sum: float = 0.0  # over this epoch's documents
    comparable: bool = True  # whether this epoch's loss can be: against a queue that fills up it is lower
    best: dict[str, float] = field(default_factory=dict)
    best_epoch: dict[str, int] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)  # one entry an epoch


class TrainingDivergedError(ValueError):
    """The loss is no number any more."""


def train(
    objective: Objective,
    documents: Feed,
    plan: Plan,
    accelerator: Accelerator,
    folder: Path,
    *,
    measure: Callable[[], dict[str, float]],
    title: str = "Training",
    resume: bool = False,
) -> Standing:
    """Minimise `objective` over `documents`.

    Args:
        folder: where checkpoints go. The objective's lasting state of the last epoch is `last.safetensors`.
        measure: called after every epoch, in eval mode; what it returns goes into the history.
        resume: go on from the folder's checkpoint, if there is one, to the same result as without the break.
    """
    device = accelerator.device
    objective.to(device)
    adamw = torch.optim.AdamW(_parameter_groups(objective, plan), fused=device.type == "cuda")
    optimiser = accelerator.prepare_optimizer(adamw)  # unscales gradients where fp16 has scaled them
    base_rates = [group["lr"] for group in adamw.param_groups]
    torch.manual_seed(plan.seed)
    standing = Standing()
    if resume and (folder / RESUME).exists():
        tensors, notes = load_tensors(folder / RESUME)
        restore_training_state(objective, adamw, tensors)
        standing = Standing(**notes["standing"])
        if accelerator.scaler is not None:
            accelerator.scaler.load_state_dict(notes["scaler"])

    batches_an_epoch = math.ceil(len(documents) / plan.batch_size)
    steps = plan.epochs * math.ceil(batches_an_epoch / plan.accumulation)
    saved_at = time.monotonic()

    def save_standing() -> None:
        nonlocal saved_at
        scaler = None if accelerator.scaler is None else accelerator.scaler.state_dict()
        notes = {"standing": asdict(standing), "scaler": scaler}
        save_tensors(folder / RESUME, training_state(objective, adamw), notes)
        saved_at = time.monotonic()

    with finish_step_first() as interruption:
        while standing.epoch < plan.epochs and not _out_of_patience(standing, plan):
            batches = shuffled_batches(len(documents), plan.batch_size, seed=plan.seed, epoch=standing.epoch)
            objective.train()
            if standing.batch == 0:
                standing.comparable = objective.queue is None or len(objective.queue) == objective.queue.size
            started = time.monotonic()
            with EpochBar(f"{title} {standing.epoch + 1}/{plan.epochs}", len(batches), standing.batch) as bar:
                while standing.batch < len(batches):
                    batch = make_batch(documents, batches[standing.batch], device)
                    group = standing.batch // plan.accumulation * plan.accumulation
                    with accelerator.autocast(), _where(standing, folder):
                        loss = objective(batch)
                    value = loss.item()
                    _require_finite(value, f"the loss is {value}", standing, folder)
                    accelerator.backward(loss / min(plan.accumulation, len(batches) - group))
                    objective.after_batch(batch)
                    standing.loss_sum += value * len(batch.labels)
                    standing.batch += 1
                    if standing.batch % plan.accumulation == 0 or standing.batch == len(batches):
                        norm = accelerator.clip_grad_norm_(objective.parameters(), plan.clip)
                        if accelerator.scaler is None:  # which skips such steps by itself
                            _require_finite(float(norm), f"the gradient is {float(norm)}", standing, folder)
                        factor = learning_rate_factor(standing.step, steps, plan)
                        for settings, rate in zip(adamw.param_groups, base_rates, strict=True):
                            settings["lr"] = rate * factor
                        optimiser.step()
                        optimiser.zero_grad(set_to_none=True)
                        objective.after_step()
                        standing.step += 1
                        if interruption.asked or time.monotonic() - saved_at >= plan.checkpoint_seconds:
                            save_standing()
                        interruption.obey(f"{title} stopped after step {standing.step}; it can go on from {folder}")
                    seen = min(standing.batch * plan.batch_size, len(documents))
                    bar.update(standing.batch, standing.loss_sum / seen, len(batch.labels))
            with _where(standing, folder):
                _end_epoch(objective, len(documents), standing, plan, folder, measure, time.monotonic() - started)
            accelerator.log(standing.history[-1], step=standing.step)
            save_standing()
            interruption.obey(f"{title} stopped after epoch {standing.epoch}; it can go on from {folder}")
    accelerator.free_memory()  # else the next stage's gradients would be unscaled for this optimiser too
    return standing


def learning_rate_factor(step: int, steps: int, plan: Plan) -> float:
    """Linear warm-up, then down to 0 along a cosine or a line."""
    warm = plan.warmup * steps
    if step < warm:
        return (step + 1) / (warm + 1)
    done = (step - warm) / max(steps - warm, 1)
    return 0.5 * (1 + math.cos(math.pi * done)) if plan.schedule == "cosine" else 1 - done


def _parameter_groups(objective: Objective, plan: Plan) -> list[dict[str, Any]]:
    """Encoder and the rest, each with and without weight decay, which biases and norms are spared."""
    groups: dict[tuple[bool, bool], list[Tensor]] = {}
    for name, parameter in objective.named_parameters():
        if parameter.requires_grad:
            groups.setdefault((name.startswith("encoder."), parameter.dim() > 1), []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": plan.learning_rate if encoder else plan.head_learning_rate,
            "weight_decay": plan.weight_decay if decays else 0.0,
        }
        for (encoder, decays), parameters in groups.items()
    ]


def _require_finite(value: float, reason: str, standing: Standing, folder: Path) -> None:
    """Stop before weights are moved by what is no number, so that the last checkpoint stays a good one."""
    if not math.isfinite(value):
        at = f"step {standing.step + 1} (epoch {standing.epoch + 1}, batch {standing.batch + 1})"
        kept = f"the last good checkpoint is in {folder}" if (folder / RESUME).exists() else "nothing was saved yet"
        raise TrainingDivergedError(f"at {at} {reason}; {kept}. Try a lower learning rate, or precision fp32.")


@contextmanager
def _where(standing: Standing, folder: Path) -> Iterator[None]:
    """Tell where a loss has refused what is no number."""
    try:
        yield
    except NotFiniteError as error:
        _require_finite(math.nan, str(error), standing, folder)


def _end_epoch(
    objective: Objective,
    documents: int,
    standing: Standing,
    plan: Plan,
    folder: Path,
    measure: Callable[[], dict[str, float]],
    seconds: float,
) -> None:
    objective.eval()
    with torch.no_grad():
        measures = {"train_loss": standing.loss_sum / documents, **measure()}
    standing.history.append({"epoch": standing.epoch + 1, **measures, "seconds": seconds})
    notes = {"epoch": standing.epoch + 1}
    for names, sign in ((plan.keep_lowest, 1), (plan.keep_highest, -1)):
        for name in names:
            if name == "train_loss" and not standing.comparable and standing.epoch + 1 < plan.epochs:
                continue
            if sign * measures[name] < sign * standing.best.get(name, sign * math.inf):
                standing.best[name], standing.best_epoch[name] = measures[name], standing.epoch + 1
                save_tensors(folder / f"{name}.safetensors", objective.lasting_state(), notes)
    standing.epoch, standing.batch, standing.loss_sum = standing.epoch + 1, 0, 0.0
    if standing.epoch == plan.epochs or _out_of_patience(standing, plan):
        save_tensors(folder / "last.safetensors", objective.lasting_state(), notes)


def _out_of_patience(standing: Standing, plan: Plan) -> bool:
    """Whether no kept measure of validation has improved for `patience` epochs."""
    watched = [name for name in (*plan.keep_lowest, *plan.keep_highest) if name != "train_loss"]
    if plan.patience is None or not watched:
        return False
    return standing.epoch - max(standing.best_epoch.get(name, 0) for name in watched) >= plan.patience
