"""What every test process begins with."""

import gc
import os
import signal
from collections.abc import Iterator

# One thread a process: those of a parallel run would else fight for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for processes that tests start

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("untimed", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("untimed")
# Shells let what they start in the background ignore Ctrl-C; tests that press it would then wait in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def one_split() -> Iterator[None]:
    """Let experts be weighed on one split of the validation documents into halves, not on five.

    It is half of the work of training a tiny model; for tests whose subject is something else.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("abalone.evaluation.mixing.SPLITS", 1)
        yield


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take what was imported out of the garbage collector's sight, since it stays.

    Training collects garbage after every training. To look through torch, transformers and the tests themselves
    each time takes as long as training a tiny model.
    """
    gc.collect()
    gc.freeze()
