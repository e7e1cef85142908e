"""Thousands of fuzz cases, shared out among everything that takes input; other ones every day."""

import os

import pytest

from fuzz_targets import TARGETS
from fuzzing import run_cases

CASES = int(os.environ.get("FUZZ_CASES", "12000"))
TOTAL = sum(target.share for target in TARGETS.values())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TARGETS)
def test_any_input_gives_a_result_or_a_clear_error(name, tmp_path, record_property):
    target = TARGETS[name]
    wanted = max(1, round(CASES * target.share / TOTAL))
    done = run_cases(name, target, wanted, tmp_path, seed=int(os.environ["FUZZ_SEED"]))
    record_property("target", name)
    record_property("cases", done)
