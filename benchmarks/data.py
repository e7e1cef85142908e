"""Reading and splitting a corpus of the size of RCV1-v2.

RCV1-v2 may not be passed on, so a corpus of its size and form is generated: 804,414 documents of about 241 tokens.
"""

import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from abalone.data.benchmarks.rcv1 import DOCUMENTS, QRELS, TEST_IDS, TOKENS, TRAIN_IDS
from abalone.data.split import iterative_split
from benchmarks.measure import Line, best_seconds, in_new_process, show

TRAINING_DOCUMENTS = 23_149
TOPICS, TOPICS_PER_DOCUMENT = 103, 3
TOKENS_PER_LINE, LINES_PER_DOCUMENT = 12, 20
POOL_LINES = 100_000
MANY_LABELS, LABELS_PER_DOCUMENT = 4_000, 10

READ = """
import json, resource, sys, time
from abalone import load_corpus

start = time.perf_counter()
load_corpus("rcv1", path=sys.argv[1])
seconds = time.perf_counter() - start
unit = 1 if sys.platform == "darwin" else 1024  # what ru_maxrss counts in
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit]))
"""

# The cost of a second start does not depend on the tokenizer, so the first one gets the quickest there is.
TOKENIZE = """
import json, sys, time
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from abalone import load_corpus
from abalone.data.tokens import tokenize

words = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
start = time.perf_counter()
for _, split in load_corpus("rcv1", path=sys.argv[1]).splits():
    tokenize(split.texts, tokenizer).lengths(300)
print(json.dumps(time.perf_counter() - start))
"""


def lines_for(folder: Path) -> list[Line]:
    read = partial(in_new_process, READ, folder, ABALONE_CACHE=str(folder / "cache"))
    tokenise = partial(in_new_process, TOKENIZE, folder, ABALONE_CACHE=str(folder / "cache"))
    (plain,) = best_seconds(partial(read_through, folder), repeat=0)
    (first, peak), (again, _) = read(), read()
    tokenised_first, tokenised_again = tokenise(), tokenise()
    return [
        Line("read for the first time", f"{plain:.1f} s", f"{first:.1f} s", f"{first / plain:.1f}×"),
        Line("  peak of memory", "", f"{peak / 2**30:.2f} GiB", "", "< 4 GiB"),
        Line("read again", f"{plain:.1f} s", f"{again:.2f} s", f"{again / plain:.2f}×"),
        Line("read and tokenised for the first time", "", f"{tokenised_first:.1f} s", ""),
        Line("read and tokenised again", "", f"{tokenised_again:.2f} s", "", "< 2 s"),
    ]


def read_through(folder: Path) -> None:
    """Read every line and keep none."""
    for name in (*TOKENS, QRELS):
        with (folder / name).open(encoding="latin-1") as file:
            for line in file:
                line.split()


def write_rcv1(folder: Path) -> int:
    """Write the six files of LYRL2004 with random content, and return their size in bytes."""
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
    """Yield records with lines from `pool`: generating every token would take longer than reading."""
    for document in ids:
        lines = min(1 + int(rng.expovariate(1 / LINES_PER_DOCUMENT)), 10 * LINES_PER_DOCUMENT)
        start = rng.randrange(len(pool) - lines)
        yield f".I {document}\n.W\n{''.join(pool[start : start + lines])}\n"


def split_line(documents: int) -> Line:
    """Time stratification with a long tail of labels: twice the documents should take about twice the time."""

    def labels(n: int) -> csr_array:
        columns = np.random.default_rng(0).zipf(1.3, n * LABELS_PER_DOCUMENT) % MANY_LABELS
        rows = np.repeat(np.arange(n), LABELS_PER_DOCUMENT)
        return csr_array((np.ones(columns.size, dtype=np.int32), (rows, columns)), shape=(n, MANY_LABELS))

    half, whole = best_seconds(
        *(partial(iterative_split, labels(n), (0.8, 0.1, 0.1), 0) for n in (documents // 2, documents)), repeat=1
    )
    what = f"stratified split, {documents:,} documents, {MANY_LABELS:,} labels; plain: half of them"
    return Line(what, f"{half:.1f} s", f"{whole:.1f} s", f"{whole / half:.1f}×", "≤ 3×")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = write_rcv1(folder)
        lines = lines_for(folder)
    title = f"RCV1-v2 of the real size, made up: {DOCUMENTS:,} documents, {size / 2**30:.2f} GiB in LYRL2004 form\n"
    show(f"{title}plain = splitting every line and keeping none; times without imports", lines)
    show("Splits that are made here", [split_line(40_000)])


if __name__ == "__main__":
    main()
