"""Settings that are left open: what suits the encoder, the corpus and the machine. docs/recipe.md has the evidence."""

from pathlib import Path

from abalone.config import OF_THE_MACHINE, Config
from abalone.data.corpus import Corpus
from abalone.inference.folder import made_by
from abalone.recipes import recipe
from abalone.training.run import fingerprint, holds_run

# Documents that one training reads, counted as often as they are read. Six objectives on ten corpora of 300 to 38,000
# documents were no better for more: 5 epochs of arxiv54, 16 of Reuters-21578, 50 of 2,000 abstracts, 80 of 500.
READ = 125_000
FEWEST, MOST = 5, 80  # epochs
# Of many documents two thirds train a model nearly as good as four fifths do, in two fifths less time.
FOLDS, FOLDS_OF_MANY = 5, 3
MANY, VERY_MANY = 20_000, 200_000  # documents
HELD_OUT = 1 / 5  # of the documents, where a part is held out once
# On a CPU: as many documents in all trainings as two cores read in a quarter of an hour (MiniLM), or two and a half
# times what five epochs of nine tenths of the documents are, whichever is more.
CPU_READ = 10_000
CPU_EPOCHS = 2.5 * 5 * 0.9
# Characters to train on, above which a CPU takes too long for the default recipe: with five epochs half an hour on two
# cores of 2024 without bf16, a quarter where they have it, about an hour on slow ones.
CPU_CHARACTERS = 2_000_000
CHARACTERS_A_TOKEN = 5  # of English, as arXiv abstracts have it
# Settings that say nothing about how much work a person wants to be done.
FREE = ("seed", "precision", *OF_THE_MACHINE)


def settled(config: Config, documents: int, *, on_cpu: bool) -> Config:
    """Return the settings with epochs and folds chosen where they were left open.

    Args:
        config: the settings as they were given.
        documents: for training and validation together.
        on_cpu: whether there is no GPU to train on.
    """
    folds, epochs = config.folds, config.epochs
    if folds is None:
        folds = _folds(config, documents, on_cpu)
    if epochs is None:
        epochs = _epochs(documents, folds, on_cpu)
    return config.replace(folds=folds, epochs=epochs)


def _folds(config: Config, documents: int, on_cpu: bool) -> int:
    if config.patience is not None:
        return 0  # it watches validation documents, which are then not trained on
    if documents > VERY_MANY or (on_cpu and config.epochs != 0):
        return 1
    return min(documents, FOLDS_OF_MANY if documents > MANY and config.epochs != 0 else FOLDS)


def _epochs(documents: int, folds: int, on_cpu: bool) -> int:
    enough = READ / max(documents, 1)
    if on_cpu:
        passes = trained_shares(folds)
        enough = min(enough, max(CPU_READ / max(documents, 1), CPU_EPOCHS) / passes)
    return int(min(max(enough, FEWEST), MOST))


def trained_shares(folds: int) -> float:
    """Return how many times all documents are trained on in an epoch of every training, those of folds included."""
    if folds == 0:
        return 1.0
    return 1.0 + (1 - HELD_OUT if folds == 1 else folds - 1)


def rate_for_width(width: int) -> float:
    """Return a learning rate for an encoder of this width: 1e-4 up to 384, and beyond in inverse proportion.

    AdamW moves every weight by about its rate. A wider layer adds up more of them, so the same rate moves its output
    further: what is best for MiniLM, 384 wide, makes an encoder of base size forget what it knew.
    """
    return 1e-4 * min(1, 384 / width)


def settings_for_cpu(settings: Config, corpus: Corpus, resumed: Path | None) -> tuple[Config, bool]:
    """Return the default settings, or those of the recipe `fast` where the default would take hours on a CPU.

    By the size of the documents alone, so that the same command does the same again.

    Args:
        settings: the default recipe's.
        corpus: what is trained on.
        resumed: the model folder of a run to go on with, which goes on as it began.

    Returns:
        The settings, and whether they are those of `fast` because the documents are many.
    """
    fast = recipe("fast", **{name: getattr(settings, name) for name in FREE})
    if resumed is not None:
        for each in (settings, fast):
            run_folder = resumed.with_name(f"{resumed.name}.training")
            if holds_run(run_folder, each, corpus) or made_by(resumed) == fingerprint(each, corpus):
                return each, False
    too_large = _characters(corpus, settings.max_length * CHARACTERS_A_TOKEN) > CPU_CHARACTERS
    return fast if too_large else settings, too_large


def _characters(corpus: Corpus, most: int) -> int:
    """Count the characters of the training texts, at most `most` of each, until there are `CPU_CHARACTERS`."""
    characters = 0
    for text in corpus.train.texts:
        characters += min(len(text), most)
        if characters > CPU_CHARACTERS:
            break
    return characters
