"""Fuzzing what a long job leaves behind and goes on from: parts of answers, and documents kept in the cache."""

import os
import random
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np

from abalone.data.load import load_corpus
from abalone.errors import DataError
from abalone.evaluation.decision import Decision, Thresholds
from abalone.inference.bulk import predict_in_parts
from fuzz_readers import Files, own_files, put, put_damaged, written_by
from fuzzing import Target, only_clear_errors
from mutations import mutated

Numbers = random.Random
TEXTS = [f"text {number}" for number in range(25)]


class Lengths:
    """A model that answers at once."""

    label_names = ("long", "short")
    decision = Decision(Thresholds(np.array([0.5, 0.5])))

    def scores(self, texts: list[str]) -> np.ndarray:
        """[n, 2]."""
        return np.array([[len(text) % 2, 1 - len(text) % 2] for text in texts], dtype=float)

    probabilities = embed = scores


@cache
def answered(form: str) -> Files:
    """A folder of parts, whole."""
    return written_by(lambda folder: predict_in_parts(Lengths(), TEXTS, folder / "out", part_size=10, form=form))


def check_parts(numbers: Numbers, place: Path) -> None:
    """A folder of answers that is damaged: the job goes on to the same end, or says what is wrong."""
    form = numbers.choice(("jsonl", "parquet"))
    put_damaged(answered(form), place, numbers)
    with only_clear_errors(about="out"):
        assert predict_in_parts(Lengths(), TEXTS, place / "out", part_size=10, form=form, resume=True) == len(TEXTS)


def check_kept(numbers: Numbers, place: Path) -> None:
    """Documents in the cache that are damaged."""
    name = numbers.choice(("own.jsonl", "own.csv", "own.parquet", "own.arrow"))
    put(own_files()[name], place)
    with patch.dict(os.environ, ABALONE_CACHE=str(place / "cache")), patch("abalone.data.load.IN_MEMORY", -1):
        for _ in range(2):
            with only_clear_errors(DataError):
                corpus = load_corpus(place / name)
                for _, split in corpus.splits():
                    for text in split.texts:
                        text.encode()
            (file,) = (place / "cache" / "texts").iterdir()
            file.write_bytes(mutated(file.read_bytes(), numbers))


TARGETS = {
    "jobs/parts of answers": Target(check_parts, small=10, share=0.5),
    "jobs/kept documents": Target(check_kept, small=10, share=0.5),
}
