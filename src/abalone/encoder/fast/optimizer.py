"""AdamW whose step is a whole update: clipping, copies in half precision, the momentum encoder."""

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from abalone.encoder.fast.weights import RowGradients
from abalone.encoder.momentum import MomentumEncoder
from abalone.encoder.text_encoder import TextEncoder

if TYPE_CHECKING:
    from abalone.encoder.fast.update_kernels import MatrixUpdate


class FusedAdamW(torch.optim.AdamW):
    """AdamW that clips, skips steps without a finite gradient, and updates all that follows from the weights.

    What follows are the momentum encoder and the copies in half precision that matrix products read. On a GPU one
    Triton kernel does all of this for the encoder's matrices; elsewhere torch does the same, one after the other.

    After a backward pass call `collect`, then `step`.

    Args:
        groups: parameter groups with `lr` and `weight_decay`.
        clip: the largest norm of the gradient.
        encoder: the one that is trained.
        average: the momentum encoder, if there is one.
        followed: what the momentum encoder follows, a module of the same parameters.
        half: the precision that the weights of packable encoders are kept in too; None for no copies.
        one_backward: whether every step follows one backward pass of this process alone, so that gradients can stay
            where the matrix products leave them.
        scaled: whether a `GradScaler` calls `step`, which then looks for NaN and infinity itself.
    """

    norm: Tensor  # of the gradient of the latest step, before clipping; that of a replayed step is not brought here

    def __init__(
        self,
        groups: list[dict[str, Any]],
        *,
        clip: float,
        encoder: TextEncoder,
        average: MomentumEncoder | None = None,
        followed: nn.Module | None = None,
        half: torch.dtype | None = None,
        one_backward: bool = True,
        scaled: bool = False,
    ) -> None:
        device = groups[0]["params"][0].device
        on_gpu = device.type == "cuda"
        self._base_rates = [group["lr"] for group in groups]
        if on_gpu:  # rates that a replayed graph can be told
            groups = [{**group, "lr": torch.tensor(group["lr"], device=device)} for group in groups]
        fused = on_gpu or (device.type == "cpu" and not scaled)
        super().__init__(groups, fused=fused, capturable=on_gpu)
        self.clip, self.encoder, self.average, self._followed = clip, encoder, average, followed
        self._skips = fused and not scaled  # by itself, without asking the device
        self._copied = [each for part in (encoder, average) if part is not None for each in _packable(part)]
        self._matrices: MatrixUpdate | None = None
        if half is not None:
            for each in self._copied:
                each.keep_copies(half)
            if one_backward and not scaled:
                self._matrices = self._one_kernel()

    def set_rate(self, factor: float) -> None:
        """Multiply the learning rates that the groups were made with by a factor."""
        for group, base in zip(self.param_groups, self._base_rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(base * factor)
            else:
                group["lr"] = base * factor

    def collect(self) -> None:
        """Add the gradients that a backward pass left in half precision to those of the parameters."""
        if self.encoder.copies is not None:
            self.encoder.copies.hand_over_gradients(matrices=self._matrices is None)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Make the whole update. On a CPU and a GPU no weight moves where the gradient is NaN or infinite."""
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        if not self._skips:
            self.norm = nn.utils.clip_grad_norm_(parameters, self.clip)
            super().step()
        else:
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            self.norm = nn.utils.get_total_norm(gradients)
            if self._matrices is not None:
                self.norm = torch.hypot(self.norm, self._matrices.norm())
            # AdamW divides by the one and does nothing where the other is 1: clipping costs no pass over the
            # gradients, and NaN never reaches the weights.
            divisor = (self.norm / self.clip).clamp(min=1).float()
            self.grad_scale, self.found_inf = divisor, (~self.norm.isfinite()).float()
            super().step()
            if self._matrices is not None:
                self._matrices(divisor)
        self._follow()
        self.refresh(matrices=self._matrices is None)

    def refresh(self, *, matrices: bool = True) -> None:
        """Copy the weights to where they are kept in half precision, as after reading a checkpoint."""
        for each in self._copied:
            if each.copies is not None:
                each.copies.refresh(matrices=matrices)

    def release(self) -> None:
        """Free what only further steps would need."""
        for each in self._copied:
            each.keep_copies(None)
        self._matrices = None

    def _follow(self) -> None:
        if self.average is None or self._followed is None:
            return
        done: list[Tensor] = []
        if self._matrices is not None and (copies := self.encoder.copies) is not None:
            done += [matrix.parameter for matrix in copies.matrices]
            if copies.row_gradients is not None:
                done += copies.tables
        self.average.update(self._followed, done=done)

    def _one_kernel(self) -> "MatrixUpdate | None":
        """Return the update of the encoder's matrices and of all that follows from them, as one kernel.

        Word and position vectors are among them where their rows begin at round places; they are given a place for
        gradients. None without Triton, or where rows of matrices begin at odd places.
        """
        copies = self.encoder.copies
        interpreted = os.environ.get("TRITON_INTERPRET") == "1"  # as the tests of the kernels do without a GPU
        if copies is None or self.encoder.hidden_size % 8 or not (copies.gradients.is_cuda or interpreted):
            return None
        if find_spec("triton") is None:
            return None
        from abalone.encoder.fast.update_kernels import MatrixUpdate  # which needs Triton

        trained = all(parameter.requires_grad for parameter in self.encoder.model.parameters())
        if trained and copies.tables and self.encoder.hidden_size % 16 == 0:
            copies.row_gradients = RowGradients.of(copies.tables)
        if self.average is None:
            return MatrixUpdate(self, copies, None)
        return MatrixUpdate(self, copies, _packable(self.average)[0].copies, self.average.momentum)


def _packable(module: nn.Module) -> list[TextEncoder]:
    """Return the text encoders in a module whose weights can be kept in half precision."""
    return [part for part in module.modules() if isinstance(part, TextEncoder) and part.packable]
