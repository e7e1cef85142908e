"""The models that are compared: each cross-fitted and trained once, what it says out of fold and of test kept."""

import json
import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from abalone.data.corpus import Corpus
from abalone.evaluation.crossfit_probe import choose_setting
from abalone.evaluation.matrices import EVERY
from abalone.evaluation.neighbours import NearestNeighbours
from abalone.evaluation.neighbours_in_numpy import vote_logits
from abalone.files.atomic import written_whole
from abalone.recipes import recipe
from abalone.reproduce.task import machine, versions
from abalone.training.checkpoint import load_tensors
from abalone.training.crossfit import Answers
from abalone.training.folds import divide, held_out_labels
from abalone.training.label_names import taught_by
from abalone.training.pipeline import fit
from abalone.training.run import ANSWERS, FOLD
from abalone.training.words import Words, cross_fit_words
from benchmarks.recipe.corpora import FEW_SHOT, SUBSAMPLES, read_corpus
from benchmarks.sharing import claimed

CONTENDERS = {
    "default": recipe(),
    "bce": recipe(objective="bce"),
    "msc+db": recipe(objective="msc+10*db"),
    "unnamed": recipe(learn_names=False),
    "fast": recipe("fast", neighbours=True),
}
FROZEN = "fast"  # trains no encoder: one seed stands for all, a CPU is enough, and it has folds of its own
WHOLE = ("arxiv54", "reuters")
ENCODER = "all-MiniLM-L6-v2"
SEEDS = 3  # of a whole corpus


class Run(NamedTuple):
    """A model to train: of which corpus, which contender, with which seed."""

    corpus: str
    contender: str
    seed: int


def runs(seeds: int = SEEDS) -> list[Run]:
    """Return what is trained, the most important and the longest first: seeds of the whole corpora, one of the rest."""
    trained = [name for name in CONTENDERS if name != FROZEN]
    whole = [Run(corpus, name, seed) for corpus in WHOLE for name in trained for seed in range(seeds)]
    small = [Run(corpus, name, 0) for corpus in SUBSAMPLES[::-1] for name in ("default", "bce")]
    frozen = [Run(corpus, FROZEN, 0) for corpus in (*WHOLE, *SUBSAMPLES)]
    return whole + small + [Run(corpus, "default", 0) for corpus in FEW_SHOT] + frozen


def logits_file(folder: Path, run: Run) -> Path:
    """Where the logits of one model are kept."""
    return folder / "logits" / f"{run.corpus}_{run.contender.replace('+', '-')}_{run.seed}.npz"


def words_file(folder: Path, corpus: str, folds: int, named: bool) -> Path:
    """Where the logits of the lexical expert are kept; it is the same for all seeds, and contenders with names."""
    return folder / "logits" / f"{corpus}_words_{folds}{'' if named else '_unnamed'}.npz"


def train_all(folder: Path, paths: dict[str, str | None], encoder: str, deadline: float, wanted: list[Run]) -> None:
    """Train what is missing and no other process is training; begin nothing after `deadline` seconds."""
    started = time.monotonic()
    for run in wanted:
        if time.monotonic() - started > deadline:
            return
        with claimed(logits_file(folder, run)) as missing:
            if missing:
                train(run, read_corpus(run.corpus, paths[run.corpus.partition("-")[0]]), encoder, folder)
                print(f"{time.monotonic() - started:6.0f} s  {run}", flush=True)


def train(run: Run, corpus: Corpus, encoder: str, folder: Path) -> None:
    """Train one model and keep what it, and the neighbours in its space, say out of fold and of test."""
    # What is mixed in, and decided, comes later, from what is kept here.
    config = CONTENDERS[run.contender].replace(encoder=encoder, seed=run.seed, lexical=False)
    place = folder / "runs" / f"{logits_file(folder, run).stem}-{os.getpid()}"
    started = time.monotonic()
    predictor = fit(config, corpus, place)
    seconds = time.monotonic() - started
    folds = divide(corpus.train, predictor.config.folds or 1)
    answers = [Answers.from_tensors(load_tensors(place / (FOLD.format(f.number) + ANSWERS))[0]) for f in folds]
    logits = np.concatenate([each.logits for each in answers], axis=1)  # [S, n, L]
    setting = choose_setting(logits, held_out_labels(corpus.train, folds)["learnable"]) if len(logits) > 1 else 0
    embeddings = predictor.embed(corpus.test.texts)
    said = {"held out head": logits[setting], "test head": predictor.network.head.logits(embeddings)}
    if config.neighbours:
        k, neighbours = NearestNeighbours().k, predictor.neighbours
        if neighbours is None:  # not mixed in here
            neighbours = NearestNeighbours(fp16=True).fit(predictor.embed(corpus.train.texts), corpus.train.labels)
        said["held out neighbours"] = np.concatenate(
            [vote_logits(each.shares.toarray(), k) for each in answers if each.shares is not None]
        )
        said["test neighbours"] = neighbours.logits_in_blocks(embeddings)[EVERY, EVERY]
    history = [epoch for stage in predictor.story["history"].values() for epoch in stage]
    story = {
        "config": predictor.config.replace(encoder=Path(encoder).name).to_dict(),
        "seconds": round(seconds, 1),
        "training_seconds": round(sum(epoch["seconds"] for epoch in history), 1),
        "out_of_fold_without_lexical": predictor.story["scores"],
        "history": history,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(config.device),
        "versions": versions(),
    }
    _keep(logits_file(folder, run), said, story)
    shutil.rmtree(place, ignore_errors=True)


def read_words(name: str, corpus: Corpus, folder: Path, folds: int, named: bool) -> None:
    """Cross-fit the lexical expert and keep what it says; folds are those of the contenders."""
    taught = taught_by(recipe(learn_names=named), corpus)
    words, parts = Words(taught, recipe().seed), divide(corpus.train, folds, len(taught) - len(corpus.train))
    held_out, link = cross_fit_words(words, [words.expert(part.taught) for part in parts], parts)
    expert = words.expert(np.arange(len(taught)))
    expert.link = link
    said = {"held out lexical": held_out[EVERY, EVERY], "test lexical": expert.scores(corpus.test.texts)}
    _keep(words_file(folder, name, folds, named), said, {"folds": folds})


def _keep(file: Path, logits: dict[str, np.ndarray], story: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(file) as stream:
        rounded: dict[str, Any] = {name: matrix.astype(np.float16) for name, matrix in logits.items()}
        np.savez_compressed(stream, story=json.dumps(story), **rounded)
