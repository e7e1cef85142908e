"""The stages of one training: what the objective asks for, from an encoder as it is to a trained one."""

import copy
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from abalone.encoder.feed import Feed, FrozenFeed
from abalone.encoder.heads import LinearHead
from abalone.encoder.text_encoder import TextEncoder, join_layers
from abalone.training.finetune import supervise
from abalone.training.objectives import Objective
from abalone.training.pretrain import STAGE, linear_evaluation, pretrain
from abalone.training.run import History, TrainingRun


@dataclass(frozen=True, eq=False)
class Start:
    """What every training of a run begins with, whichever documents it is given.

    Args:
        encoder: the layers that are trained.
        lower: the layers that are not, if any.
        num_labels: L.
        name_features: [L, h], what the encoder makes of the label names, where prototypes start from them.
    """

    encoder: TextEncoder
    lower: TextEncoder | None
    num_labels: int
    name_features: Tensor | None = None

    def input_of(self, run: TrainingRun, documents: Feed) -> Feed:
        """Return the documents as the trained layers read them: the output of the lower ones is computed once."""
        if self.lower is None:
            return documents
        with run.runtime.autocast():
            return FrozenFeed(documents, self.lower, run.runtime.device)

    @property
    def depth(self) -> int:
        """Layers in all."""
        return self.encoder.depth + (0 if self.lower is None else self.lower.depth)

    def whole(self, encoder: TextEncoder) -> TextEncoder:
        """Put the lower layers and trained upper ones together."""
        return encoder if self.lower is None else join_layers(self.lower, encoder)


@dataclass(frozen=True, eq=False)
class Trained:
    """What a training comes to.

    Args:
        encoder: all its layers.
        head: the linear layer, or probes; none where probes are still to be fitted.
        history: an entry per epoch, of each stage.
    """

    encoder: TextEncoder
    head: LinearHead | None
    history: dict[str, History]


def train_stages(run: TrainingRun, start: Start) -> Trained:
    """Train what the objective asks for: pre-training and then probes or fine-tuning, or one supervised stage.

    The documents of `run` are those that `Start.input_of` gave.
    """
    config, num_labels = run.config, start.num_labels
    encoder, epochs = start.encoder, cast(int, config.epochs)
    if epochs == 0:
        probes = None if run.validation is None else linear_evaluation(encoder, run, run.validation)[0]
        return Trained(start.whole(encoder), probes, {})
    objective = Objective(encoder, num_labels, config.objective, config, run.ranks, run.train.labels)
    if start.name_features is not None:
        objective.start_prototypes_from(start.name_features)
    if objective.head is not None:
        encoder, head, history = supervise(objective, run, "training", epochs)
        return Trained(start.whole(encoder), head, {"training": history})
    encoder, probes, history = pretrain(objective, run)
    if config.classifier == "probe":
        return Trained(start.whole(encoder), probes, {STAGE: history})
    tuning = Objective(encoder, num_labels, config.finetune_objective, config, run.ranks, run.train.labels)
    rate = config.finetune_learning_rate
    encoder, head, tuned = supervise(tuning, run, "finetuning", config.finetune_epochs, learning_rate=rate)
    return Trained(start.whole(encoder), head, {STAGE: history, "finetuning": tuned})


def train_copy(run: TrainingRun, start: Start) -> Trained:
    """Train a copy, so that `start` is there for the next one, with the random numbers of the seed."""
    torch.manual_seed(run.config.seed)
    return train_stages(run, replace(start, encoder=copy.deepcopy(start.encoder)))
