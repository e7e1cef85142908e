"""The data layer at the size of the real thing: `python -m benchmarks.data`.

RCV1-v2 may not be passed on, so a corpus of its size and form is made up: 804,414 documents of about 241 tokens.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from abalone.data.benchmarks.rcv1 import DOCUMENTS, QRELS, TEST_IDS, TOKENS, TRAIN_IDS

TRAINING_DOCUMENTS = 23_149
TOPICS, TOPICS_PER_DOCUMENT = 103, 3
TOKENS_PER_LINE, LINES_PER_DOCUMENT = 12, 20
POOL_LINES = 100_000

# Runs in a process of its own, so that the peak is that of reading and nothing else.
READ = """
import resource, sys, time
from pathlib import Path
from abalone.data.benchmarks import BENCHMARKS

start = time.perf_counter()
corpus = BENCHMARKS["rcv1"](Path(sys.argv[1]))
seconds = time.perf_counter() - start
unit = 1 if sys.platform == "darwin" else 1024  # what ru_maxrss counts in
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
sizes = "/".join(f"{len(split):,}" for _, split in corpus.splits())
print(f"{seconds:.1f} s, peak {peak:.2f} GiB, {sizes} documents, {len(corpus.label_names)} labels")
"""


def measure() -> list[tuple[str, str]]:
    """What was measured, and the finding."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = time.perf_counter()
        size = write_rcv1(folder)
        made = f"{time.perf_counter() - start:.1f} s, {size / 2**30:.2f} GiB"
        environment = {**os.environ, "ABALONE_CACHE": str(folder / "cache")}
        command = [sys.executable, "-c", READ, str(folder)]
        first, second = (
            subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()
            for _ in range(2)
        )
    return [
        ("RCV1-v2 of the real size in LYRL2004 form, made up", made),
        ("the same, read for the first time (limit: 4 GiB)", first),
        ("the same, read again", second),
    ]


def write_rcv1(folder: Path) -> int:
    """Write the six files of LYRL2004 with random content; returns their size in bytes."""
    rng = random.Random(0)
    pool = [_line(rng) for _ in range(POOL_LINES)]
    train = sorted(rng.sample(range(TRAIN_IDS[0], TRAIN_IDS[1] + 1), TRAINING_DOCUMENTS))
    test = sorted(rng.sample(range(TEST_IDS[0], TEST_IDS[1] + 1), DOCUMENTS - TRAINING_DOCUMENTS))
    quarter = -(-len(test) // 4)
    parts = [train, *(test[start : start + quarter] for start in range(0, len(test), quarter))]
    for name, ids in zip(TOKENS, parts, strict=True):
        with (folder / name).open("w", encoding="ascii") as file:
            file.writelines(_documents(ids, pool, rng))
    topics = [f"T{number:03d}" for number in range(TOPICS)]
    # Zipf with a steep tail: a few topics stay under thirty training documents, as in the real corpus.
    weights = [1 / (1 + number) ** 1.6 for number in range(TOPICS)]
    with (folder / QRELS).open("w", encoding="ascii") as file:
        for ids in parts:
            drawn = iter(rng.choices(topics, weights, k=len(ids) * TOPICS_PER_DOCUMENT))
            for document in ids:
                carried = {next(drawn) for _ in range(TOPICS_PER_DOCUMENT)}
                file.writelines(f"{topic} {document} 1\n" for topic in sorted(carried))
    return sum(file.stat().st_size for file in folder.iterdir())


def _line(rng: random.Random) -> str:
    tokens = ("".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(TOKENS_PER_LINE))
    return " ".join(tokens) + "\n"


def _documents(ids: list[int], pool: list[str], rng: random.Random) -> Iterator[str]:
    """Records whose lines come from `pool`: making every token anew would take longer than the reading."""
    for document in ids:
        lines = min(1 + int(rng.expovariate(1 / LINES_PER_DOCUMENT)), 10 * LINES_PER_DOCUMENT)
        start = rng.randrange(len(pool) - lines)
        yield f".I {document}\n.W\n{''.join(pool[start : start + lines])}\n"


def main() -> None:
    """Print what `measure` finds."""
    for what, finding in measure():
        print(f"{what}: {finding}")


if __name__ == "__main__":
    main()
