"""One training step: loss, gradient, update; as far as possible without waiting for the device."""

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from abalone.encoder.fast.graph import Aside, Captured
from abalone.encoder.fast.optimizer import FusedAdamW
from abalone.encoder.feed import Batch
from abalone.training.objectives import Objective
from abalone.training.runtime import Runtime

AHEAD = 8  # steps that may wait for the GPU


@dataclass(frozen=True)
class Tally:
    """The counters of the device since `Step.begin`."""

    loss_sum: float  # over documents
    wrong_loss: int | None  # the first batch whose loss was NaN or infinite
    wrong_gradient: int | None  # the first batch after which the gradient was, so that no update was made


class Step:
    """Trains on one batch after another, on any device.

    On a GPU the whole step is recorded and replayed as soon as every batch means the same work; where it cannot be
    (gradients gathered over several batches or from several processes, fp16 with its changing scale, a queue that
    still fills up), it is done plainly.

    Args:
        objective: what is minimised, already on the device.
        groups: parameter groups with `lr` and `weight_decay`.
        runtime: device and precision.
        clip: the largest gradient norm.
        batch_size: of all batches but the last of an epoch.
        lengths: tokens of every document.
        accumulation: batches an update.
    """

    def __init__(
        self,
        objective: Objective,
        groups: list[dict[str, Any]],
        runtime: Runtime,
        *,
        clip: float,
        batch_size: int,
        lengths: np.ndarray,
        accumulation: int = 1,
    ) -> None:
        self.objective, self.runtime = objective, runtime
        device = self.device = runtime.device
        self.parameters = [parameter for group in groups for parameter in group["params"]]
        on_gpu, alone = device.type == "cuda", accumulation == 1 and objective.ranks.count == 1
        self.optimizer = FusedAdamW(
            groups,
            clip=clip,
            encoder=objective.encoder,
            average=objective.slow,
            followed=objective.followed,
            half=runtime.dtype if on_gpu else None,
            one_backward=alone,
            scaled=runtime.scaler is not None,
        )
        whole = torch.float32 if device.type == "mps" else torch.float64
        self._loss_sum = torch.zeros((), dtype=whole, device=device)
        self._batch = torch.zeros((), dtype=torch.long, device=device)
        self._wrong = torch.full((2,), -1, dtype=torch.long, device=device)  # first batch: loss, gradient
        self._given: deque[torch.cuda.Event] = deque()  # marks behind the latest steps
        self._captured: Captured | None = None
        if on_gpu and alone and runtime.scaler is None:
            self._captured = Captured(self._whole_step, batch_size, lengths)

    def begin(self, batch: int, loss_sum: float) -> None:
        """Count from here: so many batches of the epoch are done, with this sum of losses."""
        self.optimizer.refresh()  # the weights may have been read from a checkpoint
        self._loss_sum.fill_(loss_sum)
        self._batch.fill_(batch)
        self._wrong.fill_(-1)

    def __call__(self, batch: Batch, rate: float, *, share: float = 1.0, update: bool = True) -> None:
        """Train on one batch.

        Args:
            batch: in main memory, pinned where the device is a GPU.
            rate: what the learning rates are multiplied by.
            share: of this batch in the gradient.
            update: whether the weights move now, or with a later batch.
        """
        self.optimizer.set_rate(rate)
        captured = self._captured
        if captured and captured.fits(batch) and self.objective.repeats_itself(captured.most_documents):
            captured(batch)
        else:
            self._add_gradient(batch.to(self.device), share)
            if update:
                self._update()
        self._stay_near()

    def read(self) -> Tally:
        """Wait for the device and tell what it has counted."""
        wrong_loss, wrong_gradient = (None if batch < 0 else batch for batch in self._wrong.tolist())
        return Tally(self._loss_sum.item(), wrong_loss, wrong_gradient)

    def end(self) -> None:
        """Let go of what only further steps would need."""
        self.optimizer.release()
        self._captured = None

    def _stay_near(self) -> None:
        """Do not run far ahead of a GPU: whoever asks to stop would wait for all that lies before it."""
        if self.device.type == "cuda":
            self._given.append(torch.cuda.Event())
            self._given[-1].record()
            if len(self._given) > AHEAD:
                self._given.popleft().synchronize()

    def _whole_step(self, batch: Batch) -> None:
        self._add_gradient(batch, share=1.0)
        self._update()

    def _add_gradient(self, batch: Batch, share: float) -> None:
        keys: Aside[Tensor] | None = None
        with self.runtime.autocast():
            if self.objective.queue is not None:  # beside the trained encoder, which leaves parts of a GPU idle
                keys = Aside(partial(self.objective.keys, batch))
            loss = self.objective(batch)
        self._batch += 1
        self._loss_sum += loss.detach() * len(batch)
        self._note(0, loss)
        self.runtime.backward(loss * share if share != 1 else loss)
        self.optimizer.collect()
        if keys is not None:
            self.objective.enqueue(keys.join(), batch)

    def _update(self) -> None:
        self.objective.ranks.average_gradients(self.parameters)
        self.runtime.update(self.optimizer)
        if self.runtime.scaler is None:  # which may skip a step: its scale was too large, and no reason to stop
            self._note(1, self.optimizer.norm)
        self.optimizer.zero_grad(set_to_none=True)

    def _note(self, kind: int, value: Tensor) -> None:
        """Remember this batch if its value is the first that is NaN or infinite."""
        first = (self._wrong[kind] < 0) & ~value.detach().isfinite()
        self._wrong[kind] = torch.where(first, self._batch, self._wrong[kind])
