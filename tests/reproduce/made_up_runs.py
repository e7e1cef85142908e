"""Records of runs that were not trained, with scores that a test chooses."""

import numpy as np
from scipy.sparse import csr_array

from abalone.config import Config
from abalone.data.corpus import Corpus, Split
from abalone.evaluation.clustering import PROPORTIONS
from abalone.reproduce.grid import Run
from abalone.reproduce.results import CorpusCard, Record, Results

LABELS = 6


def corpus(documents: int = 40) -> Corpus:
    rng = np.random.default_rng(0)
    splits = []
    for size in (documents, documents // 2, documents // 2):
        labels = csr_array((rng.random((size, LABELS)) < np.linspace(0.7, 0.2, LABELS)).astype(np.int32))
        splits.append(Split([f"document {size} {i}" for i in range(size)], labels))
    return Corpus(*splits, label_names=tuple(f"topic_{i}" for i in range(LABELS)), name="papers")


def card(published: str | None = None) -> CorpusCard:
    return CorpusCard.of(corpus(), Config(batch_size=8, queue_size=16), published)


def record(run: Run, fingerprint: str, micro: float = 0.5, *, test: float | None = None) -> Record:
    """A record whose every score is `micro` on validation, and `test` (or `micro`) on test."""

    def scores(value: float) -> dict[str, dict[str, float]]:
        thirds = (f"macro_f1_{third}" for third in ("head", "medium", "tail"))
        names = ("micro_f1", "macro_f1", *thirds, "mean_average_precision")
        at_half = {**dict.fromkeys(names, value), "hamming_loss": 1 - value}
        tuned = {**dict.fromkeys(names, value + 0.1), "hamming_loss": 0.9 - value}
        return {"half": at_half, "macro": tuned, "micro": tuned}

    value = micro if test is None else test
    return {
        "row": run.row,
        "seed": run.config.seed,
        "config": run.config.to_dict(),
        "starts_from": None if run.starts_from is None else run.starts_from.to_dict(),
        "corpus": {"name": "papers", "fingerprint": fingerprint},
        "scores": {"validation": scores(micro), "test": scores(value)},
        "clustering": {
            "proportions": list(PROPORTIONS),
            "combinations": list(range(1, 11)),
            "documents": list(range(10, 20)),
            "silhouette": [None, *([value] * 9)],
            "davies_bouldin": [None, *([2 - value] * 9)],
        },
        "forces": {"attraction": [-value] * (LABELS - 1) + [None], "repulsion": [value] * LABELS},
        "seconds": 60.0,
        "date": "2026-01-02T03:04:05+00:00",
        "machine": {"cpu": "a processor", "gpu": None},
        "warnings": [],
    }


def finish(results: Results, run: Run, micro: float = 0.5, *, test: float | None = None) -> None:
    results.append(run, record(run, results.corpus, micro, test=test))
