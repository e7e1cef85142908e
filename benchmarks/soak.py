"""The server under 64 clients for ten minutes, with one hostile request in twenty, against the same without those.

`SOAK_SECONDS` sets how long it takes; 600 without it. All traffic stays on this machine.
"""

import json
import os
import random
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from abalone.inference.folder import load
from benchmarks.measure import Line, resident_memory, show
from benchmarks.serve import CLIENTS, fit, percentile, server

SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
QUIET = min(60.0, SECONDS)
WARM_UP = min(120.0, 2 * SECONDS)  # by then hostile clients hold as much memory as they are given
SETTLE = 15.0  # for the server to see that clients have gone, and to return what they took
HOSTILE = 0.05  # of all requests
TEXTS = 500  # that are asked about, and whose answers are known
ROUNDING = 1e-4  # of probabilities, between batches of different make-up
LEFT_OPEN = 200  # connections of hostile clients that are never used again
TIMEOUT = 60.0
HEAD = "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "

Truth = dict[str, dict[str, tuple[float, float]]]
"""For each text its labels' probabilities and thresholds."""


@dataclass
class Seen:
    """The answers that the clients of one run received."""

    seconds: list[float] = field(default_factory=list)  # of every request that was meant well
    wrong: list[str] = field(default_factory=list)  # answers, and errors instead of answers
    hostile: int = 0

    def add(self, other: "Seen") -> None:
        self.seconds += other.seconds
        self.wrong += other.wrong
        self.hostile += other.hostile


def truth(model: Path, texts: list[str]) -> Truth:
    predictor = load(model, device="cpu")
    probabilities, _ = predictor.probabilities_and_vectors(texts)
    thresholds = predictor.decision.thresholds.values
    return {
        text: dict(zip(predictor.label_names, zip(row.tolist(), thresholds.tolist(), strict=True), strict=True))
        for text, row in zip(texts, probabilities, strict=True)
    }


def fault(answer: bytes, known: dict[str, tuple[float, float]]) -> str | None:
    """Return what is wrong with an answer, or None."""
    (prediction,) = json.loads(answer)["predictions"]
    given = {label["name"]: label["probability"] for label in prediction["labels"]}
    for name, (probability, threshold) in known.items():
        if (name in given) != (probability >= threshold) and abs(probability - threshold) > ROUNDING:
            return f"{name} is {'' if name in given else 'not '}given at {probability}, threshold {threshold}"
        if name in given and abs(given[name] - probability) > ROUNDING:
            return f"{name} has {given[name]} instead of {probability}"
    return None


# Hostile requests. Each leaves its connection open; the oldest of these are closed, if the server has not.


def says_nothing(line: socket.socket) -> None:
    """Hold an idle connection."""


def sends_half(line: socket.socket) -> None:
    line.sendall(f"{HEAD}4000000\r\n\r\n".encode() + b'{"text": "' + b"x" * 2_000_000)


def asks_for_everything(line: socket.socket) -> None:
    _post(line, json.dumps({"texts": ["a b c"] * 256, "top_k": 10**9}).encode())
    line.recv(1000)


def sends_no_text(line: socket.socket) -> None:
    _post(line, b'{"text": "\xff\xfe"}')
    if not (answer := line.recv(1000)).startswith(b"HTTP/1.1 400 "):
        raise HTTPException(f"invalid UTF-8 got {answer[:40]!r}")


def hangs_up(line: socket.socket) -> None:
    _post(line, b'{"text": "never mind"}')
    line.close()


ATTACKS: tuple[Callable[[socket.socket], None], ...] = (
    says_nothing,
    sends_half,
    asks_for_everything,
    sends_no_text,
    hangs_up,
)


def _post(line: socket.socket, body: bytes) -> None:
    line.sendall(f"{HEAD}{len(body)}\r\n\r\n".encode() + body)


def client(address: str, known: Truth, end: float, hostile: float, seed: int) -> Seen:
    """Send requests as one client until the end; some of them are hostile."""
    numbers, seen, texts = random.Random(seed), Seen(), list(known)
    connection = HTTPConnection(address, timeout=TIMEOUT)
    left_open: deque[socket.socket] = deque()
    while time.perf_counter() < end:
        if numbers.random() < hostile:
            seen.hostile += 1
            connection.close()  # the server would, if this takes longer than it waits for the next request
            host, _, port = address.rpartition(":")
            with suppress(OSError):  # refused, reset, too slow: what is done to it is its own affair
                left_open.append(socket.create_connection((host, int(port)), timeout=TIMEOUT))
                try:
                    numbers.choice(ATTACKS)(left_open[-1])
                except HTTPException as error:
                    seen.wrong.append(str(error))
            if len(left_open) > LEFT_OPEN // CLIENTS:
                left_open.popleft().close()
            continue
        text = numbers.choice(texts)
        started = time.perf_counter()
        try:
            connection.request("POST", "/v1/predict", json.dumps({"text": text}), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
            seen.seconds.append(time.perf_counter() - started)
            problem = fault(content, known[text]) if answer.status == 200 else f"{answer.status}: {content[:200]!r}"
        except (OSError, HTTPException) as error:
            problem = f"{type(error).__name__}: {error}"
            connection.close()
            time.sleep(0.1)
        if problem:
            seen.wrong.append(problem)
    connection.close()
    for line in left_open:
        line.close()
    return seen


def run(address: str, known: Truth, seconds: float, hostile: float) -> Seen:
    """Run all clients for so many seconds."""
    end, seen = time.perf_counter() + seconds, Seen()
    with ThreadPoolExecutor(CLIENTS) as pool:
        for one in [pool.submit(client, address, known, end, hostile, seed) for seed in range(CLIENTS)]:
            seen.add(one.result())
    return seen


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        known = truth(model, fit(model)[:TEXTS])
        with server(model) as (process, address):
            run(address, known, QUIET / 6, 0)
            quiet = run(address, known, QUIET, 0)
            run(address, known, WARM_UP, HOSTILE)
            time.sleep(SETTLE)
            before = resident_memory(process)
            loud = run(address, known, SECONDS, HOSTILE)
            time.sleep(SETTLE)
            after = resident_memory(process)
    rates = [len(seen.seconds) / seconds for seen, seconds in ((quiet, QUIET), (loud, SECONDS))]
    late = [percentile(seen.seconds, 99) for seen in (quiet, loud)]
    wrong = quiet.wrong + loud.wrong
    show(
        f"Soak on {os.cpu_count()} cores: {CLIENTS} clients for {SECONDS:,.0f} s, {loud.hostile:,} hostile requests "
        "among theirs; plain: none. Memory: at the start and at the end",
        [
            Line(
                "memory of the server",
                f"{before / 2**20:,.0f} MiB",
                f"{after / 2**20:,.0f} MiB",
                f"{after / before:.3f}×",
                "≤ 1.05×",
            ),
            Line("wrong answers", f"{len(quiet.wrong)}", f"{len(loud.wrong)} of {len(loud.seconds):,}", "", "0"),
            Line("requests a second", f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", f"{rates[1] / rates[0]:.2f}×"),
            Line("latency p99", f"{late[0] * 1000:.0f} ms", f"{late[1] * 1000:.0f} ms", f"{late[1] / late[0]:.2f}×"),
        ],
    )
    for problem in wrong[:10]:
        print(f"  wrong: {problem}")


if __name__ == "__main__":
    main()
