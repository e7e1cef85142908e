"""A model whose every answer is known, and a real server around any model."""

import threading
import time
from contextlib import contextmanager

import httpx
import numpy as np

from abalone.evaluation.decision import NEVER, Decision, Thresholds
from abalone.serving.app import create_app
from abalone.serving.predictions import Served
from abalone.serving.server import Server, address, bind
from patience import PATIENCE

THRESHOLDS = (0.5, 0.2, NEVER)


class Panic(BaseException):
    """What a tokenizer in Rust raises when it panics: no `Exception`."""


class LetterCounter:
    """The probability of `a`, `b` or `c` is the share of that letter in a text. Stops and fails when told to."""

    label_names = ("a", "b", "c")
    decision = Decision(Thresholds(np.array(THRESHOLDS)))

    def __init__(self):
        self.may_go = threading.Event()
        self.may_go.set()
        self.entered = threading.Event()
        self.batches = []
        self.broken = False

    def probabilities(self, texts):
        self.entered.set()
        assert self.may_go.wait(PATIENCE)
        self.batches.append(list(texts))
        if any("boom" in text for text in texts):
            raise RuntimeError("secret details")
        if self.broken or any("panic" in text for text in texts):
            raise Panic("secret details")
        return np.array([[text.count(name) / len(text) for name in self.label_names] for text in texts])

    def probabilities_and_vectors(self, texts):
        probabilities = self.probabilities(texts)
        return probabilities, probabilities + 0.01

    def vectors(self, texts):
        return self.probabilities_and_vectors(texts)[1]


def until(condition):
    """Wait for what must happen."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def running(model, *, connections=None, **options):
    """An `httpx` client of a real server in a thread."""
    served = model if isinstance(model, Served) else Served("letters", model)
    with bind("127.0.0.1", 0) as bound:
        server = Server(create_app(served, **options), limits=connections)
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        try:
            with httpx.Client(base_url=address(bound), timeout=PATIENCE) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()
