"""Trackers of a run: TensorBoard."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from abalone.extras import install_hint


class TensorBoard:
    """Writes the measures of every epoch to event files in `folder`/abalone."""

    def __init__(self, folder: str) -> None:
        if find_spec("tensorboard") is None:
            raise ImportError(f"tensorboard= needs the package tensorboard: {install_hint('tensorboard')}")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(Path(folder) / "abalone"))

    def epoch(self, measures: Mapping[str, float], step: int) -> None:
        """Write the measures of an epoch that ends with an optimiser step."""
        for name, value in measures.items():
            self._writer.add_scalar(name, value, global_step=step)
        self._writer.flush()

    def close(self) -> None:
        """Finish the files."""
        self._writer.close()
