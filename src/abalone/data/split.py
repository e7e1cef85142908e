"""Stratified splits and folds of multi-label documents, in which groups such as copies of a text stay together.

Iterative stratification after K. Sechidis, G. Tsoumakas and I. Vlahavas, "On the Stratification of Multi-label
Data", ECML PKDD 2011: the rarest label is dealt out first, each document to the part that lacks that label most.
A group is dealt out like one document that counts several times.
"""

import heapq
import random
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csc_array, csr_array

from abalone.data.coverage import cover_labels


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
        raise ValueError(f"shares must be positive, got {tuple(shares)}")
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
        raise ValueError(f"the share to hold out must lie in (0, 0.5], got {share}")
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
        raise ValueError(f"folds must be at least 2, got {folds}")
    rng = random.Random(seed)
    bundles = _Bundles(labels, groups, rng)
    if folds > len(bundles.sizes):
        what = "documents" if groups is None else "distinct documents"
        raise ValueError(f"{folds} folds need at least as many {what}, and there are {len(bundles.sizes)}")
    place = _deal(bundles, [1 / folds] * folds, rng)
    cover_labels(place, bundles.labels_of, bundles.bundles_of, parts=folds, main=None, rng=rng)
    return bundles.spread(place)


def exact_split(labels: csr_array, shares: Sequence[float], seed: int) -> list[np.ndarray]:
    """An iterative stratified split whose parts have the sizes that tables quote, not about those sizes.

    What stratification leaves over goes from the parts that are too large to those too small: the documents
    whose rarest label is the most frequent, so that no tail label moves, and never the last document that a part has
    of a label. That comes before the size: where every document to spare is such a last one, parts stay as they are.

    Args:
        labels: 0/1, [documents, labels].
        shares: relative size of each part; the first takes what rounding leaves.
        seed: the same seed gives the same split.

    Returns:
        The sorted document indices of each part.
    """
    documents, per_document = labels.shape[0], np.diff(labels.indptr)
    sizes = [round(documents * share / sum(shares)) for share in shares]
    sizes[0] += documents - sum(sizes)
    part_of = np.empty(documents, dtype=np.int64)
    for part, rows in enumerate(iterative_split(labels, shares, seed)):
        part_of[rows] = part
    held = np.stack([labels[part_of == part].sum(axis=0) for part in range(len(shares))])  # [parts, L]
    surplus = np.bincount(part_of, minlength=len(shares)) - sizes
    rarest = np.full(documents, documents)  # frequency of each document's rarest label
    labelled = np.flatnonzero(per_document)
    if labelled.size:
        frequency = labels.sum(axis=0)[labels.indices]
        rarest[labelled] = np.minimum.reduceat(frequency, labels.indptr[labelled])
    shuffled = np.random.default_rng(seed).permutation(documents)
    for document in shuffled[np.argsort(-rarest[shuffled], kind="stable")]:
        if not surplus.any():
            break
        giver, taker = part_of[document], int(surplus.argmin())
        carried = labels.indices[labels.indptr[document] : labels.indptr[document + 1]]
        if surplus[giver] > 0 and (held[giver, carried] > 1).all():
            part_of[document] = taker
            held[giver, carried] -= 1
            held[taker, carried] += 1
            surplus[giver] -= 1
            surplus[taker] += 1
    return [np.flatnonzero(part_of == part) for part in range(len(shares))]


def lacking(labels: csr_array, parts: Sequence[np.ndarray], groups: np.ndarray | None = None) -> list[np.ndarray]:
    """For each part, the labels it lacks though they have at least one document, or group, for every part."""
    present = _present(labels)
    held = np.stack([present[rows].sum(axis=0) for rows in parts])  # [parts, L]
    enough = carrying_groups(labels, groups) >= len(parts)  # [L]
    return [np.flatnonzero(enough & (count == 0)) for count in held]


def carrying_groups(labels: csr_array, groups: np.ndarray | None) -> np.ndarray:
    """Count the groups, by default of one document each, in which each label occurs, [L]."""
    return np.bincount(_by_group(labels, groups).indices, minlength=labels.shape[1])


def numbered(groups: np.ndarray) -> np.ndarray:
    """[documents], the groups numbered from 0 as they first appear: groups of one are numbered as documents are."""
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[group]


class _Bundles:
    """What is dealt out: documents, or groups of them, in random order, those of many documents first.

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
        """The part of each document, in the order of the file, from the part of each bundle."""
        part_of = np.empty(len(self._order), dtype=np.int64)
        part_of[self._order] = place
        return part_of[self._numbers]


def _by_group(labels: csr_array, groups: np.ndarray | None) -> csr_array:
    """How many documents of each group carry each label, [groups, L]; groups are numbered from 0."""
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
    """The part of each bundle, by iterative stratification."""
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
    """How many documents of a label, which are in `holders` bundles, each part wants.

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
    """Ones where `labels` has anything but an explicit zero."""
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
