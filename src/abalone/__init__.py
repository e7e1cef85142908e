"""ABALONE: long-tailed multi-label text classification with supervised contrastive learning.

The public names are imported on first use, so that `import abalone` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from abalone.classifier import AbaloneClassifier as AbaloneClassifier
    from abalone.data.load import load_corpus as load_corpus
    from abalone.encoder.queue import MemoryQueue as MemoryQueue
    from abalone.evaluation.probe import LinearProbe as LinearProbe

_HOME = {
    "AbaloneClassifier": "abalone.classifier",
    "LinearProbe": "abalone.evaluation.probe",
    "MemoryQueue": "abalone.encoder.queue",
    "load_corpus": "abalone.data.load",
}

__all__ = ["AbaloneClassifier", "LinearProbe", "MemoryQueue", "__version__", "load_corpus"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'abalone' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
