"""Prediction on a CPU, against the text-classification pipeline of `transformers` on the same model folder."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import pipeline

from abalone import AbaloneClassifier, load_corpus
from abalone.data.corpus import Corpus, Split
from abalone.device import cpu_is_faster_in_bf16
from benchmarks.measure import Line, best_seconds, show

DOCUMENTS, MAX_LENGTH = 256, 300


def texts_of_mixed_length(split: Split) -> list[str]:
    """Return abstracts cut to lengths between a title and the whole."""
    random = np.random.default_rng(0)
    return [" ".join(text.split()[: random.integers(5, 200)]) for text in split.texts[:DOCUMENTS]]


def small(split: Split, documents: int) -> Split:
    return Split(list(split.texts[:documents]), split.labels[:documents])


def main() -> None:
    corpus = load_corpus("arxiv-sample")
    few = Corpus(small(corpus.train, 1000), small(corpus.validation, 300), small(corpus.test, 1), corpus.label_names)
    texts = texts_of_mixed_length(corpus.test)
    # Fine-tuned, as models are that people serve; two of six layers, which takes some minutes.
    model = AbaloneClassifier(
        "paper",
        objective="bce",
        freeze_layers=4,
        epochs=3,
        head_learning_rate=5e-3,
        max_length=MAX_LENGTH,
        device="cpu",
    )
    with tempfile.TemporaryDirectory() as folder:
        model.fit_corpus(few, run_folder=Path(folder) / "run").save_pretrained(Path(folder) / "model")
        theirs: Any = pipeline("text-classification", str(Path(folder) / "model"), top_k=None, device="cpu")
        ours = {
            precision: AbaloneClassifier.from_pretrained(Path(folder) / "model", precision=precision, device="cpu")
            for precision in ("fp32", "bf16")
        }
        ways: list[Callable[[], object]] = [
            partial(theirs, texts, batch_size=size, truncation=True, max_length=MAX_LENGTH) for size in (1, 32)
        ]
        ways += [partial(one.predict_proba, texts) for one in ours.values()]
        seconds = best_seconds(*ways, repeat=2)
        answers = theirs(texts, batch_size=1, truncation=True, max_length=MAX_LENGTH)
    expected = np.array(
        [[{a["label"]: a["score"] for a in row}[name] for name in model.label_names] for row in answers]
    )
    plain = min(seconds[:2])
    lines = []
    for (precision, one), taken, allowed in zip(ours.items(), seconds[2:], ("1e-3", "1e-2"), strict=True):
        error = np.abs(one.predict_proba(texts) - expected).max()
        what = f"{precision}: documents a second"
        speeds = f"{DOCUMENTS / plain:.0f}", f"{DOCUMENTS / taken:.0f}", f"{plain / taken:.1f}×"
        lines.append(Line(what, *speeds, "≥ 2×" if precision == "bf16" and cpu_is_faster_in_bf16() else ""))
        lines.append(Line("  largest difference of a probability", "", f"{error:.1e}", "", f"≤ {allowed}"))
    show(
        f"Prediction of {DOCUMENTS} texts of mixed length, MiniLM-L6, on {torch.get_num_threads()} threads of the CPU\n"
        "plain: the pipeline of transformers, the faster of batch sizes 1 and 32",
        lines,
    )


if __name__ == "__main__":
    main()
