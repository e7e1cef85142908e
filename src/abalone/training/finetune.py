"""Training with a linear layer for logits: fine-tuning, the supervised baselines, and joint objectives."""

from abalone.evaluation.metrics import evaluate
from abalone.model.encoder import TextEncoder
from abalone.model.feed import embed
from abalone.model.heads import LinearHead
from abalone.training.engine import train, validation_of
from abalone.training.objectives import Objective
from abalone.training.run import History, TrainingRun

KEPT = "micro_f1"  # the epoch with the best one is kept, as in the paper


def supervise(
    objective: Objective, run: TrainingRun, stage: str, epochs: int, **changes: float
) -> tuple[TextEncoder, LinearHead, History]:
    """Train an objective that has a layer for logits; the epoch with the best validation micro-F1 is kept.

    Args:
        stage: "training" or "finetuning", the name of its folder.
        epochs: of this stage.
        changes: of the plan, such as its learning rate.

    Returns:
        The encoder, the layer, and the history.
    """
    head = objective.head
    if head is None:
        raise ValueError(f"the objective {objective.name!r} has no layer for logits to train; add one: 'msc+bce'")

    def measure() -> dict[str, float]:
        with run.accelerator.autocast():
            embeddings = embed(
                objective.encoder, run.validation, run.accelerator.device, ranks=run.ranks, work=validation_of(stage)
            )
        scores = evaluate(run.validation.labels, LinearHead.of_layer(head).predicted_at_half(embeddings))
        return {name: scores[name] for name in ("micro_f1", "macro_f1")}

    plan = run.plan(objective, epochs=epochs, keep_highest=(KEPT,), **changes)
    standing = train(
        objective,
        run.train,
        plan,
        run.accelerator,
        run.stage(stage),
        measure=measure,
        title=stage.capitalize(),
        resume=run.resume,
    )
    objective.restore(run.kept(stage, standing.best_epoch[KEPT]))
    return objective.encoder, LinearHead.of_layer(head), standing.history
