"""Which objective, and for how long: models of every pool, judged by documents that they have not seen.

`prepare` tokenises the pools here, `train` trains what FOLDER lacks (several processes share the work, on one GPU or
on none), `score` mixes in the experts, fits every decision on one half of the judging documents, scores it on the
other, and writes `screen.json`. No test document is read.
"""

import json
import os
import shutil
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from abalone.data.cache import written_whole
from abalone.data.corpus import Corpus
from abalone.data.load import load_corpus
from abalone.data.tokens import tokenize
from abalone.evaluation.decision import fit_decision
from abalone.evaluation.knn import NearestNeighbours
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.metrics import evaluate
from abalone.model.encoder import load_encoder
from abalone.model.feed import TokenFeed, embed
from abalone.model.heads import LinearHead
from abalone.progress import track
from abalone.ranks import ALONE
from abalone.recipes import recipe
from abalone.training.engine import train as run_engine
from abalone.training.objectives import Objective
from abalone.training.pipeline import rate_for_width
from abalone.training.processes import make_accelerator
from abalone.training.run import TrainingRun
from benchmarks.recipe.pools import Base, Pool, joined, pools, read_base, rows_of, write_base

OBJECTIVES = ("bce", "zlpr", "db", "msc+10*bce", "msc+0.3*zlpr", "msc+10*db")
EPOCHS = {  # of each pool, for all objectives; then, for those of LONGER, others
    "reuters": ((40,), (20, 80)),
    "arxiv54": ((5,), (8,)),
    "arxiv54-8000": ((10, 20), (5, 40)),
    "arxiv54-2000": ((20, 40), (10, 80)),
    "arxiv54-500": ((40, 80), (20, 160)),
    "arxiv54-8shot": ((40, 80), ()),
    "arxiv54-16shot": ((40, 80), ()),
    "reuters-8shot": ((40, 80), ()),
    "reuters-16shot": ((40, 80), ()),
}
LONGER = ("zlpr", "msc+10*bce")
BASES = ("reuters", "arxiv54")
EXPERTS: tuple[tuple[str, ...], ...] = ((), ("lexical",), ("neighbours",), ("lexical", "neighbours"))
METRICS = ("micro_f1", "macro_f1", "macro_f1_tail")

Run = tuple[str, str, int]  # pool, objective, epochs


def runs() -> list[Run]:
    """Return everything that is tried."""
    asked = [
        (pool, objective, epochs)
        for pool, (every, some) in EPOCHS.items()
        for objective in OBJECTIVES
        for epochs in (*every, *(some if objective in LONGER else ()))
    ]
    return [run for run in asked if run not in {("reuters", "msc+10*bce", 80), ("arxiv54", "msc+10*bce", 8)}]


def file_of(folder: Path, run: Run) -> Path:
    """Return where the logits of a run are kept."""
    pool, objective, epochs = run
    return folder / "screen" / f"{pool}_{objective.replace('*', 'x')}_{epochs}.npz"


def load(name: str, path: str | None) -> Corpus:
    """Read one of the base corpora; `path` is its folder or archive."""
    return load_corpus(name, path=path) if name == "reuters" else load_corpus(path or name)


def prepare(folder: Path, sources: dict[str, str | None], encoder: str) -> None:
    """Write the tokens and labels of each base corpus."""
    _, tokenizer = load_encoder(encoder, "mean", 0.0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in sources.items():
        texts, labels = joined(load(name, path))
        write_base(folder / f"{name}.npz", Base(tokenize(texts, tokenizer), labels), recipe().max_length)


def train(folder: Path, encoder: str, deadline: float) -> None:
    """Train runs that no other process has begun, the longest first, and begin none after `deadline` seconds."""
    started = time.monotonic()
    bases = {name: read_base(folder / f"{name}.npz") for name in BASES}
    every = {name: pool for base in BASES for name, pool in pools(base, bases[base].labels).items()}
    cost = {run: len(every[run[0]].train) * run[2] * (1.6 if "msc" in run[1] else 1.0) for run in runs()}
    (folder / "screen").mkdir(parents=True, exist_ok=True)
    for run in sorted(runs(), key=lambda run: -cost[run]):
        target = file_of(folder, run)
        try:
            if target.exists() or time.monotonic() - started > deadline:
                continue
            target.with_suffix(".begun").touch(exist_ok=False)
        except FileExistsError:
            continue
        seconds = time.monotonic()
        said = train_one(run, every[run[0]], bases[every[run[0]].base], encoder, folder / f"scratch-{os.getpid()}")
        seconds = time.monotonic() - seconds
        print(f"{time.monotonic() - started:6.0f} s  {run}: {seconds:.1f} s", flush=True)
        with written_whole(target) as stream:
            np.savez_compressed(stream, seconds=np.array(seconds), **said)


def train_one(run: Run, pool: Pool, base: Base, encoder: str, scratch: Path) -> dict[str, Any]:
    """Train one model to its last epoch; return what it, and its neighbours, say of the judging documents."""
    _, name, epochs = run
    config = recipe(objective=name, epochs=epochs, encoder=encoder)
    accelerator = make_accelerator(config.device, config.precision)
    torch.manual_seed(config.seed)
    text_encoder, _ = load_encoder(encoder, config.pooling, config.dropout)
    config = config.replace(learning_rate=rate_for_width(text_encoder.hidden_size))
    feeds = [
        TokenFeed(rows_of(base.tokens, rows), base.labels[rows], config.max_length)
        for rows in (pool.train, pool.judged)
    ]
    objective = Objective(text_encoder, base.labels.shape[1], name, config, ALONE, feeds[0].labels)
    settings = TrainingRun(config, feeds[0], feeds[1], accelerator, scratch)
    run_engine(objective, feeds[0], settings.plan(objective), accelerator, scratch, measure=dict)
    shutil.rmtree(scratch, ignore_errors=True)
    device = accelerator.device
    embeddings = [embed(objective.encoder, feed, device, ranks=ALONE) for feed in feeds]
    neighbours = NearestNeighbours(device=str(device)).fit(embeddings[0], feeds[0].labels)
    assert objective.head is not None
    said = {"head": LinearHead.of_layer(objective.head).logits(embeddings[1])}
    said["neighbours"] = neighbours.logits(embeddings[1])
    return {key: value.astype(np.float16) for key, value in said.items()}


def words(folder: Path, name: str, pool: Pool, texts: list[str], labels: csr_array) -> np.ndarray:
    """Return the logits of the lexical expert on the judging documents; its link is the default one."""
    file = folder / "words" / f"{name}.npz"
    if not file.exists():
        expert = LexicalModel().fit([texts[row] for row in pool.train], labels[pool.train])
        file.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(file) as stream:
            scores = expert.scores([texts[row] for row in pool.judged]).astype(np.float16)
            np.savez_compressed(stream, lexical=scores)
    logits: np.ndarray = np.load(file)["lexical"].astype(np.float32)
    return logits


def crosswise(
    logits: np.ndarray, experts: dict[str, np.ndarray], truth: csr_array, frequencies: np.ndarray
) -> dict[str, float]:
    """Return scores of decisions that are fitted on one half of the documents and made on the other, in percent."""
    given = np.empty(truth.shape, dtype=bool)
    order = np.random.default_rng(0).permutation(len(given))
    for here, there in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        decision = fit_decision(
            logits[here], {name: each[here] for name, each in experts.items()}, truth[here], frequencies, recipe()
        )
        others = {name: each[there] for name, each in experts.items()}
        given[there] = decision.labels(decision.probabilities(logits[there], others))
    scores = evaluate(truth, given, frequencies=frequencies, scored=np.asarray(truth.sum(axis=0)).ravel() > 0)
    return {metric: round(100 * scores[metric], 2) for metric in METRICS if metric in scores}


def score(folder: Path, sources: dict[str, str | None]) -> Iterator[dict[str, Any]]:
    """Score every run that is there, with and without experts, and tf-idf + SVM beside them."""
    for base, path in sources.items():
        texts, labels = joined(load(base, path))
        for name, pool in pools(base, labels).items():
            done = [run for run in runs() if run[0] == name and file_of(folder, run).exists()]
            truth, frequencies = labels[pool.judged], np.asarray(labels[pool.train].sum(axis=0)).ravel()
            lexical = words(folder, name, pool, texts, labels)
            about = {"pool": name, "documents": len(pool.train)}
            yield about | {"objective": "tf-idf + SVM", "experts": [], **crosswise(lexical, {}, truth, frequencies)}
            for run in track(done, name):
                stored = np.load(file_of(folder, run))
                said = {"lexical": lexical} | {key: stored[key].astype(np.float32) for key in ("head", "neighbours")}
                for experts in EXPERTS:
                    found = crosswise(said["head"], {key: said[key] for key in experts}, truth, frequencies)
                    yield about | {
                        "objective": run[1],
                        "epochs": run[2],
                        "seconds": round(float(stored["seconds"]), 1),
                        "experts": list(experts),
                        **found,
                    }


def main() -> None:
    """Run one of the three steps."""
    parser = ArgumentParser("python -m benchmarks.recipe.screen", description=__doc__)
    parser.add_argument("step", choices=("prepare", "train", "score"))
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--reuters", help="the archive of Reuters-21578")
    parser.add_argument("--arxiv54", help="the folder of arxiv54")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--deadline", type=float, default=float("inf"), help="seconds after which no run begins")
    asked = parser.parse_args()
    sources = {"reuters": asked.reuters, "arxiv54": asked.arxiv54}
    if asked.step == "prepare":
        prepare(asked.output, sources, asked.encoder)
    elif asked.step == "train":
        train(asked.output, asked.encoder, asked.deadline)
    else:
        records = list(score(asked.output, sources))
        (asked.output / "screen.json").write_text(json.dumps(records, indent=0) + "\n")


if __name__ == "__main__":
    main()
