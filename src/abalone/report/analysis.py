"""Learning curves, calibration, confused labels, document losses and the document map: what the page draws."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.sparse import csr_array
from scipy.spatial.distance import squareform

from abalone.evaluation.decision import Decision, Thresholds
from abalone.evaluation.matrices import EVERY, Labels, Scores, of_labels, read_labels, row_blocks
from abalone.evaluation.metrics import THIRDS, evaluate
from abalone.evaluation.thresholds import fit_thresholds

if TYPE_CHECKING:
    from abalone.report.runs import ReportedRun

NO_CURVES = ("epoch", "seconds")  # entries of the history that are no measure

BINS = 15  # those of `expected_calibration_error`

SHOWN_LABELS = 16  # more rows and columns than this cannot be read
SHOWN_PAIRS = 200

EXCERPT = 280  # characters of a document on the map
WORST = 24  # documents to read
CLIP = 1e-7  # a probability of 0 or 1 that is wrong would have an infinite loss

COMPONENTS = 50  # what t-SNE is given: the rest is mostly noise, and slow
PERPLEXITY = 30.0  # neighbours that a document is kept close to
FEWEST = 5  # documents that neighbourhoods make sense for


def learning_curves(story: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one entry per stage: its name, the epochs, the seconds they took, and a curve for each measure.

    A value that is missing, NaN or infinite is `None`, so that a curve has a gap there.

    Example:
        >>> story = {"history": {"pretraining": [{"epoch": 1, "train_loss": 2.5, "seconds": 4.0}]}}
        >>> learning_curves(story)[0]["curves"]
        {'train_loss': [2.5]}
    """
    return [_stage(name, entries) for name, entries in story.get("history", {}).items() if entries]


def _stage(name: str, entries: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    measures = dict.fromkeys(measure for entry in entries for measure in entry if measure not in NO_CURVES)
    return {
        "stage": name,
        "epochs": [entry.get("epoch", place) for place, entry in enumerate(entries, start=1)],
        "seconds": sum(entry.get("seconds", 0.0) for entry in entries),
        "curves": {measure: [_finite(entry.get(measure)) for entry in entries] for measure in measures},
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


@dataclass(frozen=True)
class Reliability:
    """A reliability diagram: bins of equal width over the probabilities; empty bins are left out.

    Args:
        group: the labels it is about, a third or "all".
        said: mean probability of each bin.
        true: share of its (document, label) pairs that are positive.
        pairs: how many there are.
        error: the expected calibration error.
    """

    group: str
    said: list[float]
    true: list[float]
    pairs: list[int]
    error: float


def reliability(group: str, probabilities: Scores, truth: csr_array, bins: int = BINS) -> Reliability:
    """Bin the (document, label) pairs by probability.

    Args:
        group: the name of the labels.
        probabilities, truth: [n, L]; probabilities may be computed block by block.
        bins: number of bins.
    """
    pairs, said, true = np.zeros(bins, np.int64), np.zeros(bins), np.zeros(bins, np.int64)
    for rows in row_blocks(probabilities.shape):
        block = probabilities[rows, EVERY]
        place = np.minimum((block * bins).astype(np.int64), bins - 1)  # [r, L]
        pairs += np.bincount(place.ravel(), minlength=bins)
        said += np.bincount(place.ravel(), block.ravel(), minlength=bins)
        true += np.bincount(place[truth[rows].nonzero()], minlength=bins)
    filled = pairs > 0
    return Reliability(
        group=group,
        said=(said[filled] / pairs[filled]).tolist(),
        true=(true[filled] / pairs[filled]).tolist(),
        pairs=pairs[filled].tolist(),
        error=float(np.abs(said - true).sum() / pairs.sum()),
    )


def reliability_by_third(probabilities: Scores, truth: csr_array, thirds: np.ndarray) -> list[Reliability]:
    """Return the reliability of all labels, then of head, medium and tail; a third without labels is left out."""
    found = [reliability("all", probabilities, truth)]
    for third, name in enumerate(THIRDS):
        inside = np.flatnonzero(thirds == third)
        if inside.size:
            found.append(reliability(name, of_labels(probabilities, inside), truth[:, inside]))
    return found


def threshold_worth(run: "ReportedRun") -> dict[str, dict[str, float]]:
    """Score a run with 0.5 everywhere, with its own thresholds, and with the best thresholds in hindsight.

    Hindsight is each label's best threshold on these very documents: no honest choice reaches it, and the gap to it is
    what better thresholds could still bring. It is left out where no document carries a label.
    """
    truth, probabilities = run.scored.truth, run.scored.probabilities
    half = Decision(Thresholds(np.full(len(run.label_names), 0.5)), at_least_one=run.decision.at_least_one)
    given = {"half": half.given(probabilities), "chosen": run.scored.predictions}
    if truth.nnz:
        best = fit_thresholds(probabilities, truth, objective="macro", shrinkage=0)
        given["hindsight"] = Decision(best).given(probabilities)
    return {name: evaluate(truth, labels, frequencies=run.frequencies) for name, labels in given.items()}


@dataclass(frozen=True, eq=False)
class Confusion:
    """Counts of documents; a document with several errors counts once in every pair of them.

    Args:
        instead: [L, L], row a, column b: a is true and not predicted, b is predicted and not true.
        together: [L, L], a and b are both true.
        only_missed: [L], a is true and not predicted, and nothing else is predicted wrongly.
        only_given: [L], b is predicted and not true, and nothing that is true is missing.
    """

    instead: csr_array
    together: csr_array
    only_missed: np.ndarray
    only_given: np.ndarray

    def pairs(self, limit: int = SHOWN_PAIRS) -> list[tuple[int, int, int, int]]:
        """Return (true label, predicted label, documents, documents that carry both), most frequent first."""
        counts = self.instead.tocoo()
        order = np.lexsort((counts.col, counts.row, -counts.data))[:limit]
        meant, given = counts.row[order], counts.col[order]
        both = np.asarray(self.together[meant, given]).ravel() if order.size else np.zeros(0)
        columns = (meant, given, counts.data[order], both)
        return list(zip(*(column.astype(int).tolist() for column in columns), strict=True))

    def most_confused(self, limit: int = SHOWN_LABELS) -> list[int]:
        """Return the labels of the most frequent pairs, at most `limit`, labels that occur together side by side."""
        chosen: dict[int, None] = {}
        for meant, given, _, _ in self.pairs():
            if len(chosen | {meant: None, given: None}) <= limit:
                chosen |= {meant: None, given: None}
        return _clustered(np.array(sorted(chosen), dtype=np.int64), self.together)


def confusion(truth: Labels, predictions: Labels) -> Confusion:
    """Count which errors fall on the same documents.

    With several labels per document, no error says which other one it goes with. A missed label and a false alarm on
    the same document count as a pair; errors without a counterpart are counted separately.

    Args:
        truth, predictions: 0/1, [n, L].
    """
    true, given = read_labels("truth", truth), read_labels("predictions", predictions)
    hits = true.multiply(given).tocsr()
    missed, wrong = (true - hits).tocsr(), (given - hits).tocsr()  # [n, L] both
    missed.eliminate_zeros()
    wrong.eliminate_zeros()
    nothing_missed, nothing_wrong = np.diff(missed.indptr) == 0, np.diff(wrong.indptr) == 0  # [n] both
    return Confusion(
        instead=(missed.T @ wrong).tocsr(),
        together=(true.T @ true).tocsr(),
        only_missed=np.asarray(missed[nothing_wrong].sum(axis=0)).ravel(),
        only_given=np.asarray(wrong[nothing_missed].sum(axis=0)).ravel(),
    )


def _clustered(labels: np.ndarray, together: csr_array) -> list[int]:
    """Order labels by hierarchical clustering, so that those that share documents are side by side."""
    if len(labels) < 3:
        return [int(label) for label in labels]
    both = together[labels][:, labels].toarray().astype(np.float64)  # [K, K]
    own = np.diag(both)
    either = own[:, None] + own[None, :] - both
    distance = 1 - both / np.maximum(either, 1)  # Jaccard
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform(distance, checks=False), method="average", optimal_ordering=True)
    return [int(labels[place]) for place in leaves_list(tree)]


def excerpt(text: str, length: int = EXCERPT) -> str:
    """Return the beginning of a text on one line.

    Example:
        >>> excerpt("a  long\\n text", 6)
        'a long…'
    """
    # What lies beyond cannot be needed, unless a text is mostly white space.
    line = " ".join(text[: 8 * length].split())
    return line if len(line) <= length and len(text) <= 8 * length else line[:length].rstrip() + "…"


def document_losses(truth: csr_array, probabilities: np.ndarray) -> np.ndarray:
    """Return the binary cross-entropy of each document, summed over the labels, [n].

    Args:
        truth, probabilities: [n, L].
    """
    clipped = np.clip(probabilities.astype(np.float64), CLIP, 1 - CLIP)
    losses: np.ndarray = -np.log1p(-clipped).sum(axis=1)
    rows, columns = truth.nonzero()
    own = clipped[rows, columns]
    return losses + np.bincount(rows, np.log1p(-own) - np.log(own), minlength=len(losses))


def worst_documents(losses: np.ndarray, limit: int = WORST) -> np.ndarray:
    """Return the rows with the highest loss, the worst first."""
    return np.argsort(-losses, kind="stable")[:limit]


def document_map(embeddings: np.ndarray) -> dict[str, np.ndarray]:
    """Return two-dimensional layouts of documents by name, [n, 2] each, in the unit square.

    `pca` keeps large distances: the two directions of most variance. `tsne` keeps neighbourhoods, and is left out
    with fewer than five documents. Rows are scaled to unit length first, as the losses compare by cosine.
    The same embeddings give the same map.

    Args:
        embeddings: [n, h].
    """
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    unit = embeddings / np.maximum(lengths, np.finfo(np.float32).tiny)
    components = _principal_components(unit.astype(np.float64))
    maps = {"pca": _fitted(components[:, :2])}
    if len(embeddings) >= FEWEST:
        maps["tsne"] = _fitted(_lengthwise(_tsne(components)))
    return maps


def _principal_components(rows: np.ndarray) -> np.ndarray:
    """Return [n, at most 50], with two columns at least."""
    from sklearn.decomposition import PCA

    wanted = min(COMPONENTS, *rows.shape)
    # Coinciding documents have no direction of variance, which scikit-learn would divide by.
    if len(rows) < 2 or np.ptp(rows, axis=0).max() == 0:
        return np.zeros((len(rows), 2))
    # "full" is exact: the randomised solver would make the map depend on the machine.
    found: np.ndarray = PCA(wanted, svd_solver="full").fit_transform(rows)
    return np.pad(found, ((0, 0), (0, max(0, 2 - found.shape[1]))))


def _tsne(components: np.ndarray) -> np.ndarray:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    documents = len(components)
    if np.ptp(components) == 0:
        return np.zeros((documents, 2))
    layout = TSNE(perplexity=min(PERPLEXITY, (documents - 1) / 3), init="pca", random_state=0)
    # One thread: its small steps lose more to waiting for each other than they gain, and sums keep their order.
    with threadpool_limits(1):
        places: np.ndarray = layout.fit_transform(components.astype(np.float32))
    return places


def _lengthwise(places: np.ndarray) -> np.ndarray:
    """Rotate so that the map is wider than tall, as screens are: which way is up means nothing to t-SNE."""
    centred = places - places.mean(axis=0)
    _, turn = np.linalg.eigh(centred.T @ centred)
    turned: np.ndarray = centred @ (turn[:, ::-1] * np.sign(turn[np.abs(turn).argmax(axis=0), [0, 1]])[::-1])
    return turned


def _fitted(places: np.ndarray) -> np.ndarray:
    """Scale into the unit square, alike in both directions, and centre."""
    low, high = places.min(axis=0), places.max(axis=0)
    extent = max(float((high - low).max()), np.finfo(np.float64).tiny)
    square: np.ndarray = (places - (low + high) / 2) / extent + 0.5
    return square
