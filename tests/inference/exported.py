"""Small models made once for the tests of export, and a Python in which torch cannot be imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import architectures
import tiny
from abalone import AbaloneClassifier
from patience import PATIENCE

NAMES = tiny.WORDS[:5]  # known to the tokenizer, so that the sample of the check has more than unknown words
TEXTS, LABELS = tiny.corpus(120)

WITHOUT_TORCH = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package in ("torch", "transformers", "accelerate", "sklearn"):
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)

sys.meta_path.insert(0, Refused())
"""
COMMAND = "from abalone.cli import app; app(sys.argv[1:], prog_name='abalone')"


def fit(folder: Path, kind: str = "bert", **settings: object) -> AbaloneClassifier:
    """A classifier on an untrained encoder."""
    small = {"pooling": "mean", "max_length": 20, "epochs": 0, "folds": 0, "lexical": False, "neighbours": False}
    small |= {"device": "cpu"}
    settings = {**small, **settings}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABALONE_CACHE", str(folder / "cache"))
        encoder = architectures.save_encoder(folder / "encoder", kind)
        return AbaloneClassifier(encoder=encoder, **settings).fit(TEXTS, LABELS, label_names=NAMES)


def run_without_torch(*arguments: object, stdin: str = "", script: str = COMMAND) -> subprocess.CompletedProcess[str]:
    """The command `abalone`, or another script, where importing torch fails."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + script, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
