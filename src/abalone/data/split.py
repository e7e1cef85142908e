"""Stratified splits and folds of multi-label documents, in which groups such as copies of a text stay together.

Iterative stratification after K. Sechidis, G. Tsoumakas and I. Vlahavas, "On the Stratification of Multi-label
Data", ECML PKDD 2011: the rarest label is dealt out first, each document to the part that lacks that label most.
A group is dealt out like one document that counts several times.
"""

import heapq
import random
from collections import deque
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csc_array, csr_array

from abalone.errors import InputError

SPLITS = ("train", "validation", "test")
SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
}
# Of the search that repairs a split:
PATIENCE = 30  # search moves per missing pair; more than this finds next to nothing
CANDIDATES = 64  # documents looked at per search move, so that a frequent label does not cost its frequency
NOISE = 0.5  # chance of a random move, against going round in circles; less of it misses more labels


def iterative_split(
    labels: csr_array, shares: Sequence[float], seed: int, groups: np.ndarray | None = None
) -> list[np.ndarray]:
    """Split documents into parts with the same mix of labels.

    A label with at least as many documents as there are parts is put into every part wherever the label sets
    allow it (`lacking` names the exceptions). The part with the largest share, the training part, comes first:
    it holds every label that has a document at all.

    Args:
        labels: 0/1, [documents, labels].
        shares: relative size of each part, for example `(0.8, 0.1, 0.1)`.
        seed: the same seed gives the same split.
        groups: [documents], equal for documents that belong in the same part; by default each is on its own.

    Returns:
        The sorted document indices of each part.
    """
    if not shares or min(shares) <= 0:
        raise InputError(f"shares must be positive, got {tuple(shares)}")
    fractions = [share / sum(shares) for share in shares]
    rng = random.Random(seed)
    bundles = _Bundles(labels, groups, rng)
    place = _deal(bundles, fractions, rng)
    cover_labels(place, bundles.labels_of, bundles.bundles_of, parts=len(fractions), main=_largest(fractions), rng=rng)
    part_of = bundles.spread(place)
    return [np.flatnonzero(part_of == part) for part in range(len(fractions))]


def stratified_holdout(
    labels: csr_array, share: float, seed: int, groups: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Split a stratified `share` off; every label keeps a training document wherever it has a document.

    Args:
        labels: 0/1, [documents, labels].
        share: part of the documents to hold out, at most a half.
        seed: the same seed gives the same split.
        groups: as for `iterative_split`.

    Returns:
        The sorted indices of the documents kept, and of those held out.
    """
    if not 0 < share <= 0.5:
        raise InputError(f"the share to hold out must lie in (0, 0.5], got {share}")
    kept, held_out = iterative_split(labels, (1 - share, share), seed, groups)
    return kept, held_out


def fold_of_documents(labels: csr_array, groups: np.ndarray | None, folds: int, seed: int) -> np.ndarray:
    """Assign documents to folds of about the same size, with each label spread as evenly as its count allows.

    Args:
        labels: 0/1, [documents, labels].
        groups: [documents], equal for documents that belong in the same fold; `None` where each is on its own.
        folds: how many, at least 2.
        seed: the same seed gives the same folds.

    Returns:
        The fold of each document, from 0, [documents].
    """
    if folds < 2:
        raise InputError(f"folds must be at least 2, got {folds}")
    rng = random.Random(seed)
    bundles = _Bundles(labels, groups, rng)
    if folds > len(bundles.sizes):
        what = "documents" if groups is None else "distinct documents"
        raise InputError(f"{folds} folds need at least as many {what}, and there are {len(bundles.sizes)}")
    place = _deal(bundles, [1 / folds] * folds, rng)
    cover_labels(place, bundles.labels_of, bundles.bundles_of, parts=folds, main=None, rng=rng)
    return bundles.spread(place)


def lacking(labels: csr_array, parts: Sequence[np.ndarray], groups: np.ndarray | None = None) -> list[np.ndarray]:
    """Return the labels that each part lacks though they have enough documents, or groups, for every part."""
    present = _present(labels)
    held = np.stack([present[rows].sum(axis=0) for rows in parts])  # [parts, L]
    enough = carrying_groups(labels, groups) >= len(parts)  # [L]
    return [np.flatnonzero(enough & (count == 0)) for count in held]


def carrying_groups(labels: csr_array, groups: np.ndarray | None) -> np.ndarray:
    """Count the groups, by default of one document each, in which each label occurs, [L]."""
    return np.bincount(_by_group(labels, groups).indices, minlength=labels.shape[1])


def numbered(groups: np.ndarray) -> np.ndarray:
    """Number groups from 0 as they first appear, [documents]: groups of one are numbered as documents are."""
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[group]


class _Bundles:
    """Documents, or groups of them, to be dealt out in random order, those of many documents first.

    Large ones come first because what comes later makes up for them.
    """

    def __init__(self, labels: csr_array, groups: np.ndarray | None, rng: random.Random) -> None:
        numbers = np.arange(labels.shape[0]) if groups is None else numbered(groups)
        sizes = np.bincount(numbers)
        order = list(range(len(sizes)))
        rng.shuffle(order)
        order.sort(key=lambda bundle: -sizes[bundle])
        # Shuffled once here, so that nothing later depends on the order of the file.
        counts = _by_group(labels, groups)[order]  # [bundles, L]
        by_label = csc_array(counts)
        self.sizes: list[int] = sizes[order].tolist()  # documents in each
        self.documents: list[int] = by_label.sum(axis=0).tolist()  # that carry each label
        self.holders: list[int] = np.diff(by_label.indptr).tolist()  # bundles that have one of these
        self.labels_of = _Rows(counts.indices, counts.indptr)
        self.counts_of = _Rows(counts.data, counts.indptr)  # how many of its documents carry each of `labels_of`
        self.bundles_of = _Rows(by_label.indices, by_label.indptr)  # those holders
        self._order, self._numbers = order, numbers

    def spread(self, place: Sequence[int]) -> np.ndarray:
        """Return the part of each document, in the order of the file, from the part of each bundle."""
        part_of = np.empty(len(self._order), dtype=np.int64)
        part_of[self._order] = place
        return part_of[self._numbers]


def _by_group(labels: csr_array, groups: np.ndarray | None) -> csr_array:
    """Count the documents of each group that carry each label, [groups, L]; groups are numbered from 0."""
    present = _present(labels)
    if groups is None:
        return present
    numbers = numbered(groups)
    rows, ones = np.arange(labels.shape[0]), np.ones(labels.shape[0], dtype=np.int32)
    belongs = csr_array((ones, (numbers, rows)), shape=(numbers.max(initial=-1) + 1, len(rows)))
    grouped = csr_array(belongs @ present)
    grouped.sort_indices()
    return grouped


def _deal(bundles: _Bundles, fractions: list[float], rng: random.Random) -> list[int]:
    """Deal each bundle to a part, by iterative stratification."""
    main = _largest(fractions)
    labels_of, bundles_of = bundles.labels_of, bundles.bundles_of
    room = [fraction * sum(bundles.sizes) for fraction in fractions]  # documents each part still wants
    left = list(bundles.documents)  # documents of each label not dealt yet
    wanted = [_wishes(*counts, fractions, main) for counts in zip(left, bundles.holders, strict=True)]  # [L, parts]
    tie = list(range(len(left)))
    rng.shuffle(tie)
    place = [-1] * len(labels_of)

    def neediest(wishes: list[float]) -> int:
        most = max(wishes)
        parts = [part for part, wish in enumerate(wishes) if wish == most]
        if len(parts) > 1:
            roomiest = max(room[part] for part in parts)
            parts = [part for part in parts if room[part] == roomiest]
        return parts[0] if len(parts) == 1 else rng.choice(parts)

    # A label's count only changes while another label is dealt, so one entry per change is enough,
    # and an entry whose count is no longer true is passed over.
    heap = [(count, tie[label], label) for label, count in enumerate(left) if count]
    heapq.heapify(heap)
    while heap:
        count, _, label = heapq.heappop(heap)
        if count != left[label]:
            continue
        changed: set[int] = set()
        for bundle in bundles_of[label]:
            if place[bundle] >= 0:
                continue
            part = place[bundle] = neediest(wanted[label])
            room[part] -= bundles.sizes[bundle]
            carried = labels_of[bundle]
            for other, documents in zip(carried, bundles.counts_of[bundle], strict=True):
                wanted[other][part] -= documents
                left[other] -= documents
            changed.update(carried)
        for other in changed:
            if left[other]:
                heapq.heappush(heap, (left[other], tie[other], other))
    for bundle, part in enumerate(place):
        if part < 0:  # no label: it goes where there is room
            place[bundle] = part = neediest(room)
            room[part] -= bundles.sizes[bundle]
    return place


def _wishes(documents: int, holders: int, fractions: list[float], main: int) -> list[float]:
    """Return how many documents of a label, which are in `holders` bundles, each part wants.

    The paper's wish is the fraction itself, which leaves a label of three documents in training alone. At least
    one a part costs training little and lets the parts of later, more frequent labels make up for the sizes.
    """
    wishes = [fraction * documents for fraction in fractions]
    if holders >= len(fractions):
        wishes = [max(wish, 1.0) for wish in wishes]
        wishes[main] += documents - sum(wishes)
    return wishes


def _largest(fractions: list[float]) -> int:
    return fractions.index(max(fractions))


def _present(labels: csr_array) -> csr_array:
    """Return ones where `labels` has anything but an explicit zero."""
    present = labels.astype(bool).astype(np.int32)
    present.eliminate_zeros()
    return present


class _Rows(Sequence[list[int]]):
    """The values of each row of a compressed matrix.

    Plain lists, for the loops are per element, but made as they are asked for: all at once they would take some
    hundred bytes a document.
    """

    def __init__(self, values: np.ndarray, bounds: np.ndarray) -> None:
        self._values, self._bounds = values, bounds.tolist()

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, row: int) -> list[int]:  # type: ignore[override]  # nobody asks for a slice
        found: list[int] = self._values[self._bounds[row] : self._bounds[row + 1]].tolist()
        return found


def cover_labels(
    place: list[int],
    labels_of: Sequence[list[int]],
    documents_of: Sequence[list[int]],
    *,
    parts: int,
    main: int | None,
    rng: random.Random,
) -> None:
    """Change `place` so that labels with at least `parts` documents are in every part wherever possible.

    Whether all labels can be in all parts is a set-splitting problem, NP-hard in general, so this is a local search:
    first only moves that gain (enough whenever a label has documents of its own to give), then, for the labels that
    are left, a short search that also takes moves that lose and keeps the best state it saw.

    Args:
        place: part of each document; changed in place.
        labels_of: labels of each document.
        documents_of: documents of each label.
        parts: number of parts.
        main: comes before the other parts: in the end it holds every label that has a document. `None` where all parts
            are alike.
        rng: breaks ties.
    """
    coverage = _Coverage(place, labels_of, documents_of, parts, main)
    _only_gains(coverage, documents_of)
    if coverage.missing:
        _search(coverage, documents_of, rng)
        _only_gains(coverage, documents_of)  # the best state seen may lie in the middle of a repair


class _Coverage:
    """How often each part holds each label, and the (label, part) pairs that are missing."""

    def __init__(
        self,
        place: list[int],
        labels_of: Sequence[list[int]],
        documents_of: Sequence[list[int]],
        parts: int,
        main: int | None,
    ) -> None:
        self.place, self.labels_of = place, labels_of
        self.held = [[0] * parts for _ in documents_of]  # [L, parts]
        for document, part in enumerate(place):
            for label in labels_of[document]:
                self.held[label][part] += 1
        self.main = main
        self.wanted = [
            [len(documents) >= parts or (part == main and bool(documents)) for part in range(parts)]
            for documents in documents_of
        ]  # [L, parts]
        # A dictionary for its order: sets of tuples would do, but their order is not ours to rely on.
        self.missing = {
            (label, part): None
            for label, held in enumerate(self.held)
            for part in range(parts)
            if self.wanted[label][part] and not held[part]
        }

    def change(self, document: int, part: int) -> tuple[int, int]:
        """Return how many more pairs are missing after moving `document` to `part`: in the main part, and in others."""
        here = self.place[document]
        lost = gained = 0
        for label in self.labels_of[document]:
            held, wanted = self.held[label], self.wanted[label]
            lost += held[here] == 1 and wanted[here]
            gained += held[part] == 0 and wanted[part]
        if here == self.main:
            return lost, -gained
        return (-gained, lost) if part == self.main else (0, lost - gained)

    def move(self, document: int, part: int) -> None:
        """Move `document` to `part`."""
        here = self.place[document]
        self.place[document] = part
        for label in self.labels_of[document]:
            held = self.held[label]
            held[here] -= 1
            held[part] += 1
            self.missing.pop((label, part), None)
            if self.wanted[label][here] and not held[here]:
                self.missing[label, here] = None


def _only_gains(coverage: _Coverage, documents_of: Sequence[list[int]]) -> None:
    """Fill missing pairs by moves that leave fewer missing than before, until there is none."""
    gained = True
    while gained:
        gained = False
        for label, part in list(coverage.missing):
            if (label, part) not in coverage.missing:
                continue
            best = min(documents_of[label], key=lambda document: coverage.change(document, part))
            if coverage.change(best, part) < (0, 0):
                coverage.move(best, part)
                gained = True


def _search(coverage: _Coverage, documents_of: Sequence[list[int]], rng: random.Random) -> None:
    """Fill missing pairs one after the other, whatever that breaks, and go back to the best state seen.

    On the way the main part counts no more than others, or the search would never leave a state that has all
    labels there; what is best is decided by the main part first.
    """
    trail: list[tuple[int, int]] = []  # (document, where it came from)
    moved_at: dict[int, int] = {}
    cost = best_cost = (0, 0)  # relative to the start
    best_length = 0
    queue = deque(coverage.missing)
    for step in range(PATIENCE * len(queue) + 100):
        while queue and queue[0] not in coverage.missing:
            queue.popleft()
        if not queue:
            queue.extend(coverage.missing)
            if not queue:
                break
        label, part = queue.popleft()
        candidates = documents_of[label]
        if len(candidates) > CANDIDATES:
            candidates = rng.sample(candidates, CANDIDATES)
        if rng.random() < NOISE:
            document = rng.choice(candidates)
        else:  # of equally good ones, the one that has stayed longest
            document = min(candidates, key=lambda d: (sum(coverage.change(d, part)), moved_at.get(d, -1)))
        trail.append((document, coverage.place[document]))
        change = coverage.change(document, part)
        cost = (cost[0] + change[0], cost[1] + change[1])
        coverage.move(document, part)
        moved_at[document] = step
        if cost < best_cost:
            best_cost, best_length = cost, len(trail)
    for document, part in reversed(trail[best_length:]):
        coverage.move(document, part)
