"""Training with a linear layer for logits: fine-tuning, the supervised baselines, and joint objectives."""

from typing import cast

from abalone.encoder.feed import embed
from abalone.encoder.heads import LinearHead
from abalone.encoder.text_encoder import TextEncoder
from abalone.evaluation.metrics import evaluate
from abalone.training.engine import LAST, train, validation_of
from abalone.training.objectives import Objective
from abalone.training.run import History, TrainingRun

KEPT = "micro_f1"  # the epoch with the best one is kept, as in the paper


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
        raise ValueError(f"the objective {objective.name!r} has no layer for logits to train; add one: 'msc+bce'")

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
    standing = train(
        objective,
        run.train,
        plan,
        run.runtime,
        run.stage(stage),
        measure=measure,
        title=run.title(stage),
        fold=run.fold,
        callbacks=run.callbacks,
        validation_work=0.0 if validation is None else objective.encoder.depth * float(validation.lengths.sum()),
        resume=run.resume,
    )
    objective.restore(run.kept(stage, cast(int, standing.epoch_of(kept))))
    return objective.encoder, LinearHead.of_layer(head), standing.history
