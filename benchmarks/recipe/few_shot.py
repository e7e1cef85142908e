"""Few labelled documents: the default beside SetFit, trained on the same ones, scored on the whole test split.

    python -m benchmarks.recipe.few_shot prepare --output FOLDER --reuters reuters21578.tar.xz --arxiv54 arxiv54
    python -m benchmarks.recipe.few_shot default --output FOLDER
    python -m benchmarks.recipe.few_shot unnamed --output FOLDER
    python -m benchmarks.recipe.few_shot words --output FOLDER
    python -m benchmarks.recipe.few_shot setfit --output FOLDER
    python -m benchmarks.recipe.few_shot table --output FOLDER

`prepare` draws 8 and 16 documents a label from training and validation (`few_shots`, the rarest label first, all that
it has where it has fewer) and writes one file a corpus, with whole texts: 4 MB for both. The other machine needs these
files and no corpus. `default`, `unnamed`, `words` and `setfit` train what FOLDER has no result of, each in a process of
its own, one after the other so that the times can be compared. `table` writes `few_shot.md` and `summary.json`.

The default is `AbaloneClassifier()`, which trains on all documents of a pool and on the label names; `unnamed` is the
same without the names, of which SetFit has no use, and `words` is tf-idf + SVM, which needs no GPU. SetFit trains on
four fifths of the documents as its documentation shows for several labels: `multi_target_strategy="one-vs-rest"`, 20
iterations, and its own defaults (batches of 16 pairs, one epoch, learning rate 2e-5, logistic regression). It is scored
three times: by `predict()` (more probable than not), by thresholds that `fit_thresholds` tunes for macro-F1 on the
fifth which it has not seen, and by the default's whole decision (temperatures, then thresholds) on the same fifth. Time
is from texts in memory to a model that decides, with the encoder's loading and without imports. `macro_f1_tail` is over
the rarest third of the labels in the corpus, not in the pool, where all labels are about equally frequent.
"""

import json
import lzma
import os
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.special import logit

from abalone.classifier import AbaloneClassifier
from abalone.data.benchmarks import exact_split
from abalone.encoder.load import load_encoder, packaged_encoder
from abalone.evaluation.decision import NEVER, Thresholds
from abalone.evaluation.metrics import evaluate
from abalone.evaluation.mixing import fit_decision
from abalone.evaluation.thresholds import fit_thresholds
from abalone.files.atomic import written_whole
from abalone.recipes import recipe
from abalone.reproduce.task import machine, versions
from benchmarks.recipe.pools import SHOTS, few_shots, joined

BASES = ("reuters", "arxiv54")
POOLS = tuple(f"{base}-{shots}shot" for base in BASES for shots in SHOTS)
METRICS = {"micro_f1": "micro-F1", "macro_f1": "macro-F1", "macro_f1_tail": "rarest third"}
SECONDS = {"training_seconds": "training, s", "prediction_seconds": "prediction, s"}
OURS: dict[str, dict[str, Any]] = {"default": {}, "unnamed": {"learn_names": False}, "words": {"recipe": "words"}}
ROWS = {  # of each method
    "default": ("default",),
    "unnamed": ("unnamed",),
    "words": ("words",),
    "setfit": ("setfit", "setfit, our decision", "setfit, predict()"),
}
ITERATIONS = 20  # SetFit's: pairs are 2 × iterations × documents
MOST_TOKENS = 256  # of a document that SetFit reads: `max_seq_length` of all-MiniLM-L6-v2 as published
CERTAIN = 1e-6  # probabilities are kept this far from 0 and 1, so that they have logits


@dataclass(frozen=True)
class Documents:
    """Texts and their labels [n, L]."""

    texts: list[str]
    labels: csr_array

    @classmethod
    def of_lists(cls, texts: Sequence[str], carried: Sequence[Sequence[int]], columns: int) -> "Documents":
        """Make the matrix of lists of label numbers."""
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in carried])])
        indices = np.array([label for row in carried for label in row], dtype=np.int32)
        ones = np.ones(len(indices), dtype=np.int32)
        return cls(list(texts), csr_array((ones, indices, indptr), shape=(len(carried), columns)))

    def to_dict(self) -> dict[str, Any]:
        """Return texts and lists of label numbers, for JSON."""
        carried = np.split(self.labels.indices, self.labels.indptr[1:-1])
        return {"texts": self.texts, "labels": [np.sort(row).tolist() for row in carried]}

    def take(self, rows: np.ndarray) -> "Documents":
        """Return some of them, in this order."""
        return Documents([self.texts[row] for row in rows], self.labels[rows])


@dataclass(frozen=True)
class Task:
    """What both are given, and what they are scored on.

    Args:
        frequencies: [L], training documents of each label in the whole corpus.
        label_names: [L].
    """

    labelled: Documents
    test: Documents
    frequencies: np.ndarray
    label_names: list[str]

    def scores(self, given: np.ndarray) -> dict[str, float]:
        """Return the metrics of the labels [n, L] that the test documents were given, in percent."""
        found = evaluate(self.test.labels, given, frequencies=self.frequencies)
        return {metric: round(100 * found[metric], 2) for metric in METRICS}


@dataclass(frozen=True)
class Result:
    """What a method came to: the scores of each of its rows, and its seconds."""

    scores: dict[str, dict[str, float]]
    training_seconds: float
    prediction_seconds: float


def drawn_pools(base: str, labels: csr_array, seed: int = 0) -> dict[str, np.ndarray]:
    """Return the rows of each few-shot pool of a corpus by name."""
    return {f"{base}-{shots}shot": few_shots(labels, shots, np.random.default_rng(seed)) for shots in SHOTS}


def prepare(folder: Path, sources: Mapping[str, str | None]) -> None:
    """Write the pools and the test split of each corpus."""
    from benchmarks.recipe.screen import load

    folder.mkdir(parents=True, exist_ok=True)
    for base, path in sources.items():
        corpus = load(base, path)
        texts, labels = joined(corpus)
        every = Documents(texts, labels)
        parts = {name: every.take(rows) for name, rows in drawn_pools(base, labels).items()}
        parts["test"] = Documents(list(corpus.test.texts), csr_array(corpus.test.labels))
        frequencies = dict(zip(corpus.label_names, corpus.stats().frequencies, strict=True))
        write_documents(folder / f"{base}.json.xz", parts, frequencies)


def write_documents(file: Path, parts: Mapping[str, Documents], frequencies: Mapping[str, int]) -> None:
    """Write documents by the name of their part, and the training frequencies of their labels by name."""
    stored = {"frequencies": frequencies, "parts": {name: part.to_dict() for name, part in parts.items()}}
    with written_whole(file) as stream:
        stream.write(lzma.compress(json.dumps(stored, ensure_ascii=False).encode(), preset=9))


def read_task(folder: Path, pool: str) -> Task:
    """Read a pool and the test documents of its corpus."""
    stored = json.loads(lzma.decompress((folder / f"{pool.rpartition('-')[0]}.json.xz").read_bytes()))
    frequencies = np.array(list(stored["frequencies"].values()))
    labelled, test = (
        Documents.of_lists(part["texts"], part["labels"], len(frequencies))
        for part in (stored["parts"][pool], stored["parts"]["test"])
    )
    return Task(labelled, test, frequencies, list(stored["frequencies"]))


def run_ours(task: Task, encoder: str, seed: int, row: str) -> Result:
    """Train one of our rows on all labelled documents."""
    import abalone.training.pipeline  # noqa: F401  # `fit` imports it, and imports are not timed

    if row != "words":
        load_encoder(encoder)  # which imports its classes, as `import setfit` does

    with TemporaryDirectory() as cache:
        os.environ["ABALONE_CACHE"] = cache  # whoever was timed before has left nothing to be read here
        start = time.perf_counter()
        settings = OURS[row] if row == "words" else {**OURS[row], "encoder": encoder}
        model = AbaloneClassifier(seed=seed, **settings)
        model.fit(task.labelled.texts, task.labelled.labels, label_names=task.label_names)
        trained = time.perf_counter()
        answers = model.predict(task.test.texts)
        predicted = time.perf_counter()
        places = {name: place for place, name in enumerate(task.label_names)}
        given = Documents.of_lists([], [[places[name] for name in names] for names in answers], len(places))
        return Result({row: task.scores(given.labels.toarray() == 1)}, trained - start, predicted - trained)


def run_setfit(task: Task, encoder: str, seed: int, iterations: int = ITERATIONS) -> Result:
    """Train SetFit on four fifths of the labelled documents, and its thresholds on the others.

    A label that none of the four fifths carries is left out of training, for SetFit learns the labels of its training
    documents, and is never given. (Every label of the four pools has one: `exact_split` sees to it.)
    """
    import setfit  # noqa: F401  # imports are not timed

    kept, held_out = (task.labelled.take(rows) for rows in exact_split(task.labelled.labels, (4, 1), seed))
    known = np.asarray(kept.labels.sum(axis=0)).ravel() > 0
    start = time.perf_counter()
    model = fit_setfit(kept.texts, kept.labels[:, known].toarray(), encoder, seed, iterations)

    def probabilities(texts: list[str]) -> np.ndarray:
        """[n, L], 0 for labels that it does not know."""
        found = np.zeros((len(texts), len(known)))
        found[:, known] = model.predict_proba(texts, as_numpy=True)
        return found

    heard = probabilities(held_out.texts)
    thresholds = tuned_thresholds(heard, held_out.labels, known)
    trained = time.perf_counter()
    said = probabilities(task.test.texts)
    given = thresholds.apply(said)
    predicted = time.perf_counter()
    decided = our_decision(heard, held_out.labels, np.asarray(kept.labels.sum(axis=0)).ravel(), said)
    own = np.zeros(said.shape, dtype=bool)
    own[:, known] = model.predict(task.test.texts, as_numpy=True).astype(bool)
    scores = {"setfit": task.scores(given), "setfit, our decision": task.scores(decided & known)}
    scores["setfit, predict()"] = task.scores(own)
    return Result(scores, trained - start, predicted - trained)


def fit_setfit(texts: list[str], labels: np.ndarray, encoder: str, seed: int, iterations: int) -> Any:
    """Train a `SetFitModel` on texts and their labels [n, L] of 0 and 1; what is not named here is SetFit's default."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    # These are the parts that `SetFitModel.from_pretrained(…, multi_target_strategy="one-vs-rest")` puts together.
    head = OneVsRestClassifier(LogisticRegression())
    model = SetFitModel(sentence_encoder(encoder), head, multi_target_strategy="one-vs-rest")
    documents = Dataset.from_dict({"text": texts, "label": labels.tolist()})
    with TemporaryDirectory() as scratch:
        settings = TrainingArguments(
            num_iterations=iterations,
            seed=seed,
            output_dir=scratch,
            report_to="none",
            save_strategy="no",  # its default writes a checkpoint every 500 steps, which would count as training
        )
        Trainer(model=model, args=settings, train_dataset=documents).train()
    return model


def sentence_encoder(name: str) -> Any:
    """Return the `SentenceTransformer` that all-MiniLM-L6-v2 is published as: mean of the tokens, of length 1.

    Its parts are named here, for a folder of nothing but weights and tokenizer would become one without the last part,
    which reads 512 tokens; and weights that are stored in half precision would be trained in it.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    place = str(packaged_encoder(name) or name)
    body = Transformer(place, max_seq_length=MOST_TOKENS, model_kwargs={"dtype": torch.float32})
    return SentenceTransformer(modules=[body, Pooling(body.get_embedding_dimension(), "mean"), Normalize()])


def tuned_thresholds(probabilities: np.ndarray, labels: csr_array, known: np.ndarray) -> Thresholds:
    """Tune thresholds for macro-F1; a label that was not trained on is never given.

    Args:
        probabilities: [n, L], of documents that were not trained on.
        labels: [n, L].
        known: [L] of bool, whether a label was trained on.
    """
    tuned = fit_thresholds(probabilities, labels, objective="macro")
    return Thresholds(np.where(known, tuned.values, NEVER))


def our_decision(heard: np.ndarray, labels: csr_array, frequencies: np.ndarray, said: np.ndarray) -> np.ndarray:
    """Return the labels, bool [m, L], by the decision that our models make.

    Args:
        heard: [n, L], probabilities of the documents that it is fitted on.
        labels: [n, L], theirs.
        frequencies: [L], training documents of each label.
        said: [m, L], probabilities of the documents to be decided.
    """
    fitted, asked = (logit(np.clip(each, CERTAIN, 1 - CERTAIN)) for each in (heard, said))
    decision = fit_decision(fitted, {}, labels, frequencies, recipe())
    return decision.labels(decision.probabilities(asked, {}))


def result_file(folder: Path, pool: str, method: str, seed: int) -> Path:
    """Return where a result is kept."""
    return folder / "results" / f"{pool}_{method}_{seed}.json"


def run_one(asked: Namespace, pool: str, seed: int) -> None:
    """Train and score one method on one pool, and keep the result."""
    task = read_task(asked.output, pool)
    if torch.cuda.is_available():
        torch.zeros(1, device="cuda").sum().item()  # the start of the driver is nobody's training time
    if asked.step in OURS:
        result = run_ours(task, asked.encoder, seed, asked.step)
    else:
        result = run_setfit(task, asked.encoder, seed, asked.iterations)
    other = {"setfit": version("setfit")} if asked.step == "setfit" else {}
    about = {
        "pool": pool,
        "method": asked.step,
        "seed": seed,
        "documents": len(task.labelled.texts),
        "labels": len(task.frequencies),
        "test_documents": len(task.test.texts),
        "command": f"python -m benchmarks.recipe.few_shot {asked.step} --output FOLDER --pool {pool} --seeds {seed}",
    }
    if asked.step == "setfit" and asked.iterations != ITERATIONS:
        about["command"] += f" --iterations {asked.iterations}"
    record = about | asdict(result) | {"machine": machine("auto"), "versions": versions() | other}
    file = result_file(asked.output, pool, asked.step, seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(file) as stream:
        stream.write((json.dumps(record, indent=1) + "\n").encode())
    print(f"{pool}, seed {seed}: {json.dumps(asdict(result))}", flush=True)


def summary(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return, by pool and row, the means over seeds: scores in percent, seconds, and how they were made."""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for pool in POOLS:
        for method, names in ROWS.items():
            runs = sorted((r for r in records if (r["pool"], r["method"]) == (pool, method)), key=lambda r: r["seed"])
            for name in names if runs else ():
                row: dict[str, Any] = {key: _mean([run["scores"][name][key] for run in runs]) for key in METRICS}
                row |= {key: _mean([run[key] for run in runs]) for key in SECONDS}
                row |= {key: runs[0][key] for key in ("documents", "labels", "test_documents")}
                row["device"] = runs[0]["machine"]["gpu"] or runs[0]["machine"]["cpu"]
                row |= {"seeds": [run["seed"] for run in runs], "command": runs[0]["command"]}
                rows.setdefault(pool, {})[name] = row
    return rows


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 2)


def table(rows: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Lay out a summary: a line for each pool and row."""
    heads = [*METRICS.values(), *SECONDS.values(), "seeds"]
    lines = ["| pool | documents | | " + " | ".join(heads) + " |", "|---|--:|---|" + "--:|" * len(heads)]
    for pool, of_pool in rows.items():
        for name, row in of_pool.items():
            cells = " | ".join(f"{row[key]:.1f}" for key in (*METRICS, *SECONDS))
            lines.append(f"| {pool} | {row['documents']} | {name} | {cells} | {len(row['seeds'])} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the steps."""
    parser = ArgumentParser("python -m benchmarks.recipe.few_shot", description="The default beside SetFit.")
    parser.add_argument("step", choices=("prepare", *ROWS, "table"))
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--reuters", help="the archive of Reuters-21578")
    parser.add_argument("--arxiv54", help="the folder of arxiv54")
    parser.add_argument("--pool", choices=POOLS, help="this one alone")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2", help="a name or a folder")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="SetFit's")
    parser.add_argument("--libraries", type=Path, help="a folder of packages that are not installed: setfit, datasets")
    asked = parser.parse_args(arguments)
    if asked.step == "prepare":
        prepare(asked.output, {"reuters": asked.reuters, "arxiv54": asked.arxiv54})
    elif asked.step == "table":
        files = sorted((asked.output / "results").glob("*.json"))
        rows = summary([json.loads(file.read_text()) for file in files])
        (asked.output / "summary.json").write_text(json.dumps(rows, indent=1) + "\n")
        (asked.output / "few_shot.md").write_text(table(rows))
        print(table(rows), end="")
    else:
        _run_missing(asked, sys.argv[1:] if arguments is None else list(arguments))


def _run_missing(asked: Namespace, arguments: list[str]) -> None:
    wanted = [(pool, seed) for pool in ((asked.pool,) if asked.pool else POOLS) for seed in asked.seeds]
    missing = [each for each in wanted if not result_file(asked.output, each[0], asked.step, each[1]).exists()]
    if asked.pool is None or len(asked.seeds) > 1:
        for pool, seed in missing:
            command = [sys.executable, "-m", "benchmarks.recipe.few_shot", *arguments]
            subprocess.run([*command, "--pool", pool, "--seeds", str(seed)], check=True)
    elif missing:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # SetFit's model card would ask the hub for its data set
        if asked.libraries is not None:
            sys.path.append(str(asked.libraries.resolve()))  # at the end: what is installed comes first
        run_one(asked, *missing[0])


if __name__ == "__main__":
    main()
