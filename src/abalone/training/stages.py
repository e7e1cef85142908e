"""The stages of one training: pre-training, linear evaluation, training with a linear layer, fine-tuning."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from abalone.device import reading_precision
from abalone.encoder.fast.graph import Captured
from abalone.encoder.feed import Batch, Feed, FrozenFeed, embed, ready_batches
from abalone.encoder.heads import LinearHead
from abalone.encoder.text_encoder import TextEncoder, join_layers
from abalone.errors import InputError
from abalone.evaluation.metrics import evaluate
from abalone.evaluation.probe import LinearProbe
from abalone.progress import overall
from abalone.training.loop import LAST, Plan, Standing, train, validation_of
from abalone.training.objectives import Objective
from abalone.training.run import History, TrainingRun

STAGE = "pretraining"  # and its folder; the others are "training" and "finetuning"
PROBE, FITTING = "probe", "probe fits"  # kinds of work: reading the documents for probes, and fitting these
CANDIDATES = (LAST, "train_loss", "validation_loss")  # the paper's three checkpoints
KEPT = "micro_f1"  # the epoch with the best one is kept, as in the paper


@dataclass(frozen=True, eq=False)
class Start:
    """The encoder and label features that every training of a run begins with.

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
        """Return the number of layers in all."""
        return self.encoder.depth + (0 if self.lower is None else self.lower.depth)

    def whole(self, encoder: TextEncoder) -> TextEncoder:
        """Put the lower layers and trained upper ones together."""
        return encoder if self.lower is None else join_layers(self.lower, encoder)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained encoder with its linear layer and history.

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


def pretrain(objective: Objective, run: TrainingRun) -> tuple[TextEncoder, LinearHead | None, History]:
    """Pre-train, then keep the checkpoint on which linear evaluation does best (micro-F1 on validation).

    Returns:
        The encoder, the probes fitted on it, and the history. Without validation documents, the encoder as the last
        epoch leaves it, and no probes.
    """
    validation = run.validation
    validation_loss = None if validation is None else ValidationLoss(objective, run, validation)
    plan = run.plan(objective, keep_lowest=() if validation is None else ("train_loss", "validation_loss"))
    standing = _train(
        run, STAGE, objective, plan, lambda: {} if validation_loss is None else {"validation_loss": validation_loss()}
    )
    if validation is None:
        objective.restore(run.kept(STAGE, standing.epoch))
        return objective.encoder, None, standing.history
    fitted: dict[int, tuple[float, LinearHead]] = {}  # by epoch, as two names may stand for the same weights
    for epoch in map(standing.epoch_of, CANDIDATES):
        # None: stopped early, before an epoch's training loss could be compared with another's.
        if epoch is not None and epoch not in fitted:
            objective.restore(run.kept(STAGE, epoch))
            head, micro_f1 = linear_evaluation(objective.encoder, run, validation)
            fitted[epoch] = micro_f1, head
    for work in (PROBE, FITTING):
        overall().skip(work)  # two of the candidates may have been the same
    best = run.ranks.from_main(lambda: max(fitted, key=lambda epoch: fitted[epoch][0]))
    objective.restore(run.kept(STAGE, best))
    return objective.encoder, fitted[best][1], standing.history


def linear_evaluation(encoder: TextEncoder, run: TrainingRun, validation: Feed) -> tuple[LinearHead, float]:
    """Fit probes on the frozen encoder; return them, and their micro-F1 on validation at 0.5."""
    device, precision = run.runtime.device, reading_precision(run.config.precision)
    features, val_features = (
        embed(encoder, feed, device, precision=precision, ranks=run.ranks, work=PROBE)
        for feed in (run.train, validation)
    )
    probe = LinearProbe(seed=run.config.seed, device=device)
    probe.fit(features, run.train.labels, val_features, validation.labels)
    overall().done(FITTING, 1)
    head = LinearHead(probe.weight.float(), probe.bias.float())
    return head, evaluate(validation.labels, head.predicted_at_half(val_features))["micro_f1"]


class ValidationLoss:
    """Computes the mean loss over validation in file order, with the prototypes and the queue as they are."""

    def __init__(self, objective: Objective, run: TrainingRun, validation: Feed) -> None:
        self.objective, self.run, self.validation = objective, run, validation
        self._total = torch.zeros((), device=run.runtime.device)
        documents, size = len(validation), run.config.batch_size
        self._batches = [np.arange(start, min(start + size, documents)) for start in range(0, documents, size)]
        self._tokens_a_batch = float(validation.lengths.sum()) / max(len(self._batches), 1)
        self._captured: Captured | None = None
        if run.runtime.device.type == "cuda" and objective.ranks.count == 1:
            self._captured = Captured(self._add, size, validation.lengths)

    def __call__(self) -> float:
        """Return the validation loss of the objective as it is now."""
        self._total.zero_()
        device = self.run.runtime.device
        for batch in ready_batches(self.validation, self._batches, device, self.objective.ranks):
            captured = self._captured
            if captured and captured.fits(batch) and self.objective.repeats_itself(captured.most_documents):
                captured(batch)
            else:
                self._add(batch.to(device))
            overall().done(validation_of(STAGE), self.objective.encoder.depth * self._tokens_a_batch)
        return self._total.item() / len(self.validation)

    def _add(self, batch: Batch) -> None:
        with self.run.runtime.autocast():
            self._total += self.objective(batch) * len(batch)


def supervise(
    objective: Objective, run: TrainingRun, stage: str, epochs: int, **changes: float
) -> tuple[TextEncoder, LinearHead, History]:
    """Train an objective that has a layer for logits.

    The epoch with the best validation micro-F1 is kept; the last one where there are no validation documents.

    Args:
        objective: what is minimised.
        run: the documents, and the machine.
        stage: "training" or "finetuning", the name of its folder.
        epochs: of this stage.
        changes: of the plan, such as its learning rate.

    Returns:
        The encoder, the layer, and the history.
    """
    head, validation = objective.head, run.validation
    if head is None:
        raise InputError(f"the objective {objective.name!r} has no layer for logits to train; add one: 'msc+bce'")

    def measure() -> dict[str, float]:
        if validation is None:
            return {}
        with run.runtime.autocast():
            embeddings = embed(
                objective.encoder, validation, run.runtime.device, ranks=run.ranks, work=validation_of(stage)
            )
        scores = evaluate(validation.labels, LinearHead.of_layer(head).predicted_at_half(embeddings))
        return {name: scores[name] for name in ("micro_f1", "macro_f1")}

    kept = LAST if validation is None else KEPT
    plan = run.plan(objective, epochs=epochs, keep_highest=() if validation is None else (KEPT,), **changes)
    standing = _train(run, stage, objective, plan, measure)
    objective.restore(run.kept(stage, cast(int, standing.epoch_of(kept))))
    return objective.encoder, LinearHead.of_layer(head), standing.history


def _train(
    run: TrainingRun, stage: str, objective: Objective, plan: Plan, measure: Callable[[], dict[str, float]]
) -> Standing:
    """Run the loop on the documents of the run, with checkpoints in the folder of the stage."""
    validation = run.validation
    return train(
        objective,
        run.train,
        plan,
        run.runtime,
        run.stage(stage),
        measure=measure,
        title=run.title("pre-training" if stage == STAGE else stage),
        fold=run.fold,
        callbacks=run.callbacks,
        validation_work=0.0 if validation is None else objective.encoder.depth * float(validation.lengths.sum()),
        resume=run.resume,
    )
