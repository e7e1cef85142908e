"""kill -9 of bulk prediction, FUZZ_KILLS times in each form."""

import os

import pytest

from killed_prediction import prepare, strike_and_resume

KILLS_A_RUN = 3


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_killed_predictions_go_on_to_the_same_bytes(form, tmp_path):
    prepared, kills = prepare(tmp_path, form), int(os.environ.get("FUZZ_KILLS", "3"))
    for seed, begun in enumerate(range(0, kills, KILLS_A_RUN)):
        strike_and_resume(prepared, min(KILLS_A_RUN, kills - begun), seed)
