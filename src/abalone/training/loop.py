"""The one training loop, for every objective.

It knows of batches, steps, epochs and checkpoints; the objective and the measures are given to it.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from abalone.config import Schedule
from abalone.data.batches import shuffled_batches
from abalone.encoder.fast.graph import own_stream
from abalone.encoder.feed import Feed, ready_batches
from abalone.errors import InputError
from abalone.losses.checks import NotFiniteError
from abalone.progress import overall, spoken
from abalone.training.callbacks import NONE, Callbacks, Progress
from abalone.training.checkpoint import Checkpoints, has_checkpoint, restore_training_state, training_state
from abalone.training.interruption import Interruption, finish_step_first
from abalone.training.objectives import Objective
from abalone.training.runtime import Runtime
from abalone.training.step import Step

log = logging.getLogger(__name__)

LAST = "last"  # the name of the epoch that a finished run ends with
REFRESH = 0.5  # seconds between looks at a GPU's loss; a step may be much shorter, and looking waits for the device


@dataclass(frozen=True)
class Plan:
    """Epochs, rates, and the epochs whose weights are kept; the values come from `Config`."""

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
    keep_lowest: tuple[str, ...] = ()  # measures whose best epoch's weights are kept
    keep_highest: tuple[str, ...] = ()


@dataclass
class Standing:
    """The progress of a run and its history: enough to resume it."""

    epoch: int = 0
    batch: int = 0  # batches done in this epoch
    step: int = 0  # optimiser steps done
    loss_sum: float = 0.0  # over this epoch's documents
    seconds: float = 0.0  # of this epoch, those before a break too
    comparable: bool = True  # whether this epoch's loss can be: against a queue that fills up it is lower
    best: dict[str, float] = field(default_factory=dict)
    best_epoch: dict[str, int] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)  # one entry an epoch

    def epoch_of(self, name: str) -> int | None:
        """Return the epoch whose weights are kept under the name of a measure, or as the last of a finished run."""
        return self.epoch if name == LAST else self.best_epoch.get(name)


class TrainingDivergedError(InputError):
    """The loss became NaN or infinite."""


def train(
    objective: Objective,
    documents: Feed,
    plan: Plan,
    runtime: Runtime,
    folder: Path,
    *,
    measure: Callable[[], dict[str, float]] = dict,
    title: str = "Training",
    fold: int | None = None,
    callbacks: Callbacks = NONE,
    validation_work: float = 0.0,
    resume: bool = False,
) -> Standing:
    """Minimise `objective` over `documents`.

    Args:
        folder: where checkpoints go, as `Checkpoints` reads them: of the best epochs and the last one the objective's
            lasting state.
        measure: called after every epoch, in eval mode; what it returns goes into the history.
        title: what the bar and the log call it.
        fold: the number of the fold whose model is trained; its epochs have no lines in the log.
        callbacks: told of steps and epochs.
        validation_work: units of `validation_of` in the estimate that `measure` does each time.
        resume: go on from the folder's checkpoint, if there is one, to the same result as without the break
            (on a GPU: but for rounding and the numbers that dropout draws).
    """
    ranks = objective.ranks
    training = _Training(objective, documents, plan, runtime, folder, title, fold, callbacks, validation_work)
    if resume and ranks.from_main(lambda: has_checkpoint(folder)):
        training.restore()
    ranks.broadcast_module(objective)
    at_the_end = training.checkpoints.completed_at_the_end()
    with finish_step_first() as interruption, own_stream(runtime.device), at_the_end:
        while not training.finished:
            training.epoch(interruption)
            training.end_epoch(measure)
            training.save_if_due(interruption, f"epoch {training.standing.epoch}", now=training.finished)
    training.skip_epochs(plan.epochs - training.standing.epoch)  # it may have stopped early
    training.step.end()
    runtime.free_memory()
    return training.standing


class _Training:
    """A run of the loop: its objective, documents and machine, and its progress."""

    def __init__(
        self,
        objective: Objective,
        documents: Feed,
        plan: Plan,
        runtime: Runtime,
        folder: Path,
        title: str,
        fold: int | None,
        callbacks: Callbacks,
        validation_work: float,
    ) -> None:
        self.objective, self.documents, self.plan = objective, documents, plan
        self.fold, self.callbacks, self.validation_work = fold, callbacks, validation_work
        self.runtime, self.folder, self.title, self.ranks = runtime, folder, title, objective.ranks
        self.stage = folder.name  # a kind of work in the estimate
        self.standing, self.checkpoints = Standing(), Checkpoints(folder, beside=runtime.device.type == "cuda")
        objective.to(runtime.device)
        self.step = Step(
            objective,
            parameter_groups(objective, plan),
            runtime,
            clip=plan.clip,
            batch_size=plan.batch_size,
            lengths=documents.lengths,
            accumulation=plan.accumulation,
        )
        self.steps_an_epoch = math.ceil(math.ceil(len(documents) / plan.batch_size) / plan.accumulation)
        self.rate, self._told = 0.0, (0, 0.0)  # of the latest step; what callbacks know of this epoch
        self._saved_at = self._timed_at = self._looked_at = time.monotonic()
        torch.manual_seed(plan.seed)

    @property
    def finished(self) -> bool:
        """Return whether all epochs are done, or no kept measure of validation has improved for `patience` of them."""
        standing, plan = self.standing, self.plan
        watched = [name for name in (*plan.keep_lowest, *plan.keep_highest) if name != "train_loss"]
        if standing.epoch >= plan.epochs:
            return True
        if plan.patience is None or not watched:
            return False
        return standing.epoch - max(standing.best_epoch.get(name, 0) for name in watched) >= plan.patience

    def epoch(self, interruption: Interruption) -> None:
        """Train on what is left of the current epoch."""
        standing, plan, device, documents = self.standing, self.plan, self.runtime.device, len(self.documents)
        batches = shuffled_batches(documents, plan.batch_size, seed=plan.seed, epoch=standing.epoch)
        self.objective.train()
        if standing.batch == 0:
            standing.comparable = self.objective.queue is None or self.objective.queue.full
        self.step.begin(standing.batch, standing.loss_sum)
        self._told = self._seen()
        self._timed_at = time.monotonic()
        progress = overall()
        progress.begin(f"{self.title} {standing.epoch + 1}/{plan.epochs}")
        for batch in ready_batches(self.documents, batches[standing.batch :], device, self.ranks):
            rows = batches[standing.batch]
            group = standing.batch // plan.accumulation * plan.accumulation  # the batches of one update
            share = 1 / min(plan.accumulation, len(batches) - group)
            standing.batch += 1
            update = standing.batch % plan.accumulation == 0 or standing.batch == len(batches)
            with self._where(), self.ranks.own_random_numbers(plan.seed, standing.epoch, standing.batch):
                self.rate = learning_rate_factor(standing.step, plan.epochs * self.steps_an_epoch, plan)
                self.step(batch, self.rate, share=share, update=update)
            standing.step += update
            # A CPU has no queue of work to wait for.
            if device.type == "cpu" or time.monotonic() - self._looked_at >= REFRESH:
                self.look()
                if update:
                    self.tell_step()
                progress.figures(f"loss {standing.loss_sum / min(standing.batch * plan.batch_size, documents):.4f}")
            progress.done(self.stage, int(self.documents.lengths[rows].sum()))
            if update:
                self.save_if_due(interruption, f"step {standing.step}")
        progress.figures("")
        self.look()

    def end_epoch(self, measure: Callable[[], dict[str, float]]) -> None:
        """Measure, and keep the weights where a measure is the best so far."""
        standing, plan = self.standing, self.plan
        self.objective.eval()
        with torch.no_grad(), self._where():
            measures = {"train_loss": standing.loss_sum / len(self.documents), **measure()}
        # The same on every rank but for rounding, which must not end one rank's training before another's.
        measures = self.ranks.from_main(lambda: measures)
        standing.history.append({"epoch": standing.epoch + 1, **measures, "seconds": standing.seconds})
        if self.fold is None and self.ranks.main:
            figures = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in measures.items())
            left = overall().left()
            rest = "" if left is None else f", about {spoken(left)} left"
            took = f"{standing.seconds:.0f} s{rest}"
            log.info("%s %d/%d: %s; %s", self.title, standing.epoch + 1, plan.epochs, figures, took)
        better = False
        for names, sign in ((plan.keep_lowest, 1), (plan.keep_highest, -1)):
            for name in names:
                if name == "train_loss" and not standing.comparable and standing.epoch + 1 < plan.epochs:
                    continue
                if sign * measures[name] < sign * standing.best.get(name, sign * math.inf):
                    standing.best[name], standing.best_epoch[name] = measures[name], standing.epoch + 1
                    better = True
        standing.epoch, standing.batch, standing.loss_sum, standing.seconds = standing.epoch + 1, 0, 0.0, 0.0
        if self.ranks.main and (better or self.finished):
            self.checkpoints.keep(standing.epoch, self.objective.lasting_state(), self._kept_epochs())
        measures = {name: value for name, value in standing.history[-1].items() if name != "epoch"}
        self.callbacks.epoch(self._progress(standing.epoch, measures["train_loss"], measures))

    def tell_step(self) -> None:
        """Tell the callbacks of the latest step, as far as the loss is known."""
        (documents, total), self._told = self._told, self._seen()
        loss = (self._told[1] - total) / (self._told[0] - documents)
        self.callbacks.step(self._progress(self.standing.epoch + 1, loss, {}))

    def _seen(self) -> tuple[int, float]:
        """Return the documents of this epoch that were trained on, and the sum of their losses."""
        return min(self.standing.batch * self.plan.batch_size, len(self.documents)), self.standing.loss_sum

    def _progress(self, epoch: int, loss: float, measures: Mapping[str, float]) -> Progress:
        rate = self.plan.learning_rate * self.rate
        return Progress(self.stage, self.fold, epoch, self.standing.step, loss, rate, measures)

    def _kept_epochs(self) -> set[int]:
        """Return the epochs whose weights are of use."""
        return set(self.standing.best_epoch.values()) | ({self.standing.epoch} if self.finished else set())

    def look(self) -> None:
        """Read the loss from the device, and refuse NaN: now and then, and before anything is saved."""
        tally = self.step.read()
        self.standing.loss_sum = tally.loss_sum
        now = self._looked_at = time.monotonic()
        self.standing.seconds += now - self._timed_at
        self._timed_at = now
        for batch, what in ((tally.wrong_loss, "loss"), (tally.wrong_gradient, "gradient")):
            if batch is not None:
                self._refuse(f"the {what} became NaN or infinite", batch)

    def save_if_due(self, interruption: Interruption, place: str, *, now: bool = False) -> None:
        """Write where the run stands, `now` or when the last time is long ago, or when it is to stop; then stop."""
        due = now or time.monotonic() - self._saved_at >= self.plan.checkpoint_seconds
        stop, due = self.ranks.any(interruption.asked, due)
        if stop or due:
            self.save()
            if stop or now:
                self.checkpoints.wait()
            stop, terminated = self.ranks.any(interruption.asked, interruption.terminated)
            if stop:  # since before, or meanwhile
                # A rank that left before the main one has written would have the launcher end that one too.
                self.checkpoints.wait()
                self.ranks.barrier()
                interruption.join_in(terminated=terminated)  # whichever rank was told
                interruption.obey(f"{self.title} stopped after {place}; it can go on from {self.folder}")

    def save(self) -> None:
        """Write where the run stands."""
        if self.standing.batch:
            self.look()
        if self.ranks.main:
            scaler = None if self.runtime.scaler is None else self.runtime.scaler.state_dict()
            notes = {"standing": asdict(self.standing), "scaler": scaler}
            self.checkpoints.write(training_state(self.objective, self.step.optimizer), notes, self._kept_epochs())
        self._saved_at = time.monotonic()

    def restore(self) -> None:
        """Restore the folder's latest good checkpoint."""
        tensors, notes = self.ranks.tensors_from_main(self.checkpoints.read)
        restore_training_state(self.objective, self.step.optimizer, tensors)
        standing = self.standing = Standing(**notes["standing"])
        self.skip_epochs(standing.epoch + standing.batch / math.ceil(len(self.documents) / self.plan.batch_size))
        if self.runtime.scaler is not None:
            self.runtime.scaler.load_state_dict(notes["scaler"])

    def skip_epochs(self, epochs: float) -> None:
        """Take epochs off the estimate that need not be trained."""
        overall().skip(self.stage, epochs * float(self.documents.lengths.sum()))
        overall().skip(validation_of(self.stage), math.floor(epochs) * self.validation_work)

    @contextmanager
    def _where(self) -> Iterator[None]:
        """Say at which step a loss refused NaN or infinite values."""
        try:
            yield
        except NotFiniteError as error:
            self._refuse(str(error), self.standing.batch)

    def _refuse(self, reason: str, batch: int) -> None:
        """Stop before NaN is saved, so that the last checkpoint stays a good one."""
        step = self.standing.epoch * self.steps_an_epoch + math.ceil(batch / self.plan.accumulation)
        at = f"step {step} (epoch {self.standing.epoch + 1}, batch {batch})"
        with suppress(Exception):  # there is a worse error to tell of
            self.checkpoints.wait()
        saved = has_checkpoint(self.folder)
        kept = f"the last good checkpoint is in {self.folder}" if saved else "nothing was saved yet"
        advice = f"Try a learning rate below {self.plan.learning_rate:g}, or precision fp32."
        raise TrainingDivergedError(f"at {at} {reason}; {kept}. {advice}")


def validation_of(stage: str) -> str:
    """Return the name in the estimate for reading the validation documents after the epochs of a stage."""
    return f"{stage}, validation"


def learning_rate_factor(step: int, steps: int, plan: Plan) -> float:
    """Return the factor of the learning rates: a linear warm-up, then down to 0 along a cosine or a line."""
    warm = plan.warmup * steps
    if step < warm:
        return (step + 1) / (warm + 1)
    done = (step - warm) / max(steps - warm, 1)
    return 0.5 * (1 + math.cos(math.pi * done)) if plan.schedule == "cosine" else 1 - done


def parameter_groups(objective: Objective, plan: Plan) -> list[dict[str, Any]]:
    """Return parameter groups: encoder and the rest, each with weight decay and, for biases and norms, without."""
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
