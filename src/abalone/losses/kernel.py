"""The sum behind every contrastive loss, and their base class.

    L = -(1/M) Σ_i Σ_l  w(i,l) · [ s(i,l)/τ − log Σ_k g(k) · exp(s(i,k)/τ) ]

`w` is the attraction, `g` the repulsion, `s` a similarity, `M` the number of anchors. References come in blocks
(the batch, the queue, the prototypes), so that nothing is copied together.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from abalone.losses.checks import check_temperature

P = ParamSpec("P")


class ContrastiveLoss(nn.Module):
    """The base class of losses over similarities divided by a temperature.

    Args:
        temperature: τ; the lower, the more the nearest references count. The paper finds 0.1 best.
    """

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        self.temperature = check_temperature(temperature)

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        return f"temperature={self.temperature}"


def contrastive_sum(
    logits: Sequence[Tensor],
    attraction: Sequence[Tensor],
    log_repulsion: Sequence[float] | None = None,
    *,
    anchors: int,
) -> Tensor:
    """Compute the formula above.

    Args:
        logits: s/τ of each block, [A, R_b]; what is no reference (an anchor to itself) set by `mask_self`.
        attraction: w of each block, [A, R_b], 0 where masked. Constant: no gradient flows into it.
        log_repulsion: log g of each block; 0 when left out.
        anchors: M.

    Returns:
        A scalar. An anchor without attraction contributes 0, whatever its logits are.
    """
    log_repulsion = [0.0] * len(logits) if log_repulsion is None else list(log_repulsion)
    value: Tensor = _ContrastiveSum.apply(anchors, list(attraction), log_repulsion, *logits)  # type: ignore[no-untyped-call]
    return value


class _ContrastiveSum(torch.autograd.Function):
    """Value and closed-form gradient in one pass.

    With the softmax p(i,k) ∝ g(k)·exp(s(i,k)/τ) and W(i) = Σ_l w(i,l):  ∂L/∂(s(i,k)/τ) = (W(i)·p(i,k) − w(i,k)) / M.
    Autograd would keep four tensors of the size of the logits for this; here there is one.
    """

    @staticmethod
    def forward(
        ctx: Any, anchors: int, attraction: list[Tensor], log_repulsion: list[float], *logits: Tensor
    ) -> Tensor:
        peak = torch.stack([x.amax(1) + g for x, g in zip(logits, log_repulsion, strict=True)]).amax(0)  # [A]
        total = torch.zeros_like(peak)  # Σ_k g(k)·exp(s(i,k)/τ − peak)
        mass = torch.zeros_like(peak)  # W(i)
        pull = torch.zeros_like(peak)  # Σ_l w(i,l)·s(i,l)/τ
        softmax: list[Tensor] = []
        for x, w, g in zip(logits, attraction, log_repulsion, strict=True):
            e = w * x  # [A, R_b], the only tensor of this size made here: first for the pull, then for the softmax
            pull += e.sum(1)
            torch.add(x, (g - peak).unsqueeze(1), out=e).exp_()
            total += e.sum(1)
            mass += w.sum(1)
            softmax.append(e)
        if any(ctx.needs_input_grad):
            scale = (mass / (total * anchors)).unsqueeze(1)
            for e, w in zip(softmax, attraction, strict=True):
                e.mul_(scale).sub_(w, alpha=1 / anchors)
            ctx.save_for_backward(*softmax)
        return (mass * (peak + total.log()) - pull).sum() / anchors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, None, *(grad_value * grad for grad in ctx.saved_tensors))


def mask_self(logits: Tensor) -> Tensor:
    """Take the anchor itself out of an [A, A] block, in place.

    The lowest finite number and not −∞: its exponential is 0 all the same, and 0 · it is 0 and not NaN.
    """
    return logits.fill_diagonal_(torch.finfo(logits.dtype).min / 2)


def normalise_rows_(attraction: Sequence[Tensor]) -> list[Tensor]:
    """Scale each anchor's attraction over all blocks to 1, in place; an anchor without any keeps 0."""
    total = sum((w.sum(1, keepdim=True) for w in attraction), start=torch.tensor(0.0))  # [A, 1]
    total = torch.where(total > 0, total, 1)
    return [w.div_(total) for w in attraction]


def unit_rows(vectors: Tensor) -> Tensor:
    """Scale rows to length 1; a zero row stays zero, with a finite gradient."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / lengths.masked_fill(lengths == 0, 1)


def without_autocast(forward: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Run a loss in the precision it chose: autocast would turn its products back into low precision."""

    @wraps(forward)
    def run(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        device = next(arg.device.type for arg in (*args, *kwargs.values()) if isinstance(arg, Tensor))
        with torch.autocast(device, enabled=False):
            return forward(*args, **kwargs)

    return run


def working_dtype(tensor: Tensor) -> torch.dtype:
    """Return the precision of a loss: float64 if its input has it, float32 otherwise."""
    return torch.float64 if tensor.dtype is torch.float64 else torch.float32
