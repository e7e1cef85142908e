"""The momentum encoder: an exponential moving average (EMA) of the encoder, which fills the queue."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from abalone.errors import InputError


class MomentumEncoder(nn.Module):
    """The EMA of an encoder's weights: θ_k ← m·θ_k + (1−m)·θ.

    Embeddings in the queue come from encoders of up to hundreds of steps ago; an average keeps them comparable. It
    starts as an exact copy, needs no gradient, and so never enters an optimiser. Its dropout is always off: keys
    without noise are better targets, and the forward pass may then use kernels that know no dropout.

    Args:
        encoder: what to follow, with its projection head.
        momentum: m in [0, 1]; the paper uses 0.999.
    """

    def __init__(self, encoder: nn.Module, momentum: float = 0.999) -> None:
        super().__init__()
        if not 0 <= momentum <= 1:
            raise InputError(f"momentum must be between 0 and 1, got {momentum}")
        self.momentum = momentum
        self.encoder = copy.deepcopy(encoder).requires_grad_(False).eval()

    @torch.no_grad()
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Encode with the averaged weights, without a gradient."""
        return self.encoder(*args, **kwargs)

    @torch.no_grad()
    def update(self, encoder: nn.Module, *, done: Iterable[Tensor] = ()) -> None:
        """Move the average towards `encoder`: all parameters in one fused call, buffers copied.

        Args:
            done: parameters of `encoder` that have been followed already.
        """
        averages: list[Tensor] = list(self.encoder.parameters())
        parameters: list[Tensor] = list(encoder.parameters())
        if len(averages) != len(parameters):
            raise InputError(f"the encoder has {len(parameters)} parameters, its momentum copy {len(averages)}")
        passed = {id(parameter) for parameter in done}
        left = [(mine, theirs) for mine, theirs in zip(averages, parameters, strict=True) if id(theirs) not in passed]
        torch._foreach_lerp_([mine for mine, _ in left], [theirs for _, theirs in left], 1 - self.momentum)
        for own_buffer, buffer in zip(self.encoder.buffers(), encoder.buffers(), strict=True):
            own_buffer.copy_(buffer)

    def train(self, mode: bool = True) -> "MomentumEncoder":
        """Set the mode; the copy itself stays in eval mode."""
        super().train(mode)
        self.encoder.eval()
        return self

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        return f"momentum={self.momentum}"
