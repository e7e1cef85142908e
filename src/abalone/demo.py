"""The demo: training on a part of a small bundled corpus, as large as this machine manages in four minutes."""

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console

from abalone.classifier import AbaloneClassifier
from abalone.cli.evaluate import scores_table
from abalone.config import Config
from abalone.data.corpus import Corpus, Split
from abalone.data.in_memory import label_lists
from abalone.data.load import load_corpus
from abalone.data.split import iterative_split
from abalone.device import choose_device
from abalone.recipes import DEFAULT, recipe
from abalone.training.estimate import Estimate

# The default recipe in small: two of six layers are trained over the cached output of the others. Few steps want a high
# rate for the head.
SETTINGS = recipe(max_length=96, freeze_layers=4, epochs=3, head_learning_rate=5e-3)


@dataclass(frozen=True)
class Size:
    """Hold how much is trained on, and how. There are few sizes, so that each gives the same scores again.

    Args:
        shares: of the splits of the bundled sample.
        settings: of ABALONE; those of BCE are made of them.
        work: tokens through layers in the whole demo, as a multiple of what `USUAL` needs.
    """

    shares: Mapping[str, float]
    settings: Config
    work: float


USUAL = Size({"train": 0.4, "validation": 0.5, "test": 0.4}, SETTINGS, 1.0)
SIZES = (  # the largest first
    Size({"train": 1.0, "validation": 1.0, "test": 1.0}, recipe(), 25.0),
    USUAL,
    Size({"train": 0.2, "validation": 0.5, "test": 0.4}, SETTINGS.replace(max_length=64, freeze_layers=5), 0.3),
    Size(
        {"train": 0.2, "validation": 0.25, "test": 0.2},
        SETTINGS.replace(max_length=48, freeze_layers=5, epochs=2),
        0.15,
    ),
)
AIM = 5 * 60.0  # seconds, at most, that the chosen size may take by the estimate: four minutes, give or take
BOTH = 2.0  # BCE and ABALONE, times what ABALONE takes
NOISE = 0.01  # of F1: on so few test papers less is chance
READ = 3  # predictions to show


def choose_size(seconds: float) -> Size:
    """Return the largest size that takes at most `AIM`, or the smallest.

    Args:
        seconds: that ABALONE's training takes here at size `USUAL`.
    """
    return next((size for size in SIZES if BOTH * seconds * size.work <= AIM), SIZES[-1])


class _MeasuredError(Exception):
    """Stop a run before its first step, when its time is estimated."""


def measured_seconds() -> float:
    """Estimate the seconds of ABALONE's training at size `USUAL` on this machine, by a few batches; 0 on a GPU."""
    if choose_device().type != "cpu":
        return 0.0
    estimates: list[Estimate] = []

    def stop(estimate: Estimate) -> None:
        estimates.append(estimate)
        raise _MeasuredError

    with tempfile.TemporaryDirectory() as folder, suppress(_MeasuredError):
        AbaloneClassifier(**USUAL.settings.to_dict()).fit_corpus(demo_corpus(), run_folder=folder, on_estimate=stop)
    return sum(estimate.seconds for estimate in estimates)


def run_demo(folder: Path | None = None) -> dict[str, dict[str, float]]:
    """Train tf-idf, BCE and ABALONE on the same documents, and print their scores on the same test documents.

    Args:
        folder: the model folder to write, if any.

    Returns:
        The scores of each, as printed.
    """
    console = Console(highlight=False)
    size = choose_size(measured_seconds())
    settings, corpus = size.settings, demo_corpus(size)
    stats = corpus.stats()
    console.print(
        f"[bold]arXiv abstracts[/bold]: {stats.train + stats.validation:,} to train and tune on, "
        f"{stats.test:,} to test on;\n{stats.labels} labels, {stats.labels_per_document:.1f} per paper, the most "
        f"frequent on {stats.frequency_max:,} papers, the rarest on {stats.frequency_min}.\n"
        f"Encoder: all-MiniLM-L6-v2, {_trained(settings)} on the first {settings.max_length} tokens.\n"
        f"ABALONE: recipe {DEFAULT}, objective {settings.objective}, with experts mixed in.\n"
    )
    if size is not SIZES[0]:
        console.print(
            "This is what this machine can do in about four minutes. To train on all 5,000 papers and all layers:\n"
            f"  abalone train arxiv-sample --output model --recipe {DEFAULT}\n"
            "  abalone evaluate model arxiv-sample\n"
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

    step("tf-idf + SVM", lambda: fit("words", recipe("words")))
    step("BCE", lambda: fit("bce", settings.replace(objective="bce", lexical=False, neighbours=False)))
    step("ABALONE", lambda: fit("abalone", settings))
    model = models["abalone"]
    losses = [entry["train_loss"] for stage in model.predictor_.story["history"].values() for entry in stage]
    mixture = model.predictor_.decision.mixture.weights or {"lexical": 1.0}  # words alone decide where nothing is mixed
    weights = [f"{name} {weight:.2f}" for name, weight in mixture.items()]
    console.print(f"\nTraining loss by epoch: {', '.join(f'{loss:.3f}' for loss in losses)}")
    console.print(f"Weights of the experts, chosen out of fold: {', '.join(weights)}\n")
    scores_table(rows, title="Test, thresholds tuned out of fold for each (F1 in %)")
    console.print(f"{verdict(rows, stats.train + stats.validation)}\n")
    _read_some(console, model, corpus)
    if folder is not None:
        model.save_pretrained(folder)
        console.print(f"\nmodel folder: {folder}")
    return rows


def verdict(rows: Mapping[str, Mapping[str, float]], documents: int) -> str:
    """Return a sentence or two on whether ABALONE is ahead, and if not, why.

    Args:
        rows: the scores of each model.
        documents: that they were trained on.
    """

    def compared(score: str) -> tuple[bool, str]:
        own = rows["ABALONE"][score]
        other = max((name for name in rows if name != "ABALONE"), key=lambda name: rows[name][score])
        return own > rows[other][score] + NOISE, f"{100 * own:.1f}, {other} {100 * rows[other][score]:.1f}"

    (ahead, macro), (ahead_in_tail, tail) = compared("macro_f1"), compared("macro_f1_tail")
    found = f"Macro-F1 over all labels: ABALONE {macro}. Over the rarest third: ABALONE {tail}."
    if ahead and ahead_in_tail:
        return f"{found} ABALONE is ahead on both."
    where = "on the rarest third" if ahead else "over all labels" if ahead_in_tail else "on both"
    return (
        f"{found} ABALONE is not clearly ahead {where}: {documents:,} papers are few for training an "
        "encoder. On 47,300 papers the default recipe has a macro-F1 of 54.9, tf-idf + SVM 51.4 (docs/recipe.md)."
    )


def _trained(settings: Config) -> str:
    frozen, epochs = settings.freeze_layers, settings.epochs
    return f"{f'{6 - frozen} of its 6' if frozen else 'all'} layers trained for {epochs} epochs"


def demo_corpus(size: Size = USUAL) -> Corpus:
    """Return a stratified part of the bundled sample, always the same for a size."""
    whole = load_corpus("arxiv-sample")
    train, validation, test = (_part(split, size.shares[name]) for name, split in whole.splits())
    return replace(whole, train=train, validation=validation, test=test, name="arxiv-sample, a part")


def _part(split: Split, share: float) -> Split:
    if share == 1:
        return split
    rows, _ = iterative_split(split.labels, [share, 1 - share], seed=0)
    return Split([split.texts[row] for row in rows], split.labels[rows])


def _read_some(console: Console, model: AbaloneClassifier, corpus: Corpus) -> None:
    """Print the test documents with the rarest labels, their labels and the predicted ones."""
    frequencies = np.array(corpus.stats().frequencies)
    truth = label_lists(corpus.test.labels, corpus.label_names)
    rarity = [
        min((frequencies[j] for j in np.flatnonzero(row)), default=np.inf) for row in corpus.test.labels.toarray()
    ]
    chosen = np.argsort(rarity, kind="stable")[:: max(len(rarity) // 20, 1)][:READ]
    texts = [corpus.test.texts[row] for row in chosen]
    console.print("Some test papers, with their labels and the predicted ones:")
    for row, text, given in zip(chosen, texts, model.predict(texts), strict=True):
        console.print(f"\n  “{' '.join(text.split())[:150]} …”", markup=False)
        console.print(f"    labels:    {', '.join(truth[row])}", markup=False)
        console.print(f"    predicted: {', '.join(given) or '(none)'}", markup=False)
