"""Linear models trained side by side: every label with every setting of a grid, from several starts.

They share the features and the order of the batches; so one matrix product makes the logits of all of them, another
one their gradients, and AdamW is the same few element-wise passes over everything at once.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from abalone.progress import track

BETAS, EPS = (0.9, 0.999), 1e-8  # torch.optim.AdamW's own
EAGER_STEPS = 3  # before a CUDA graph is captured: libraries set themselves up at first use, which cannot be captured
SCORED_AT_ONCE = 2**22  # numbers held at a time when scoring, to bound the memory


Loss = Literal["bce", "squared_hinge"]


class Setting(NamedTuple):
    """One point of the grid."""

    learning_rate: float
    weight_decay: float


@dataclass
class _Parameter:
    """Values of all fits, [I, S, L, columns], with what AdamW remembers of their gradients."""

    value: Tensor

    def __post_init__(self) -> None:
        self.gradient = torch.zeros_like(self.value)
        self.average = torch.zeros_like(self.value)
        self.average_square = torch.zeros_like(self.value)

    def adamw_(self, keep: Tensor, stretch: Tensor, eps: Tensor) -> None:
        """Update: value ← keep · value − average / (stretch · (√average_square + eps)); uses up the gradient.

        With c₁ = 1 − β₁ᵗ and c₂ = √(1 − β₂ᵗ) this is AdamW for keep = 1 − lr·decay, stretch = c₁/(lr·c₂) and
        eps = ε·c₂.
        """
        scratch = self.gradient
        self.average.lerp_(self.gradient, 1 - BETAS[0])
        self.average_square.lerp_(scratch.square_(), 1 - BETAS[1])
        torch.sqrt(self.average_square, out=scratch).add_(eps).mul_(stretch)
        self.value.mul_(keep).addcdiv_(self.average, scratch, value=-1)


class GridFits:
    """I initialisations × S settings × L labels of linear models, trained side by side.

    Args:
        features: [n, d].
        targets: bool [n, L].
        grid: the S settings.
        start: [I, L, d], the same for every setting, so that settings differ by nothing else; biases start at 0.
        batch_size, steps: how many documents a step sees, and how many steps `train` will make.
        loss: binary cross-entropy, or the squared hinge of linear SVMs, max(0, 1 − s·z)² with s = ±1.
    """

    def __init__(
        self,
        features: Tensor,
        targets: Tensor,
        grid: Sequence[Setting],
        start: Tensor,
        batch_size: int,
        steps: int,
        loss: Loss = "bce",
    ) -> None:
        self.features, self.targets, self.steps, self.loss = features, targets, steps, loss
        initialisations, labels, dim = start.shape
        shape = (initialisations, len(grid), labels)
        self.weight = _Parameter(start.to(features).unsqueeze(1).expand(*shape, dim).contiguous())
        self.bias = _Parameter(features.new_zeros(*shape, 1))
        # What changes from step to step, at fixed places in memory: a captured step reads there and nowhere else.
        self.rows = torch.zeros(batch_size, dtype=torch.long, device=features.device)
        self.schedule = _schedule(grid, steps).to(features)  # [T, 2S + 1]
        self.now = torch.zeros_like(self.schedule[0])
        self.inputs = features.new_empty(batch_size, dim)
        self.wanted = features.new_empty(labels, batch_size)
        self.error = features.new_empty(math.prod(shape), batch_size)

    def train(self, batches: Iterator[Tensor]) -> None:
        """Make one step on each batch, given as rows [B] of the documents."""
        on_cuda = self.features.is_cuda
        step = self._step
        with torch.no_grad(), torch.cuda.device(self.features.device) if on_cuda else nullcontext():
            for number, rows in enumerate(track(batches, "Linear probe", total=self.steps)):
                if on_cuda and number == EAGER_STEPS:
                    step = _captured(self._step)
                self.rows.copy_(rows)
                self.now.copy_(self.schedule[number])
                step()

    def _step(self) -> None:
        batch_size, dim = self.inputs.shape
        torch.index_select(self.features, 0, self.rows, out=self.inputs)  # [B, d]
        self.wanted.copy_(self.targets.index_select(0, self.rows).T)  # [L, B]
        weight, gradient = self.weight.value.view(-1, dim), self.weight.gradient.view(-1, dim)  # [I·S·L, d]
        bias, bias_gradient = self.bias.value.view(-1, 1), self.bias.gradient.view(-1, 1)  # [I·S·L, 1]
        torch.addmm(bias, weight, self.inputs.T, out=self.error)  # [I·S·L, B]
        by_label = self.error.view(-1, *self.wanted.shape)
        if self.loss == "bce":
            by_label.sigmoid_().sub_(self.wanted)  # dBCE/dlogit = σ − y
        else:
            sign = self.wanted.mul_(2).sub_(1)
            by_label.mul_(sign).sub_(1).clamp_(max=0).mul_(sign).mul_(2)  # −2s·max(0, 1 − s·z)
        torch.addmm(gradient, self.error, self.inputs, beta=0, alpha=1 / batch_size, out=gradient)
        torch.mean(self.error, 1, keepdim=True, out=bias_gradient)
        settings = self.weight.value.shape[1]
        keep, stretch, eps = self.now.split([settings, settings, 1])
        keep, stretch = keep.view(-1, 1, 1), stretch.view(-1, 1, 1)
        self.weight.adamw_(keep, stretch, eps)
        # The bias of an SVM on centred features is near −1 for all but frequent labels, not near 0. Undecayed it gains
        # 2.5 points of macro-F1 on Reuters (mean pooling, learning rate 0.01, weight decay 0.1).
        self.bias.adamw_(keep if self.loss == "bce" else torch.ones_like(keep), stretch, eps)

    def scores(self, features: Tensor, targets: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return F1 at 0.5 and log-likelihood of the mean probability, [S, L] both; NaN where a setting overflowed."""
        initialisations, settings, labels, dim = self.weight.value.shape
        weight = self.weight.value.view(initialisations, -1, dim)  # [I, S·L, d]
        bias = self.bias.value.view(initialisations, -1)  # [I, S·L]
        hits, log_likelihood = features.new_zeros(2, settings, labels, dtype=torch.float64)
        positives = targets.sum(0) + torch.zeros_like(hits)  # true and predicted ones
        rows = max(SCORED_AT_ONCE // (settings * labels), 1)
        for x, y in zip(features.split(rows), targets.split(rows), strict=True):
            probability = mean_probability(x, weight, bias).view(-1, settings, labels)
            truth = y.unsqueeze(1)  # [rows, 1, L]
            predicted = probability >= 0.5
            hits += (predicted & truth).sum(0)
            positives += predicted.sum(0)
            # Bounded as in F.binary_cross_entropy: one confident mistake must not hide all the rest.
            log_truth = torch.where(truth, probability, 1 - probability).log_().clamp_(min=-100)
            log_likelihood += log_truth.sum(0, dtype=torch.float64)
        f1 = 2 * hits / positives.clamp(min=1)
        finite = self.weight.value.isfinite().all(-1) & self.bias.value.isfinite().all(-1)  # [I, S, L]
        usable = finite.all(0) & log_likelihood.isfinite()
        f1, log_likelihood = torch.stack([f1, log_likelihood]).masked_fill(~usable, torch.nan).cpu()
        return f1.numpy(), log_likelihood.numpy()

    def pick(self, settings: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return weights [I, L, d] and biases [I, L], on the CPU, of each label's setting in `settings` [L]."""
        columns = np.arange(len(settings))
        weight, bias = (parameter.value[:, settings, columns].cpu() for parameter in (self.weight, self.bias))
        return weight.contiguous(), bias.squeeze(-1).contiguous()


def mean_probability(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Average I probabilities of features [n, d] under weights [I, R, d] and biases [I, R]; [n, R]."""
    total = features.new_zeros(len(features), weight.shape[1])
    with torch.no_grad(), torch.autocast(features.device.type, enabled=False):
        for w, b in zip(weight, bias, strict=True):
            total += F.linear(features, w, b).sigmoid_()
    return total.div_(len(weight))


def starting_weights(initialisations: int, labels: int, dim: int, generator: torch.Generator) -> Tensor:
    """Draw weights [I, L, d], each row as `nn.init.xavier_uniform_` draws the weight of an `nn.Linear(d, 1)`."""
    bound = math.sqrt(6 / (dim + 1))
    return torch.empty(initialisations, labels, dim).uniform_(-bound, bound, generator=generator)


def shuffled_batches(
    documents: int, size: int, steps: int, generator: torch.Generator, device: torch.device
) -> Iterator[Tensor]:
    """Yield `steps` batches of `size` rows (`documents` at most), from one shuffle of all documents after another."""
    waiting = torch.empty(0, dtype=torch.long, device=device)
    for _ in range(steps):
        if len(waiting) < size:
            # Drawn on the CPU, so that the order is the same on every device.
            waiting = torch.cat([waiting, torch.randperm(documents, generator=generator).to(device)])
        yield waiting[:size]
        waiting = waiting[size:]


def _schedule(grid: Sequence[Setting], steps: int) -> Tensor:
    """Return each step's arguments of `_Parameter.adamw_`, [T, 2S + 1]: keep and stretch of each setting, and eps."""
    learning_rates, weight_decays = torch.tensor(grid, dtype=torch.float64).T  # [S] both
    step = torch.arange(steps, dtype=torch.float64).unsqueeze(1)  # [T, 1]
    rates = learning_rates * (1 - step / steps)  # [T, S]
    c1, c2 = 1 - BETAS[0] ** (step + 1), (1 - BETAS[1] ** (step + 1)).sqrt()  # [T, 1]
    return torch.cat([1 - rates * weight_decays, c1 / (rates * c2), EPS * c2], dim=1)


def _captured(step: Callable[[], None]) -> Callable[[], None]:
    """Record `step` as one CUDA graph: its two dozen small kernels start without waiting for Python."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            step()
    except RuntimeError as error:
        warnings.warn(f"LinearProbe runs without a CUDA graph, with the same result but slower: {error}", stacklevel=2)
        return step
    return graph.replay
