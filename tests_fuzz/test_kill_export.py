"""kill −9 at many random moments of writing a model: there is always a whole one, the old or the new."""

import os

import pytest

from victims import strike_export, strike_saving, workshop

KILLS = int(os.environ.get("FUZZ_KILLS", "30"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")


@pytest.mark.parametrize("strike", [strike_saving, strike_export])
def test_killed_writers_leave_a_whole_model(strike, tmp_path):
    with workshop(tmp_path) as shop:
        struck = strike(shop, KILLS, SEED)
    assert struck.kills == KILLS
    assert struck.in_a_write >= KILLS // 6, "the strikes miss the writes, so they show little"
