"""What every test process begins with."""

import os
import signal

# One thread a process: those of a parallel run would else fight for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for processes that tests start

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("untimed", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("untimed")
# Shells let what they start in the background ignore Ctrl-C; tests that press it would then wait in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)
