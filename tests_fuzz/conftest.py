"""One thread a process, and at the end how many cases there were."""

import os
from datetime import UTC, datetime

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("FUZZ_SEED", f"{datetime.now(UTC):%Y%m%d}")  # other cases every day; test processes inherit it

import pytest
import torch

torch.set_num_threads(1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Sum up what the tests have told of themselves, in whatever process they ran."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    told = [dict(report.user_properties) for report in reports if report.when == "call"]
    cases = [(entry["target"], entry["cases"]) for entry in told if "cases" in entry]
    for target, number in sorted(cases):
        terminalreporter.write_line(f"{number:7,}  {target}")
    terminalreporter.write_line(f"{sum(number for _, number in cases):7,}  fuzz cases, seed {os.environ['FUZZ_SEED']}")
