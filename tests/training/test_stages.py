"""Where a training starts, and which checkpoint of pre-training is kept."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from abalone.distributed import ALONE
from abalone.training import stages
from abalone.training.loop import Standing
from abalone.training.stages import Start


@pytest.mark.parametrize("best", [2, 4, 6])
def test_the_candidate_on_which_probes_do_best_is_kept(best, monkeypatch):
    """The paper's candidates: lowest training loss (epoch 2), lowest validation loss (4), and the last epoch (6)."""
    standing = Standing(epoch=6, best_epoch={"train_loss": 2, "validation_loss": 4})
    monkeypatch.setattr(stages, "train", lambda *_, **__: standing)
    monkeypatch.setattr(stages, "ValidationLoss", lambda *_: None)
    objective = SimpleNamespace(encoder=SimpleNamespace(depth=2))
    objective.restore = lambda weights: setattr(objective.encoder, "epoch", weights["epoch"])

    def probed(encoder, run, validation):
        return f"probes of epoch {encoder.epoch}", 0.9 if encoder.epoch == best else 0.5

    monkeypatch.setattr(stages, "linear_evaluation", probed)
    run = SimpleNamespace(
        train=None,
        validation=SimpleNamespace(lengths=np.ones(3)),
        plan=lambda *_, **__: None,
        runtime=None,
        callbacks=None,
        stage=Path,
        title=str,
        fold=None,
        resume=False,
        ranks=ALONE,
        kept=lambda _, epoch: {"epoch": epoch},
    )
    encoder, head, _ = stages.pretrain(objective, run)
    assert (encoder.epoch, head) == (best, f"probes of epoch {best}")


def test_frozen_layers_count_for_the_depth():
    lower, upper = (SimpleNamespace(depth=depth) for depth in (4, 2))
    assert Start(upper, None, num_labels=3).depth == 2
    assert Start(upper, lower, num_labels=3).depth == 6
