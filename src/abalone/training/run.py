"""What the stages of one training run share."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from abalone.config import Config
from abalone.model.feed import Feed
from abalone.training.engine import Plan
from abalone.training.objectives import Objective

History = list[dict[str, float]]  # one entry an epoch


@dataclass(frozen=True)
class Run:
    """Settings, documents, machine and folder of a run.

    Args:
        config: the settings.
        train, validation: the documents.
        accelerator: device and precision.
        folder: where checkpoints go, a folder for each stage.
        resume: go on from what lies in `folder`.
    """

    config: Config
    train: Feed
    validation: Feed
    accelerator: Accelerator
    folder: Path
    resume: bool = False

    def stage(self, name: str) -> Path:
        """The folder of one stage."""
        return self.folder / name

    def plan(self, objective: Objective, **changes: Any) -> Plan:
        """The engine's view of the settings."""
        config = self.config
        plan = Plan(
            epochs=config.epochs,
            batch_size=config.batch_size,
            learning_rate=config.learning_rate,
            head_learning_rate=config.head_learning_rate,
            schedule=config.schedule or ("linear" if objective.spec.takes == "logits" else "cosine"),
            accumulation=config.accumulation,
            weight_decay=config.weight_decay,
            warmup=config.warmup,
            clip=config.clip,
            patience=config.patience,
            seed=config.seed,
            checkpoint_seconds=config.checkpoint_seconds,
        )
        return replace(plan, **changes)
