"""kill -9 at random moments of bulk prediction; `make fuzz` does the same more often."""

import os

import pytest

from killed_prediction import prepare, strike_and_resume

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="SIGKILL")]


def test_a_killed_prediction_goes_on_to_the_same_bytes(tmp_path):
    strike_and_resume(prepare(tmp_path, "jsonl"), kills=3, seed=0)
