"""What `fast` should read of a frozen encoder: pooling, length and layer, judged out of fold.

`prepare` draws documents from the token files that `python -m benchmarks.recipe.screen prepare` made, and fits the
lexical expert to their texts, fold by fold. `read` encodes them and fits the probes and neighbours of every reading, on
a GPU in about a minute; all it needs are `FOLDER/fast/*_tokens.npz`. `score` mixes what both say, fits the decision on
one half of the documents, scores it on the other, and writes `fast.json` and `fast.md`. No test document is read.
"""

import json
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from itertools import product, starmap
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from sklearn.utils.parallel import Parallel, delayed
from torch import Tensor
from torch.nn.functional import normalize

from abalone.data.batches import token_budget_batches
from abalone.data.split import fold_of_documents
from abalone.device import cpu_has_bf16
from abalone.encoder.feed import TokenFeed
from abalone.encoder.load import load_encoder
from abalone.encoder.text_encoder import TextEncoder
from abalone.evaluation.crossfit_probe import CrossFitProbe, choose_setting
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.neighbours import NearestNeighbours
from abalone.files.atomic import written_whole
from benchmarks.recipe.pools import Base, joined, read_base, rows_of, write_base
from benchmarks.recipe.screen import METRICS, crosswise, load

FOLDS = {"reuters": 5, "arxiv54": 3}
DOCUMENTS = 10_000  # of a corpus, at random: enough to tell readings apart, and what is said of them travels
LAYERS = 3  # the last ones, which are read
POOLINGS = ("mean", "max", "cls")
LENGTHS = (64, 96, 128, 192, 256)
AS_IT_IS, SUMMED = "mean, of any length", "mean of the sum of two layers"
# Parts of a reading, (how many layers before the last, how its tokens are pooled), laid end to end; each part of a
# document is brought to length 1, as sentence encoders are trained to be compared.
READINGS: dict[str, tuple[tuple[int, str], ...]] = {
    "mean": ((0, "mean"),),
    AS_IT_IS: ((0, "mean"),),
    "cls": ((0, "cls"),),
    "mean of the layer before": ((1, "mean"),),
    SUMMED: ((0, "mean"), (1, "mean")),
    "mean, max": ((0, "mean"), (0, "max")),
    "mean of each of three layers": tuple((layer, "mean") for layer in range(LAYERS)),
    "mean, max, cls of each of three layers": tuple(product(range(LAYERS), POOLINGS)),
}
EVERY_READING = (96, 256)  # lengths at which all of them are tried; the others, with mean pooling alone
STEP = 16  # logits are kept to 1/16: the two files of a corpus stay below 16 MB
NEIGHBOURS = "neighbours"


def folds_of(labels: csr_array, name: str) -> np.ndarray:
    """Return the fold of each document, [n]."""
    return fold_of_documents(labels, None, FOLDS[name], 0)


def prepare(folder: Path, sources: dict[str, str | None], documents: int) -> None:
    """Write the tokens of the documents that are looked at, and the lexical expert's out-of-fold logits [n, L].

    The expert's link is the default one.
    """
    (folder / "fast").mkdir(parents=True, exist_ok=True)
    for name, path in sources.items():
        base = read_base(folder / f"{name}.npz")
        rows = np.sort(np.random.default_rng(0).permutation(len(base.tokens))[:documents])
        labels = base.labels[rows]
        write_base(folder / "fast" / f"{name}_tokens.npz", Base(rows_of(base.tokens, rows), labels), max(LENGTHS))
        texts, _ = joined(load(name, path))
        fold, logits = folds_of(labels, name), np.empty(labels.shape, np.float16)
        for number in range(FOLDS[name]):
            seen, unseen = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
            expert = LexicalModel().fit([texts[row] for row in rows[seen]], labels[seen])
            logits[unseen] = expert.scores([texts[row] for row in rows[unseen]])
        _write(folder / "fast" / f"{name}_words.npz", {"lexical": logits})


@torch.inference_mode()
def pooled(
    encoder: TextEncoder, feed: TokenFeed, device: torch.device, *, bf16: bool = False
) -> dict[tuple[int, str], Tensor]:
    """Return the token states of the last layers, pooled in three ways, [n, h] each, float32."""
    shape = len(feed), encoder.hidden_size
    found = {part: torch.empty(shape, device=device) for part in product(range(LAYERS), POOLINGS)}
    budget = 4096 if device.type == "cpu" else 65_536
    for rows in token_budget_batches(feed.lengths, budget):
        batch = feed.packed(rows).to(device)
        mask = batch.mask.unsqueeze(2)  # [B, T, 1]
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            states = encoder.model(
                input_ids=batch.pad(batch.tokens), attention_mask=batch.mask.long(), output_hidden_states=True
            ).hidden_states
        places = torch.from_numpy(rows).to(device)
        for layer in range(LAYERS):
            tokens = states[-1 - layer].float()  # [B, T, h]
            found[layer, "mean"][places] = (tokens * mask).sum(1) / mask.sum(1)
            found[layer, "max"][places] = tokens.masked_fill(~mask, -torch.inf).amax(1)
            found[layer, "cls"][places] = tokens[:, 0]
    return found


def features(reading: str, parts: dict[tuple[int, str], Tensor]) -> Tensor:
    """Return what a probe is given, [n, d]."""
    chosen = [parts[part] for part in READINGS[reading]]
    if reading == AS_IT_IS:
        return chosen[0]
    if reading == SUMMED:
        chosen = [chosen[0] + chosen[1]]
    return torch.cat([normalize(each, dim=1) for each in chosen], dim=1)


def read(folder: Path, encoder: str, lengths: Sequence[int]) -> None:
    """Write the out-of-fold logits of probes and neighbours for every reading, one file a corpus and kind."""
    started = time.monotonic()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, _ = load_encoder(encoder, "mean", 0.0)
    model = model.to(device).eval()
    if device.type == "cuda":
        model = model.half()
    for name in FOLDS:
        base = read_base(folder / "fast" / f"{name}_tokens.npz")
        fold = folds_of(base.labels, name)
        probes: dict[str, np.ndarray] = {}
        votes: dict[str, np.ndarray] = {}
        for length in lengths:
            feed = TokenFeed(base.tokens, base.labels, length)
            parts = pooled(model, feed, device, bf16=device.type == "cpu" and cpu_has_bf16())
            for reading in READINGS if length in EVERY_READING else ("mean",):
                began = time.monotonic()
                logits, setting = probe_logits(features(reading, parts), base.labels, fold, device)
                probes[f"{reading} @ {length}"] = logits
                print(
                    f"{time.monotonic() - started:6.0f} s  {name}, {length} tokens, {reading}: "
                    f"setting {setting}, {time.monotonic() - began:.1f} s",
                    flush=True,
                )
            votes[f"{length}"] = vote_logits(parts[0, "mean"], base.labels, fold, device)
        _write(folder / "fast" / f"{name}_probes.npz", probes)
        _write(folder / "fast" / f"{name}_{NEIGHBOURS}.npz", votes)
    print(f"{time.monotonic() - started:6.0f} s in all", flush=True)


def probe_logits(inputs: Tensor, labels: csr_array, fold: np.ndarray, device: torch.device) -> tuple[np.ndarray, int]:
    """Return out-of-fold logits [n, L] of cross-fitted probes on inputs [n, d], and their setting."""
    probe = CrossFitProbe(device=device)
    heldout = np.empty((len(probe.settings), *labels.shape), np.float16)
    for number in range(fold.max() + 1):
        seen, unseen = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        heldout[:, unseen] = probe.heldout_logits(
            inputs[torch.from_numpy(seen)], labels[seen], inputs[torch.from_numpy(unseen)]
        )
    chosen = choose_setting(heldout, labels)
    return heldout[chosen], chosen


def vote_logits(inputs: Tensor, labels: csr_array, fold: np.ndarray, device: torch.device) -> np.ndarray:
    """Return out-of-fold logits [n, L] of neighbours among inputs [n, d]."""
    logits = np.empty(labels.shape, np.float16)
    for number in range(fold.max() + 1):
        seen, unseen = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        neighbours = NearestNeighbours(device=str(device)).fit(inputs[torch.from_numpy(seen)], labels[seen])
        logits[unseen] = neighbours.logits(inputs[torch.from_numpy(unseen)])
    return logits


def _write(path: Path, logits: dict[str, np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rounded: dict[str, Any] = {
        key: (np.round(each.astype(np.float32) * STEP) / STEP).astype(np.float16) for key, each in logits.items()
    }
    with written_whole(path) as stream:
        np.savez_compressed(stream, **rounded)


Case = tuple[dict[str, Any], np.ndarray, dict[str, np.ndarray], csr_array]


def cases(folder: Path) -> Iterator[Case]:
    """Yield what is scored: a description, logits [n, L], experts and labels [n, L]."""
    for name in FOLDS:
        truth = read_base(folder / "fast" / f"{name}_tokens.npz").labels
        lexical = np.load(folder / "fast" / f"{name}_words.npz")["lexical"].astype(np.float32)
        yield {"corpus": name, "reading": "tf-idf + SVM", "experts": []}, lexical, {}, truth
        votes = np.load(folder / "fast" / f"{name}_{NEIGHBOURS}.npz")
        probes = np.load(folder / "fast" / f"{name}_probes.npz")
        for reading in probes.files:
            said = probes[reading].astype(np.float32)
            kind, length = reading.split(" @ ")
            experts = {"lexical": lexical, NEIGHBOURS: votes[length].astype(np.float32)}
            with_neighbours = [("lexical", NEIGHBOURS)] if kind == "mean" else []
            for used in [(), ("lexical",), *with_neighbours]:
                about = {"corpus": name, "reading": reading, "experts": list(used)}
                yield about, said, {each: experts[each] for each in used}, truth


def score_one(
    about: dict[str, Any], logits: np.ndarray, experts: dict[str, np.ndarray], truth: csr_array
) -> dict[str, Any]:
    """Return the description with its scores in percent."""
    return about | crosswise(logits, experts, truth, np.asarray(truth.sum(axis=0)).ravel())


def table(records: list[dict[str, Any]]) -> str:
    """Lay out micro-F1, macro-F1 and the rarest third: a line per reading and experts, a column per corpus."""
    lines = [f"| reading | experts | {' | '.join(FOLDS)} |", "|---|---|" + "--:|" * len(FOLDS)]
    for reading, experts in dict.fromkeys((each["reading"], tuple(each["experts"])) for each in records):
        cells = []
        for name in FOLDS:
            found = [r for r in records if (r["corpus"], r["reading"], tuple(r["experts"])) == (name, reading, experts)]
            cells.append(" / ".join(f"{found[0].get(metric, np.nan):.1f}" for metric in METRICS) if found else "–")
        lines.append(f"| {reading} | {' + '.join(experts) or '–'} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def arguments() -> Namespace:
    """Return what was asked for."""
    parser = ArgumentParser("python -m benchmarks.recipe.fast", description=__doc__)
    parser.add_argument("step", choices=("prepare", "read", "score"))
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--reuters", help="the archive of Reuters-21578")
    parser.add_argument("--arxiv54", help="the folder of arxiv54")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="of each corpus")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--jobs", type=int, default=1, help="processes that score")
    return parser.parse_args()


def main() -> None:
    """Run one of the three steps."""
    asked = arguments()
    if asked.step == "prepare":
        prepare(asked.output, {"reuters": asked.reuters, "arxiv54": asked.arxiv54}, asked.documents)
    elif asked.step == "read":
        read(asked.output, asked.encoder, asked.lengths)
    else:
        scored = cases(asked.output)
        records = (
            list(starmap(score_one, scored))
            if asked.jobs == 1
            else Parallel(asked.jobs)(delayed(score_one)(*case) for case in scored)
        )
        lines = ",\n".join(json.dumps(record) for record in records)
        (asked.output / "fast.json").write_text(f"[\n{lines}\n]\n")
        (asked.output / "fast.md").write_text(table(records))
        print(table(records))


if __name__ == "__main__":
    main()
