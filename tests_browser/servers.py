"""`abalone serve` as a process."""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager


@contextmanager
def serving(model, *options, cache):
    """A server of that model: the process and its address."""
    command = [sys.executable, "-m", "abalone", "serve", str(model), "--port", "0", *map(str, options)]
    environment = {**os.environ, "ABALONE_CACHE": str(cache)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process, next(found[1] for line in process.stderr if (found := re.search(r"at (http://\S+)", line)))
        finally:
            process.send_signal(signal.SIGTERM)
