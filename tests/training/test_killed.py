"""kill −9 at random moments of training: it goes on, and ends with the same model. `tests_fuzz` strikes more often."""

import os

import pytest

from victims import CROSS_FITTED, strike_training, workshop

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="signals")]


@pytest.mark.parametrize("options", [("--classifier", "finetune"), CROSS_FITTED], ids=["finetuned", "cross-fitted"])
def test_killed_training_goes_on_to_the_same_model(options, tmp_path):
    with workshop(tmp_path) as shop:
        struck = strike_training(shop, 3, 1, *options)
    assert struck.kills == 3
