"""What all contrastive losses have: a temperature."""

from torch import nn

from abalone.losses.checks import check_temperature


class ContrastiveLoss(nn.Module):
    """A loss over similarities divided by a temperature.

    Args:
        temperature: τ; the lower, the more the nearest references count. The paper finds 0.1 best.
    """

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        self.temperature = check_temperature(temperature)

    def extra_repr(self) -> str:
        """The settings, for `repr`."""
        return f"temperature={self.temperature}"
