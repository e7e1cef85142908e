"""One thread a test process: the processes of a parallel run would else fight for the cores."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for processes that tests start

import torch

torch.set_num_threads(1)
