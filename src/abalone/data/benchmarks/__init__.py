"""The paper's corpora by name.

A reader finds the published files, prepares them as the paper does, and says in the corpus' provenance and
notes what it did. None of them downloads: where files are missing, the error says what to get from whom.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

from abalone.data.corpus import Corpus

Reader = Callable[[Path | None], Corpus]


def _read(module: str, function: str, path: Path | None = None) -> Corpus:
    reader: Reader = getattr(import_module(f"{__name__}.{module}"), function)
    return reader(path)


# Each takes the folder or file that holds the published files, or None for the default place.
BENCHMARKS: dict[str, Reader] = {
    "aapd": partial(_read, "aapd", "load"),
    "rcv1": partial(_read, "rcv1", "load"),
    "uklex": partial(_read, "uklex", "load"),
    "reuters": partial(_read, "reuters", "load"),
    "arxiv": partial(_read, "arxiv", "load"),
    "arxiv-sample": partial(_read, "arxiv", "load_sample"),
}
