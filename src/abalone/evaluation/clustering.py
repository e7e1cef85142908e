"""Clustering of embeddings by label combination: the Silhouette score and the Davies–Bouldin index.

Each distinct set of labels is taken for a class, as in the paper. There are many of them and most are rare, so scores
are given for the most frequent 10 %, 20 % … of the combinations; all of these come from one pass over the distances.
Values are scikit-learn's (Euclidean, on the embeddings as they are).
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from abalone.device import choose_device
from abalone.errors import InputError
from abalone.evaluation.matrices import Labels, read_labels

PROPORTIONS = tuple(tenth / 10 for tenth in range(1, 11))
IN_THE_TABLE = 0.5  # the paper's table keeps half of the combinations
MOST_DOCUMENTS = 10_000  # the paper's sample
BLOCK = 512  # rows of distances held at a time: 40 MB at 10⁴ points


@dataclass(frozen=True)
class Clustering:
    """Both scores for growing shares of the label combinations, one entry a proportion.

    A share that keeps fewer than two combinations, or no two documents of one, has NaN: nothing can be told apart.
    """

    proportions: tuple[float, ...]
    combinations: tuple[int, ...]
    documents: tuple[int, ...]  # that carry one of these combinations
    silhouette: tuple[float, ...]  # −1 … 1, higher is better
    davies_bouldin: tuple[float, ...]  # 0 …, lower is better

    def at(self, proportion: float) -> tuple[float, float]:
        """Return Silhouette and Davies–Bouldin at one of the proportions."""
        place = self.proportions.index(proportion)
        return self.silhouette[place], self.davies_bouldin[place]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON, which has no NaN: None stands for it."""
        return {name: [None if v != v else v for v in values] for name, values in asdict(self).items()}


def label_combinations(labels: Labels) -> np.ndarray:
    """Return the label combination of each document, [n]: 0 is the most frequent one, −1 is none.

    A document without a label has no combination: what it lacks is nothing in common with others. Equally frequent
    combinations come in the order of their labels, so that the same documents give the same numbers.

    Example:
        >>> label_combinations(np.array([[1, 0], [1, 1], [1, 1], [0, 0]])).tolist()
        [1, 0, 0, -1]
    """
    matrix: csr_array = read_labels("labels", labels)
    matrix.sort_indices()
    sets = [tuple(row.tolist()) for row in np.split(matrix.indices, matrix.indptr[1:-1])]
    counts: dict[tuple[int, ...], int] = {}
    for labelled in filter(None, sets):
        counts[labelled] = counts.get(labelled, 0) + 1
    ranked = sorted(counts, key=lambda labelled: (-counts[labelled], labelled))
    rank = {labelled: number for number, labelled in enumerate(ranked)}
    return np.array([rank.get(labelled, -1) for labelled in sets], dtype=np.int64)


def cluster_by_combination(
    embeddings: np.ndarray,
    labels: Labels,
    *,
    proportions: Sequence[float] = PROPORTIONS,
    most: int = MOST_DOCUMENTS,
    seed: int = 0,
    device: str = "auto",
) -> Clustering:
    """Score embeddings by label combination, keeping the most frequent combinations.

    Args:
        embeddings: [n, d].
        labels: 0/1, [n, L].
        proportions: shares of the combinations to keep, ascending, each in (0, 1].
        most: of more documents, this many are drawn.
        seed: of that draw; the same for models that are to be compared.
        device: where to compute.
    """
    if list(proportions) != sorted(set(proportions)) or not all(0 < share <= 1 for share in proportions):
        raise InputError(f"proportions must ascend within (0, 1], got {tuple(proportions)}")
    if len(embeddings) != labels.shape[0]:
        raise InputError(
            f"embeddings and labels must have the same number of rows, got {len(embeddings)} and {labels.shape[0]}"
        )
    if len(embeddings) > most:
        drawn = np.sort(np.random.default_rng(seed).choice(len(embeddings), most, replace=False))
        embeddings, labels = embeddings[drawn], labels[drawn]
    classes = label_combinations(labels)
    labelled = classes >= 0
    points, members = _read(embeddings[labelled], classes[labelled], device)
    sizes = torch.bincount(members)
    cuts = [max(round(share * len(sizes)), 1) for share in proportions]
    kept = [int(sizes[:cut].sum()) for cut in cuts]
    known = [1 < cut < documents for cut, documents in zip(cuts, kept, strict=True)]
    return Clustering(
        tuple(proportions),
        tuple(cuts),
        tuple(kept),
        tuple(v if k else float("nan") for v, k in zip(_silhouettes(points, members, cuts), known, strict=True)),
        tuple(v if k else float("nan") for v, k in zip(_davies_bouldins(points, members, cuts), known, strict=True)),
    )


def silhouette_score(embeddings: np.ndarray, classes: np.ndarray, *, device: str = "auto") -> float:
    """Mean over points of (b − a)/max(a, b), with a the mean distance to the own class, b to the nearest other.

    A point that is alone in its class counts 0.

    Args:
        embeddings: [n, d].
        classes: [n], any whole numbers.
        device: where to compute.
    """
    points, members = _read(embeddings, _numbered(classes), device)
    return _silhouettes(points, members, [_classes_of(members)])[0]


def davies_bouldin_score(embeddings: np.ndarray, classes: np.ndarray, *, device: str = "auto") -> float:
    """Mean over classes of the worst (spread + spread')/(distance of the centres) with another class.

    Args:
        embeddings: [n, d].
        classes: [n], any whole numbers.
        device: where to compute.
    """
    points, members = _read(embeddings, _numbered(classes), device)
    return _davies_bouldins(points, members, [_classes_of(members)])[0]


def _silhouettes(points: Tensor, members: Tensor, cuts: Sequence[int]) -> list[float]:
    """Return the score among the classes 0 … cut−1, for each cut.

    What a point is to its own class does not depend on the cut, and the nearest other class among the first `cut` is
    a running minimum over classes; so one pass over the distances serves all cuts.
    """
    sizes = torch.bincount(members)  # [C]
    totals = [torch.zeros((), dtype=points.dtype, device=points.device) for _ in cuts]
    for rows, distances in _distances(points):  # [b, n]
        means = distances.new_zeros(len(rows), len(sizes)).index_add_(1, members, distances)  # [b, C], sums so far
        own_class = members[rows].unsqueeze(1)  # [b, 1]
        others = sizes[own_class[:, 0]] - 1
        own = means.gather(1, own_class)[:, 0] / others.clamp(min=1)
        means.div_(sizes).scatter_(1, own_class, torch.inf)
        nearest = torch.full_like(own, torch.inf)
        done = 0
        for number, cut in enumerate(cuts):
            if cut > done:
                nearest = torch.minimum(nearest, means[:, done:cut].amin(1))
                done = cut
            values = (nearest - own) / torch.maximum(nearest, own)
            # Alone in its class, or everything in one place (0/0): 0, as scikit-learn has it.
            values = torch.where(others > 0, values.nan_to_num(0.0), 0.0)
            totals[number] += values[own_class[:, 0] < cut].sum()
    return [float(total) / int(sizes[:cut].sum()) for total, cut in zip(totals, cuts, strict=True)]


def _davies_bouldins(points: Tensor, members: Tensor, cuts: Sequence[int]) -> list[float]:
    """Return the index among the classes 0 … cut−1, for each cut."""
    sizes = torch.bincount(members)  # [C]
    centres = points.new_zeros(len(sizes), points.shape[1]).index_add_(0, members, points) / sizes.unsqueeze(1)
    to_centre = (points - centres[members]).norm(dim=1)
    spread = to_centre.new_zeros(len(sizes)).index_add_(0, members, to_centre) / sizes  # [C]
    spread = torch.where(sizes > 1, spread, 0.0)  # exactly: a mean of one point may round
    totals = [torch.zeros((), dtype=points.dtype, device=points.device) for _ in cuts]
    for rows, distances in _distances(centres):  # [b, C]
        ratios = (spread[rows].unsqueeze(1) + spread) / distances
        ratios[distances == 0] = 0.0  # a class beside itself, or one with the same centre, as scikit-learn has it
        worst = torch.zeros_like(ratios[:, 0])
        done = 0
        for number, cut in enumerate(cuts):
            if cut > done:
                worst = torch.maximum(worst, ratios[:, done:cut].amax(1))
                done = cut
            totals[number] += worst[rows < cut].sum()
    return [float(total) / cut for total, cut in zip(totals, cuts, strict=True)]


def _distances(points: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield blocks of rows [b] with their distances to all points [b, n]."""
    squares = (points * points).sum(1)
    for rows in torch.arange(len(points), device=points.device).split(BLOCK):
        distances = torch.addmm(squares, points[rows], points.T, alpha=-2)
        distances.add_(squares[rows].unsqueeze(1))
        # What is left of two equal points is rounding; a distance made of it would decide between classes.
        rounding = 1e-14 * (squares[rows].unsqueeze(1) + squares)
        distances.masked_fill_(distances <= rounding, 0).sqrt_()
        yield rows, distances.scatter_(1, rows.unsqueeze(1), 0.0)


def _read(embeddings: np.ndarray, classes: np.ndarray, device: str) -> tuple[Tensor, Tensor]:
    """Read points [n, d] in double precision, centred, where products lose least, and classes [n] without gaps."""
    if np.ndim(embeddings) != 2 or len(embeddings) != len(classes):
        raise InputError(f"embeddings must be [{len(classes)}, dimensions], got shape {np.shape(embeddings)}")
    if len(np.unique(classes)) < 2:
        raise InputError(
            f"{len(classes)} documents in {len(np.unique(classes))} class: clustering needs two classes at least"
        )
    if not np.isfinite(embeddings).all():
        raise InputError("embeddings must be finite, found NaN or infinity")
    chosen = choose_device(device)
    place = torch.device("cpu") if chosen.type == "mps" else chosen  # Apple's GPU has no double precision
    points = torch.from_numpy(np.array(embeddings, dtype=np.float64)).to(place)
    return points - points.mean(0), torch.from_numpy(classes).to(place)


def _numbered(classes: np.ndarray) -> np.ndarray:
    numbers: np.ndarray = np.unique(np.asarray(classes), return_inverse=True)[1].ravel().astype(np.int64)
    return numbers


def _classes_of(members: Tensor) -> int:
    classes = int(members.max()) + 1
    if classes >= len(members):
        raise InputError(f"{len(members)} documents in {classes} classes: every class has a single document")
    return classes
