"""Which objective, and for how long: models of every pool, judged by documents that they have not seen.

`prepare` tokenises the pools here, `train` trains what FOLDER lacks (several processes share the work, on one GPU or
on none), `score` mixes in the experts, fits every decision on one half of the judging documents, scores it on the
other, and writes `screen.json`. No test document is read.
"""

import json
import os
import re
import shutil
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array

from abalone.data.corpus import Corpus
from abalone.data.load import load_corpus
from abalone.data.tokens import tokenize
from abalone.distributed import ALONE
from abalone.encoder.feed import TokenFeed, embed
from abalone.encoder.heads import LinearHead
from abalone.encoder.load import load_encoder
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.metrics import evaluate
from abalone.evaluation.mixing import fit_decision
from abalone.evaluation.neighbours import NearestNeighbours
from abalone.files.atomic import written_whole
from abalone.progress import track
from abalone.recipes import recipe
from abalone.training.loop import train as run_engine
from abalone.training.objectives import Objective
from abalone.training.open_settings import rate_for_width
from abalone.training.run import TrainingRun
from abalone.training.runtime import Runtime
from benchmarks.recipe.pools import Base, Pool, joined, pools, read_base, rows_of, write_base
from benchmarks.sharing import claimed

OBJECTIVES = ("bce", "zlpr", "db", "msc+10*bce", "msc+0.3*zlpr", "msc+10*db")
CONFIRMED = ("zlpr", "msc+0.3*zlpr", "msc+10*db")
EPOCHS = {  # of each pool, for all objectives; then, for those of LONGER, others
    "reuters": ((40,), (20, 80)),
    "arxiv54": ((5,), (8,)),
    "arxiv54-8000": ((10, 20), (5, 40)),
    "arxiv54-2000": ((20, 40), (10, 80)),
    "arxiv54-500": ((80,), (160,)),
    "arxiv54-8shot": ((80,), ()),
    "arxiv54-16shot": ((80,), ()),
    "reuters-8shot": ((80,), ()),
    "reuters-16shot": ((80,), ()),
}
LONGER = ("zlpr", "msc+10*bce")
LEFT_OUT = {("reuters", "msc+10*bce", 80), ("arxiv54", "msc+10*bce", 8)}  # GPU time is short
BASES = ("reuters", "arxiv54")
EXPERTS: tuple[tuple[str, ...], ...] = ((), ("lexical",), ("neighbours",), ("lexical", "neighbours"))
METRICS = ("micro_f1", "macro_f1", "macro_f1_tail")


class Run(NamedTuple):
    """One model: what it is trained on, and how; the seed also draws subsamples and few-shot documents."""

    pool: str
    objective: str
    epochs: int
    seed: int = 0


def runs() -> list[Run]:
    """Return everything that is tried: all objectives once, and the best over other folds, draws and seeds."""
    screened = [
        Run(pool, objective, epochs)
        for pool, (every, some) in EPOCHS.items()
        for objective in OBJECTIVES
        for epochs in (*every, *(some if objective in LONGER else ()))
        if (pool, objective, epochs) not in LEFT_OUT
    ]
    confirmed = [Run("reuters" + fold, each, 16) for each in CONFIRMED for fold in ("", "/1", "/2", "/3", "/4")]
    confirmed += [Run("arxiv54", each, 5, seed) for each in CONFIRMED[1:] for seed in (1, 2)]
    confirmed += [Run("arxiv54-2000", each, 50, seed) for each in CONFIRMED for seed in (0, 1, 2)]
    confirmed += [Run("arxiv54-8000", each, 12, seed) for each in CONFIRMED for seed in (0, 1)]
    return screened + confirmed


def file_of(folder: Path, run: Run) -> Path:
    """Return where the logits of a run are kept."""
    name = f"{run.pool.replace('/', '.')}_{run.objective.replace('*', 'x')}_{run.epochs}"
    return folder / "screen" / (name + (f"_{run.seed}" if run.seed else "") + ".npz")


class Pools:
    """The pools of some corpora, drawn when they are asked for.

    Args:
        labels: of each base corpus, [n, L].
    """

    def __init__(self, labels: dict[str, csr_array]) -> None:
        self._labels = labels
        self._drawn: dict[tuple[str, int], dict[str, Pool]] = {}

    def __getitem__(self, run: Run) -> Pool:
        base = re.split("[-/]", run.pool)[0]
        if (base, run.seed) not in self._drawn:
            self._drawn[base, run.seed] = pools(base, self._labels[base], run.seed)
        return self._drawn[base, run.seed][run.pool]


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
    """Train what is missing, unless another process does, the longest first; begin none after `deadline` seconds."""
    started = time.monotonic()
    bases = {name: read_base(folder / f"{name}.npz") for name in BASES}
    every = Pools({name: base.labels for name, base in bases.items()})
    cost = {run: len(every[run].train) * run.epochs * (1.6 if "msc" in run.objective else 1.0) for run in runs()}
    for run in sorted(runs(), key=lambda run: -cost[run]):
        if time.monotonic() - started > deadline:
            return
        target = file_of(folder, run)
        with claimed(target) as missing:
            if not missing:
                continue
            seconds = time.monotonic()
            said = train_one(run, every[run], bases[every[run].base], encoder, folder / f"scratch-{os.getpid()}")
            seconds = time.monotonic() - seconds
            print(f"{time.monotonic() - started:6.0f} s  {run}: {seconds:.1f} s", flush=True)
            with written_whole(target) as stream:
                np.savez_compressed(stream, seconds=np.array(seconds), **said)


def train_one(run: Run, pool: Pool, base: Base, encoder: str, scratch: Path) -> dict[str, Any]:
    """Train one model to its last epoch; return what it, and its neighbours, say of the judging documents."""
    config = recipe(objective=run.objective, epochs=run.epochs, encoder=encoder, seed=run.seed)
    runtime = Runtime.start(config.device, config.precision)
    torch.manual_seed(config.seed)
    text_encoder, _ = load_encoder(encoder, config.pooling, config.dropout)
    config = config.replace(learning_rate=rate_for_width(text_encoder.hidden_size))
    feeds = [
        TokenFeed(rows_of(base.tokens, rows), base.labels[rows], config.max_length)
        for rows in (pool.train, pool.judged)
    ]
    objective = Objective(text_encoder, base.labels.shape[1], run.objective, config, ALONE, feeds[0].labels)
    settings = TrainingRun(config, feeds[0], feeds[1], runtime, scratch)
    run_engine(objective, feeds[0], settings.plan(objective), runtime, scratch, measure=dict)
    shutil.rmtree(scratch, ignore_errors=True)
    device = runtime.device
    embeddings = [embed(objective.encoder, feed, device, ranks=ALONE) for feed in feeds]
    neighbours = NearestNeighbours(device=str(device)).fit(embeddings[0], feeds[0].labels)
    assert objective.head is not None
    said = {"head": LinearHead.of_layer(objective.head).logits(embeddings[1])}
    said["neighbours"] = neighbours.logits(embeddings[1])
    return {key: value.astype(np.float16) for key, value in said.items()}


def words(folder: Path, run: Run, pool: Pool, texts: list[str], labels: csr_array) -> np.ndarray:
    """Return the logits of the lexical expert on the judging documents; its link is the default one."""
    file = folder / "words" / f"{run.pool.replace('/', '.')}_{run.seed if '-' in run.pool else 0}.npz"
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
    """Score every run that is there, with and without experts, and tf-idf + SVM beside them.

    Runs over the fifths of a corpus are scored together: every document is judged by a model that has not seen it.
    """
    for base, path in sources.items():
        texts, labels = joined(load(base, path))
        every = Pools({base: labels})
        done = [run for run in runs() if run.pool.startswith(base) and file_of(folder, run).exists()]
        groups: dict[Run, list[Run]] = {}
        for run in done:
            groups.setdefault(run._replace(pool=run.pool.split("/")[0]), []).append(run)
        seen: set[tuple[str, int, int]] = set()
        for first, parts in track(list(groups.items()), base):
            judged = [every[run] for run in parts]
            rows = np.concatenate([pool.judged for pool in judged])
            said = _said(folder, parts) | {
                "lexical": np.concatenate(
                    [words(folder, run, pool, texts, labels) for run, pool in zip(parts, judged, strict=True)]
                )
            }
            frequencies = np.asarray(labels[judged[0].train].sum(axis=0)).ravel()
            about = {"pool": first.pool, "folds": len(parts), "seed": first.seed, "documents": len(judged[0].train)}
            if (key := (first.pool, first.seed if "-" in first.pool else 0, len(parts))) not in seen:
                seen.add(key)
                found = crosswise(said["lexical"], {}, labels[rows], frequencies)
                yield about | {"objective": "tf-idf + SVM", "experts": [], **found}
            for experts in EXPERTS:
                found = crosswise(said["head"], {each: said[each] for each in experts}, labels[rows], frequencies)
                yield about | {"objective": first.objective, "epochs": first.epochs, "experts": list(experts), **found}


def _said(folder: Path, parts: list[Run]) -> dict[str, np.ndarray]:
    stored = [np.load(file_of(folder, run)) for run in parts]
    return {key: np.concatenate([file[key] for file in stored]).astype(np.float32) for key in ("head", "neighbours")}


def table(records: list[dict[str, Any]]) -> str:
    """Lay out macro-F1 with both experts, means over seeds: a line per pool and number of epochs."""
    both = [each for each in records if each["experts"] == ["lexical", "neighbours"]]
    words = {(each["pool"], each["folds"], each["seed"]): each for each in records if "epochs" not in each}
    lines = ["| pool | epochs | seeds | tf-idf + SVM | " + " | ".join(OBJECTIVES) + " |", "|---|" + "--:|" * 9]
    for pool, folds, epochs in dict.fromkeys((each["pool"], each["folds"], each["epochs"]) for each in both):
        here = [each for each in both if (each["pool"], each["folds"], each["epochs"]) == (pool, folds, epochs)]
        seeds = sorted({each["seed"] for each in here})
        alone = [words[pool, folds, seed if "-" in pool else 0]["macro_f1"] for seed in seeds]
        cells = [f"{np.mean(alone):.1f}"]
        for objective in OBJECTIVES:
            found = [each["macro_f1"] for each in here if each["objective"] == objective]
            few = f" ({len(found)})" if 0 < len(found) < len(seeds) else ""
            cells.append(f"{np.mean(found):.1f}{few}" if found else "–")
        name = f"{pool}, all {folds} fifths" if folds > 1 else pool
        lines.append(f"| {name} | {epochs} | {len(seeds)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


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
        lines = ",\n".join(json.dumps(record) for record in records)
        (asked.output / "screen.json").write_text(f"[\n{lines}\n]\n")
        (asked.output / "screen.md").write_text(table(records))


if __name__ == "__main__":
    main()
