"""Documents to read: what they say, and how wrong a run is about each."""

import numpy as np
from scipy.sparse import csr_array

EXCERPT = 280  # characters of a document on the map
LONG_EXCERPT = 700  # and of one to be read
WORST = 24
EVEN_SO = 1e-7  # a probability of 0 or 1 that is wrong would cost infinitely much


def excerpt(text: str, length: int = EXCERPT) -> str:
    """The beginning of a text on one line.

    Example:
        >>> excerpt("a  long\\n text", 6)
        'a long…'
    """
    # What lies beyond cannot be needed, unless a text is mostly white space.
    line = " ".join(text[: 8 * length].split())
    return line if len(line) <= length and len(text) <= 8 * length else line[:length].rstrip() + "…"


def document_losses(truth: csr_array, probabilities: np.ndarray) -> np.ndarray:
    """Binary cross-entropy of each document, summed over the labels, [n].

    Args:
        truth, probabilities: [n, L].
    """
    sure = np.clip(probabilities.astype(np.float64), EVEN_SO, 1 - EVEN_SO)
    losses: np.ndarray = -np.log1p(-sure).sum(axis=1)
    rows, columns = truth.nonzero()
    own = sure[rows, columns]
    return losses + np.bincount(rows, np.log1p(-own) - np.log(own), minlength=len(losses))


def worst_documents(losses: np.ndarray, limit: int = WORST) -> np.ndarray:
    """Rows with the highest loss, the worst first."""
    return np.argsort(-losses, kind="stable")[:limit]
