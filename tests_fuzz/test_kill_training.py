"""kill −9 at many random moments of training: always resumable, always the same model, nothing half-written."""

import os

import pytest

from victims import CROSS_FITTED, strike_training, workshop

KILLS = int(os.environ.get("FUZZ_KILLS", "30"))  # for each way to train
SEED = int(os.environ.get("FUZZ_SEED", "0"))

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")


@pytest.mark.parametrize(
    "options",
    [
        ("--classifier", "finetune"),
        ("--objective", "bce", "--accumulation", "2", "--patience", "1"),
        CROSS_FITTED,
    ],
    ids=["pretraining and finetuning", "supervised", "cross-fitted"],
)
def test_killed_training_goes_on_to_the_same_model(options, tmp_path):
    with workshop(tmp_path) as shop:
        struck = strike_training(shop, KILLS, SEED, *options)
    assert struck.kills == KILLS
    assert struck.in_a_write >= KILLS // 4, "the strikes miss the writes, so they show little"
