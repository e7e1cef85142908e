"""One run of a table: training, scores at every threshold, and the record that is stored."""

import gc
import os
import platform
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from abalone import __version__
from abalone.config import Config
from abalone.data.corpus import Corpus
from abalone.device import choose_device
from abalone.evaluation.clustering import cluster_by_combination
from abalone.evaluation.diagnostics import forces
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.metrics import evaluate
from abalone.evaluation.mixing import fit_decision
from abalone.files.atomic import build_once
from abalone.files.cache import cache_entry
from abalone.reproduce.fingerprints import portable, short_hash
from abalone.reproduce.grid import LEXICAL, Run
from abalone.reproduce.results import Record, rounded

FORCES_OF = 100_000  # test documents; of more, these many are drawn: every label of each has its vector in memory
CUTS = ("half", "macro", "micro")  # at 0.5, and tuned on validation for macro- and for micro-F1
PACKAGES = ("torch", "transformers", "scikit-learn", "numpy")  # their versions are recorded


@dataclass(frozen=True)
class Task:
    """A run with its folders, as it is given to a worker.

    Args:
        run: the settings to train with.
        key: of the run among the results.
        output: the folder of the results.
        encoder: the fingerprint of the encoder that it begins with, or that its pre-training began with.
        starts_from: the folder of the pre-trained encoder that it continues with.
        again: it is recorded already, and only its encoder is missing.
    """

    run: Run
    key: str
    output: Path
    encoder: str | None = None
    starts_from: Path | None = None
    again: bool = False

    @property
    def folder(self) -> Path:
        """The folder of its checkpoints: one per output, as commands with other outputs may be at the same run."""
        return cache_entry("experiments/runs", short_hash([self.key, self.encoder, str(self.output)]))

    @property
    def encoder_folder(self) -> Path:
        """The folder of its finished encoder, for fine-tuning to start from; all outputs share it."""
        return cache_entry("experiments/encoders", short_hash([self.key, self.encoder]))


def carry_out(task: Task, corpus: Corpus, corpus_key: str, jobs: int) -> Record:
    """Do a run, or resume it from its checkpoints, and return its record.

    Args:
        task: the run.
        corpus: all three splits are used: test for scores alone.
        corpus_key: its fingerprint.
        jobs: how many runs share the machine.
    """
    started = time.monotonic()
    config = task.run.config
    frequencies = np.array(corpus.stats().frequencies)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if config.objective == LEXICAL:
            measured = _lexical(corpus, config, frequencies)
        else:
            measured = _neural(task, corpus, frequencies)
    earlier = measured.pop("earlier")  # seconds of training before an interruption
    record: Record = {
        "row": task.run.row,
        "seed": config.seed,
        "config": portable(config),
        "starts_from": None if task.run.starts_from is None else portable(task.run.starts_from),
        **({} if task.encoder is None or config.objective == LEXICAL else {"encoder_fingerprint": task.encoder}),
        "corpus": {"name": corpus.name, "fingerprint": corpus_key},
        **measured,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(earlier + time.monotonic() - started, 1),
        "jobs": jobs,
        "machine": machine(config.device),
        "versions": versions(),
        "warnings": list(dict.fromkeys(" ".join(str(warning.message).split()) for warning in told)),
    }
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # several processes share the memory
    return record


def _lexical(corpus: Corpus, config: Config, frequencies: np.ndarray) -> dict[str, Any]:
    model = LexicalModel(seed=config.seed).fit(corpus.train.texts, corpus.train.labels)
    model.calibrate(corpus.validation.texts, corpus.validation.labels)
    logits = {name: model.scores(split.texts) for name, split in corpus.splits() if name != "train"}
    return {"scores": scores_at_cuts(logits, corpus, frequencies, config), "resumed": False, "earlier": 0.0}


def _neural(task: Task, corpus: Corpus, frequencies: np.ndarray) -> dict[str, Any]:
    from abalone.encoder.load import quiet_transformers
    from abalone.training.pipeline import fit
    from abalone.training.run import holds_run, seconds_trained

    config = task.run.config
    if task.starts_from is not None:
        config = config.replace(encoder=str(task.starts_from))
    resume = holds_run(task.folder, config, corpus)
    earlier = seconds_trained(task.folder) if resume else 0.0
    predictor = fit(config, corpus, task.folder, resume=resume)
    network = predictor.network
    if task.run.keep_encoder:

        def save(place: Path) -> None:
            with quiet_transformers():
                network.encoder.model.save_pretrained(place)
                network.tokenizer.save_pretrained(place)

        build_once(task.encoder_folder, save)
    embeddings = {name: predictor.embed(split.texts) for name, split in corpus.splits() if name != "train"}
    logits = {name: network.head.logits(matrix) for name, matrix in embeddings.items()}
    epochs = [epoch for stage in predictor.story["history"].values() for epoch in stage]
    return {
        "scores": scores_at_cuts(logits, corpus, frequencies, config),
        "clustering": _clustering(embeddings["test"], corpus, config),
        "forces": _forces(embeddings["test"], corpus),
        "epochs_run": len(epochs),
        "training_seconds": round(sum(epoch.get("seconds", 0.0) for epoch in epochs), 1),
        "resumed": resume,
        "earlier": earlier,
    }


def scores_at_cuts(
    logits: Mapping[str, np.ndarray], corpus: Corpus, frequencies: np.ndarray, config: Config
) -> dict[str, dict[str, dict[str, float]]]:
    """Score the same model at 0.5 and with thresholds tuned on validation: by split, cut and metric.

    Args:
        logits: of validation and test, [n, L] each.
        corpus: the truth.
        frequencies: [L], training documents of each label.
        config: how the tuned cuts are fitted.
    """
    splits = dict(corpus.splits())
    scores: dict[str, dict[str, dict[str, float]]] = {name: {} for name in logits}
    for cut in CUTS:
        settings = config.replace(thresholds=cut, calibrate=config.calibrate and cut != "half")
        decision = fit_decision(logits["validation"], {}, splits["validation"].labels, frequencies, settings)
        for name, values in logits.items():
            probabilities = decision.probabilities(values, {})
            given, truth = decision.labels(probabilities), splits[name].labels
            scored = evaluate(truth, given, probabilities=probabilities, frequencies=frequencies)
            scores[name][cut] = {metric: round(value, 6) for metric, value in scored.items()}
    return scores


def _clustering(embeddings: np.ndarray, corpus: Corpus, config: Config) -> dict[str, Any] | None:
    try:
        return cluster_by_combination(embeddings, corpus.test.labels, device=config.device).to_dict()
    except ValueError as error:
        warnings.warn(f"no clustering scores: {error}", stacklevel=2)
        return None


def _forces(embeddings: np.ndarray, corpus: Corpus) -> dict[str, list[float | None]]:
    rows = np.arange(len(embeddings))
    if len(rows) > FORCES_OF:
        rows = np.sort(np.random.default_rng(0).choice(rows, FORCES_OF, replace=False))
    labels = torch.from_numpy(corpus.test.labels[rows].toarray())
    found = forces(torch.from_numpy(embeddings[rows]), labels)
    return {
        "attraction": rounded(found.attraction_by_label().numpy()),
        "repulsion": rounded(found.repulsion_by_label().numpy()),
    }


def machine(device: str) -> dict[str, object]:
    """Return the processor, its cores, and the GPU if `device` is one."""
    chosen = choose_device(device)
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else None,
        "device": str(chosen),
    }


def versions() -> dict[str, str]:
    """Return the versions of this library, Python, and what the figures depend on."""
    found = {"abalone": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
