"""The models that are compared: each trained once, what it says of validation and test kept in a file."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from abalone.data.cache import written_whole
from abalone.data.corpus import Corpus
from abalone.evaluation.knn import NearestNeighbours
from abalone.evaluation.lexical import LexicalModel
from abalone.experiments.machine import machine, versions
from abalone.recipes import recipe
from abalone.training.pipeline import fit

CONTENDERS = {"bce": "bce", "msc+bce": recipe().objective, "msc": "msc"}
"""Objectives; everything else is as in the recipe."""


def logits_file(folder: Path, contender: str, seed: int) -> Path:
    """Where the logits of one model are kept."""
    return folder / "logits" / f"{contender}-{seed}.npz"


def words_file(folder: Path) -> Path:
    """Where the logits of the lexical expert are kept; it is the same for all."""
    return folder / "logits" / "words.npz"


def train(contender: str, seed: int, corpus: Corpus, encoder: str, folder: Path) -> None:
    """Train one model and keep what it, and the neighbours in its space, say of validation and test."""
    config = recipe(
        objective=CONTENDERS[contender],
        encoder=encoder,
        seed=seed,
        lexical=False,  # what is mixed in, and decided, comes later, from what is kept here
        neighbours=False,
        calibrate=False,
        thresholds="half",
    )
    started = time.monotonic()
    predictor = fit(config, corpus, folder / "runs" / f"{contender}-{seed}")
    seconds = time.monotonic() - started
    embeddings = {name: predictor.embed(split.texts) for name, split in corpus.splits()}
    neighbours = NearestNeighbours().fit(embeddings.pop("train"), corpus.train.labels)
    said = {f"{name} head": predictor.network[2].logits(matrix) for name, matrix in embeddings.items()}
    said |= {f"{name} neighbours": neighbours.logits(matrix) for name, matrix in embeddings.items()}
    history = [epoch for stage in predictor.story["history"].values() for epoch in stage]
    story = {
        "config": predictor.config.replace(encoder=Path(encoder).name).to_dict(),
        "seconds": round(seconds, 1),
        "training_seconds": round(sum(epoch["seconds"] for epoch in history), 1),
        "history": history,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(config.device),
        "versions": versions(),
    }
    _keep(logits_file(folder, contender, seed), said, story)


def read_words(corpus: Corpus, folder: Path) -> None:
    """Fit the lexical expert and keep what it says."""
    expert = LexicalModel().fit(corpus.train.texts, corpus.train.labels)
    expert.calibrate(corpus.validation.texts, corpus.validation.labels)
    said = {f"{name} lexical": expert.scores(split.texts) for name, split in corpus.splits() if name != "train"}
    _keep(words_file(folder), said, {})


def _keep(file: Path, logits: dict[str, np.ndarray], story: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(file) as stream:
        rounded: dict[str, Any] = {name: matrix.astype(np.float16) for name, matrix in logits.items()}
        np.savez_compressed(stream, story=json.dumps(story), **rounded)
