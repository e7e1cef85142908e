"""Contrastive pre-training: an encoder whose space is good for rare labels too."""

import numpy as np
import torch

from abalone.device import reading_precision
from abalone.encoder.fast.graph import Captured
from abalone.encoder.feed import Batch, Feed, embed, ready_batches
from abalone.encoder.heads import LinearHead
from abalone.encoder.text_encoder import TextEncoder
from abalone.evaluation.metrics import evaluate
from abalone.evaluation.probe import LinearProbe
from abalone.progress import overall
from abalone.training.engine import LAST, train, validation_of
from abalone.training.objectives import Objective
from abalone.training.run import History, TrainingRun

STAGE = "pretraining"
PROBE, FITTING = "probe", "probe fits"  # kinds of work: reading the documents for probes, and fitting these
CANDIDATES = (LAST, "train_loss", "validation_loss")  # the paper's three checkpoints


def pretrain(objective: Objective, run: TrainingRun) -> tuple[TextEncoder, LinearHead | None, History]:
    """Pre-train, then keep the checkpoint on which linear evaluation does best (micro-F1 on validation).

    Returns:
        The encoder, the probes fitted on it, and the history. Without validation documents, the encoder as the last
        epoch leaves it, and no probes.
    """
    validation = run.validation
    validation_loss = None if validation is None else ValidationLoss(objective, run, validation)
    standing = train(
        objective,
        run.train,
        run.plan(objective, keep_lowest=() if validation is None else ("train_loss", "validation_loss")),
        run.runtime,
        run.stage(STAGE),
        measure=lambda: {} if validation_loss is None else {"validation_loss": validation_loss()},
        title=run.title("pre-training"),
        fold=run.fold,
        callbacks=run.callbacks,
        validation_work=0.0 if validation is None else objective.encoder.depth * float(validation.lengths.sum()),
        resume=run.resume,
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
    """Probes on the frozen encoder, and their micro-F1 on validation at 0.5."""
    device, half = run.runtime.device, reading_precision(run.config.precision)
    features, val_features = (
        embed(encoder, feed, device, half=half, ranks=run.ranks, work=PROBE) for feed in (run.train, validation)
    )
    probe = LinearProbe(seed=run.config.seed, device=device)
    probe.fit(features, run.train.labels, val_features, validation.labels)
    overall().done(FITTING, 1)
    head = LinearHead(probe.weight.float(), probe.bias.float())
    return head, evaluate(validation.labels, head.predicted_at_half(val_features))["micro_f1"]


class ValidationLoss:
    """Mean loss over validation in file order, with the prototypes and the queue as they are."""

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
        """The loss of the objective as it is now."""
        self._total.zero_()
        device = self.run.runtime.device
        for batch in ready_batches(self.validation, self._batches, device, self.objective.ranks):
            if self._captured is not None and self._captured.fits(batch) and self.objective.repeats_itself(len(batch)):
                self._captured(batch)
            else:
                self._add(batch.to(device))
            overall().done(validation_of(STAGE), self.objective.encoder.depth * self._tokens_a_batch)
        return self._total.item() / len(self.validation)

    def _add(self, batch: Batch) -> None:
        with self.run.runtime.autocast():
            self._total += self.objective(batch) * len(batch)
