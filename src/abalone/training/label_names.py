"""Label names as training documents: what a label is called says what it is about, before any document does."""

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array, vstack

from abalone.config import Config
from abalone.data.corpus import Corpus, Split
from abalone.data.store import join

_INNER_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def as_text(name: str) -> str:
    """Return a label name as a person would write it in a text; empty where it has no letter.

    Example:
        >>> as_text("groundnut-oil"), as_text("cs.AI"), as_text("UnpaidInvoice"), as_text("17")
        ('groundnut oil', 'cs AI', 'Unpaid Invoice', '')
    """
    if not any(map(str.isalpha, name)):
        return ""
    spaced = _INNER_CAPITAL.sub(" ", name)
    return " ".join("".join(char if _in_word(char) else " " for char in spaced).split())


def _in_word(char: str) -> bool:
    """Return whether it is a letter, a mark on one (accents, vowels of Hindi), a number, or an invisible joiner."""
    category = unicodedata.category(char)
    return category[0] in "LMN" or category == "Cf"


def with_names(documents: Split, label_names: Sequence[str]) -> Split:
    """Return the documents, and after them one for each label name, which carries this label alone.

    A label with one document has none to learn from where this one is held out, and a document that is all the model
    knows of a label is mostly about something else. The name is short and to the point. Out of fold, tf-idf + SVM on
    Reuters-21578 gains 2.4 points of macro-F1 by them, 7.5 in the rarest third; from 8 documents a label, 5.6. Names
    that are codes (`math.nt`) change nothing beyond noise. Three copies of a name gain no more than one.

    Args:
        documents: for training.
        label_names: of the columns of their labels; a name without a letter is left out.
    """
    texts = [as_text(name) for name in label_names]
    named = np.flatnonzero([bool(text) for text in texts])  # [m]
    if not len(named):
        return documents
    ones, rows = np.ones(len(named), dtype=documents.labels.dtype), np.arange(len(named))
    labels = csr_array((ones, (rows, named)), shape=(len(named), len(texts)))
    return Split(
        join(documents.texts, [texts[label] for label in named]), csr_array(vstack([documents.labels, labels]))
    )


def taught_by(config: Config, corpus: Corpus) -> Split:
    """Return what models are trained on: the training documents, and the label names after them where they are too."""
    return with_names(corpus.train, corpus.label_names) if config.learn_names else corpus.train
