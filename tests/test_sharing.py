"""Benchmarks whose processes share the work."""

import os
import signal
import subprocess
import sys

import pytest
from benchmarks.sharing import claimed, run_side_by_side

HOLD = """
import sys
from pathlib import Path
from benchmarks.sharing import claimed
with claimed(Path(sys.argv[1])) as missing:
    print(missing, flush=True)
    sys.stdin.read()
"""


def test_claim_keeps_others_out_until_its_process_is_gone(tmp_path):
    target = tmp_path / "results" / "run.npz"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [sys.executable, "-c", HOLD, str(target)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as other:
        assert other.stdout.readline() == b"True\n"
        with claimed(target) as missing:
            assert not missing
        other.send_signal(signal.SIGKILL)
    with claimed(target) as missing:
        assert missing


def test_what_is_there_is_not_made_again(tmp_path):
    target = tmp_path / "run.npz"
    target.touch()
    with claimed(target) as missing:
        assert not missing


def test_every_process_gets_the_arguments_and_failures_are_told(capfd, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "already running")
    run_side_by_side(2, "calendar", ["2026", "11"])
    assert capfd.readouterr().out.count("November 2026") == 2
    with pytest.raises(SystemExit, match="2 of 2 processes failed"):
        run_side_by_side(2, "calendar", ["--nonsense"])
