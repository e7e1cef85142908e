"""The main job on a small real corpus, in minutes on two cores: what `abalone demo` shows."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from abalone.classifier import AbaloneClassifier
from abalone.cli.tables import scores_table
from abalone.config import Config
from abalone.data.corpus import Corpus, Split
from abalone.data.load import load_corpus
from abalone.data.memory import label_lists
from abalone.data.split import iterative_split
from abalone.evaluation.decision import fit_decision
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.metrics import evaluate
from abalone.recipes import recipe

SHARES = {"train": 0.4, "validation": 0.5, "test": 0.4}  # of the bundled sample: what two cores do in minutes
# The default recipe in small: two of six layers are trained over the cached output of the others. Few steps want a high
# rate for the head.
SETTINGS = recipe(max_length=96, freeze_layers=4, epochs=3, head_learning_rate=5e-3)
READ = 3  # predictions to show


def run_demo(folder: Path | None = None) -> dict[str, dict[str, float]]:
    """Train tf-idf, BCE and ABALONE on the same documents, and print how they do on the same test documents.

    Args:
        folder: where to leave the model folder; it is not written where left out.

    Returns:
        The scores of each, as printed.
    """
    console = Console(highlight=False)
    corpus = demo_corpus()
    stats = corpus.stats()
    console.print(
        f"[bold]arXiv abstracts[/bold]: {stats.train:,} to train on, {stats.validation:,} to tune on, "
        f"{stats.test:,} to test on;\n{stats.labels} labels, {stats.labels_per_document:.1f} a paper, the most "
        f"frequent on {stats.frequency_max:,} papers, the rarest on {stats.frequency_min}.\n"
        "Encoder: all-MiniLM-L6-v2, two of its six layers trained for three epochs.\n\n"
        f"ABALONE here: the default recipe in small, objective {SETTINGS.objective}, with experts mixed in.\n"
    )
    rows: dict[str, dict[str, float]] = {}

    def step(title: str, work: Callable[[], dict[str, float]]) -> None:
        started = time.monotonic()
        rows[title] = work()
        console.print(f"  {title}: done in {time.monotonic() - started:.0f} s")

    models: dict[str, AbaloneClassifier] = {}

    def fit(name: str, config: Config) -> dict[str, float]:
        models[name] = AbaloneClassifier(**config.to_dict()).fit_corpus(corpus)
        return models[name].evaluate_split(corpus.test)[0]

    step("tf-idf + SVM", lambda: _tfidf(corpus))
    step("BCE", lambda: fit("bce", SETTINGS.replace(objective="bce", lexical=False, neighbours=False)))
    step("ABALONE", lambda: fit("abalone", SETTINGS))
    model = models["abalone"]
    losses = [entry["train_loss"] for stage in model.predictor_.story["history"].values() for entry in stage]
    mixture = model.predictor_.decision.mixture.weights or {"lexical": 1.0}  # words alone decide where nothing is mixed
    weights = [f"{name} {weight:.2f}" for name, weight in mixture.items()]
    console.print(f"\nTraining loss by epoch: {', '.join(f'{loss:.3f}' for loss in losses)}")
    console.print(f"Weights of the experts, chosen on validation: {', '.join(weights)}\n")
    scores_table(rows, title="Test, thresholds tuned on validation for each (F1 in %)")
    _read_some(console, model, corpus)
    if folder is not None:
        model.save_pretrained(folder)
        console.print(f"\nmodel folder: {folder}")
    return rows


def demo_corpus() -> Corpus:
    """A stratified part of the bundled sample, always the same."""
    whole = load_corpus("arxiv-sample")
    train, validation, test = (_part(split, SHARES[name]) for name, split in whole.splits())
    return replace(whole, train=train, validation=validation, test=test, name="arxiv-sample, a part")


def _part(split: Split, share: float) -> Split:
    rows, _ = iterative_split(split.labels, [share, 1 - share], seed=0)
    return Split([split.texts[row] for row in rows], split.labels[rows])


def _tfidf(corpus: Corpus) -> dict[str, float]:
    train, validation, test = corpus.train, corpus.validation, corpus.test
    model = LexicalModel().fit(train.texts, train.labels).calibrate(validation.texts, validation.labels)
    frequencies = np.array(corpus.stats().frequencies)
    decision = fit_decision(model.scores(validation.texts), {}, validation.labels, frequencies, SETTINGS)
    probabilities = decision.probabilities(model.scores(test.texts), {})
    return evaluate(test.labels, decision.labels(probabilities), probabilities=probabilities, frequencies=frequencies)


def _read_some(console: Console, model: AbaloneClassifier, corpus: Corpus) -> None:
    """The test documents with the rarest labels, what they carry and what they were given."""
    frequencies = np.array(corpus.stats().frequencies)
    truth = label_lists(corpus.test.labels, corpus.label_names)
    rarity = [
        min((frequencies[j] for j in np.flatnonzero(row)), default=np.inf) for row in corpus.test.labels.toarray()
    ]
    chosen = np.argsort(rarity, kind="stable")[:: max(len(rarity) // 20, 1)][:READ]
    texts = [corpus.test.texts[row] for row in chosen]
    console.print("Some test papers, what they carry and what they were given:")
    for row, text, given in zip(chosen, texts, model.predict(texts), strict=True):
        console.print(f"\n  “{' '.join(text.split())[:150]} …”", markup=False)
        console.print(f"    carries: {', '.join(truth[row])}", markup=False)
        console.print(f"    given:   {', '.join(given) or '(none)'}", markup=False)
