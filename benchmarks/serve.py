"""The server under 64 clients at once, against the same server asked one request at a time."""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import cycle, islice
from pathlib import Path
from urllib.parse import urlsplit

from abalone.classifier import AbaloneClassifier
from abalone.data.in_memory import label_lists
from abalone.data.load import load_corpus
from benchmarks.measure import Line, show

CLIENTS = 64
REQUESTS = 1280  # of all clients together
ALONE = 240  # of the one client
WORDS = 12  # of a short text: a title, a search, a subject line
DOCUMENTS = 300  # to fit on: what the model knows does not change what it costs


def fit(folder: Path) -> list[str]:
    """Save a model in `folder`, and return short texts to send."""
    corpus = load_corpus("arxiv-sample")
    texts = list(corpus.train.texts[:DOCUMENTS])
    labels = label_lists(corpus.train.labels[:DOCUMENTS], corpus.label_names)
    AbaloneClassifier("fast", lexical=False, max_length=96, device="cpu").fit(texts, labels).save_pretrained(folder)
    return [" ".join(text.split()[:WORDS]) for text in corpus.test.texts]


@contextmanager
def server(model: Path) -> Iterator[tuple[int, str]]:
    """Yield the process id and the address of a server."""
    command = [sys.executable, "-m", "abalone", "serve", str(model), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            found = (re.search(r"at http://(\S+)", line) for line in process.stderr)
            yield process.pid, next(address[1] for address in found if address)
        finally:
            process.send_signal(signal.SIGTERM)


def ask(address: str, texts: list[str]) -> list[float]:
    """Send one text after the other as one client, and return the seconds of each."""
    connection = HTTPConnection(urlsplit(f"//{address}").netloc, timeout=120)
    taken = []
    for text in texts:
        body = json.dumps({"text": text})
        started = time.perf_counter()
        connection.request("POST", "/v1/predict", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        taken.append(time.perf_counter() - started)
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {content[:200]!r}")
    connection.close()
    return taken


def load(address: str, texts: list[str], clients: int, requests: int) -> tuple[float, list[float]]:
    """Return requests per second, and the seconds of each, with so many clients at once."""
    queue = list(islice(cycle(texts), requests))
    with ThreadPoolExecutor(clients) as pool:
        started = time.perf_counter()
        taken = [pool.submit(ask, address, queue[client::clients]) for client in range(clients)]
        seconds = [one for client in taken for one in client.result()]
        return requests / (time.perf_counter() - started), seconds


def percentiles(seconds: list[float]) -> str:
    return " / ".join(f"{1000 * percentile(seconds, place):.0f}" for place in (50, 95, 99)) + " ms"


def percentile(seconds: list[float], place: int) -> float:
    return statistics.quantiles(seconds, n=100, method="inclusive")[place - 1]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        texts = fit(Path(folder) / "model")
        with server(Path(folder) / "model") as (_, address):
            load(address, texts, CLIENTS, CLIENTS * 2)  # warms up
            rounds = []
            for _ in range(3):  # in turns, so that a busy moment of the machine strikes both alike
                alone, together = load(address, texts, 1, ALONE // 3), load(address, texts, CLIENTS, REQUESTS // 3)
                rounds.append((alone, together))
    alone_rate, together_rate = (max(part[which][0] for part in rounds) for which in (0, 1))
    alone_times, together_times = ([one for part in rounds for one in part[which][1]] for which in (0, 1))
    show(
        f"Server on {os.cpu_count()} cores: texts of {WORDS} words, all-MiniLM-L6-v2; plain: one request at a time; "
        f"ours: {CLIENTS} clients at once",
        [
            Line(
                "requests a second",
                f"{alone_rate:,.0f}",
                f"{together_rate:,.0f}",
                f"{together_rate / alone_rate:.1f}×",
                "≥ 1.5×, no error",
            ),
            Line("latency p50 / p95 / p99", percentiles(alone_times), percentiles(together_times), ""),
        ],
    )


if __name__ == "__main__":
    main()
