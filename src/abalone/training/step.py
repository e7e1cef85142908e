"""One training step: loss, gradient, clipping, update; as far as possible without waiting for the device."""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from abalone.encoder.fast.graph import Captured
from abalone.encoder.feed import Batch
from abalone.training.objectives import Objective
from abalone.training.runtime import Runtime

if TYPE_CHECKING:
    from abalone.encoder.fast.optimizer import MatrixUpdate

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
        self.objective, self.runtime, self.clip = objective, runtime, clip
        device = self.device = runtime.device
        self.parameters = [parameter for group in groups for parameter in group["params"]]
        self._base_rates = [group["lr"] for group in groups]
        on_gpu = device.type == "cuda"
        if on_gpu:  # rates that a replayed graph can be told
            groups = [{**group, "lr": torch.tensor(group["lr"], device=device)} for group in groups]
        self._fused = device.type in ("cuda", "cpu") and runtime.scaler is None
        self.adamw = torch.optim.AdamW(groups, fused=on_gpu or self._fused, capturable=on_gpu)
        whole = torch.float32 if device.type == "mps" else torch.float64
        self._loss_sum = torch.zeros((), dtype=whole, device=device)
        self._batch = torch.zeros((), dtype=torch.long, device=device)
        self._wrong = torch.full((2,), -1, dtype=torch.long, device=device)  # first batch: loss, gradient
        self._given: deque[torch.cuda.Event] = deque()  # marks behind the latest steps
        if on_gpu:
            objective.keep_half_weights(runtime.dtype)
        self._captured: Captured | None = None
        self._matrices: MatrixUpdate | None = None
        if on_gpu and accumulation == 1 and runtime.scaler is None and objective.ranks.count == 1:
            self._matrices = objective.take_matrix_update(self.adamw)
            self._captured = Captured(self._whole_step, batch_size, lengths)

    def begin(self, batch: int, loss_sum: float) -> None:
        """Count from here: so many batches of the epoch are done, with this sum of losses."""
        self.objective.refresh_half_weights()  # the others may have been read from a checkpoint
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
        for group, base in zip(self.adamw.param_groups, self._base_rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(base * rate)
            else:
                group["lr"] = base * rate
        if self._captured is not None and self._captured.fits(batch) and self.objective.repeats_itself(len(batch)):
            self._captured(batch)
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
        self.objective.keep_half_weights(None)
        self._captured = self._matrices = None

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
        with self.runtime.autocast():
            self.objective.before_batch(batch)
            loss = self.objective(batch)
        self._batch += 1
        self._loss_sum += loss.detach() * len(batch)
        self._note(0, loss)
        self.runtime.backward(loss * share if share != 1 else loss)
        self.objective.after_backward()
        self.objective.after_batch(batch)

    def _update(self) -> None:
        self.objective.ranks.average_gradients(self.parameters)
        if self._fused:
            gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
            norm = torch.nn.utils.get_total_norm(gradients)
            if self._matrices is not None:
                norm = torch.hypot(norm, self._matrices.norm())
            self._note(1, norm)
            # The optimiser divides by the one and does nothing where the other is 1: clipping costs no pass over the
            # gradients, and NaN never reaches the weights.
            divisor = (norm / self.clip).clamp(min=1).float()
            self.adamw.grad_scale = divisor  # type: ignore[attr-defined]
            self.adamw.found_inf = (~norm.isfinite()).float()  # type: ignore[attr-defined]
            self.adamw.step()
            if self._matrices is not None:
                self._matrices(divisor)
        elif (scaler := self.runtime.scaler) is None:
            self._note(1, torch.nn.utils.clip_grad_norm_(self.parameters, self.clip))
            self.adamw.step()
        else:  # which skips the step by itself where gradients are NaN or infinite, and lowers its scale
            scaler.unscale_(self.adamw)
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
            scaler.step(self.adamw)
            scaler.update()
        self.adamw.zero_grad(set_to_none=True)
        self.objective.after_step()

    def _note(self, kind: int, value: Tensor) -> None:
        """Remember this batch if its value is the first that is NaN or infinite."""
        first = (self._wrong[kind] < 0) & ~value.detach().isfinite()
        self._wrong[kind] = torch.where(first, self._batch, self._wrong[kind])
