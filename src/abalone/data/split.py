"""Stratified splits of multi-label documents.

Iterative stratification after K. Sechidis, G. Tsoumakas and I. Vlahavas, "On the Stratification of Multi-label
Data", ECML PKDD 2011: the rarest label is dealt out first, each document to the part that lacks that label most.
"""

import heapq
import random
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csc_array, csr_array

from abalone.data.coverage import cover_labels


def iterative_split(labels: csr_array, shares: Sequence[float], seed: int) -> list[np.ndarray]:
    """Split documents into parts with the same mix of labels.

    A label with at least as many documents as there are parts is put into every part wherever the label sets
    allow it (`lacking` names the exceptions). The part with the largest share, the training part, comes first:
    it holds every label that has a document at all.

    Args:
        labels: 0/1, [documents, labels].
        shares: relative size of each part, for example `(0.8, 0.1, 0.1)`.
        seed: the same seed gives the same split.

    Returns:
        The sorted document indices of each part.
    """
    if not shares or min(shares) <= 0:
        raise ValueError(f"shares must be positive, got {tuple(shares)}")
    fractions = [share / sum(shares) for share in shares]
    rng = random.Random(seed)
    order = list(range(labels.shape[0]))
    rng.shuffle(order)
    # Shuffled once here, so that nothing below depends on the order of the file.
    shuffled = _present(labels)[order]  # [n, L]
    labels_of, documents_of = _Rows(shuffled), _Rows(csc_array(shuffled))
    place = _deal(labels_of, documents_of, fractions, rng)
    cover_labels(place, labels_of, documents_of, parts=len(fractions), main=_largest(fractions), rng=rng)
    part_of = np.empty(len(order), dtype=np.int64)
    part_of[order] = place
    return [np.flatnonzero(part_of == part) for part in range(len(fractions))]


def stratified_holdout(labels: csr_array, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split a stratified `share` off; every label keeps a training document wherever it has a document.

    Args:
        labels: 0/1, [documents, labels].
        share: part of the documents to hold out, at most a half.
        seed: the same seed gives the same split.

    Returns:
        The sorted indices of the documents kept, and of those held out.
    """
    if not 0 < share <= 0.5:
        raise ValueError(f"the share to hold out must lie in (0, 0.5], got {share}")
    kept, held_out = iterative_split(labels, (1 - share, share), seed)
    return kept, held_out


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


def lacking(labels: csr_array, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """For each part, the labels it lacks though they have at least one document for every part."""
    present = _present(labels)
    held = np.stack([present[rows].sum(axis=0) for rows in parts])  # [parts, L]
    enough = held.sum(axis=0) >= len(parts)  # [L]
    return [np.flatnonzero(enough & (count == 0)) for count in held]


def _deal(
    labels_of: Sequence[list[int]], documents_of: Sequence[list[int]], fractions: list[float], rng: random.Random
) -> list[int]:
    """The part of each document, by iterative stratification."""
    main = _largest(fractions)
    room = [fraction * len(labels_of) for fraction in fractions]  # documents each part still wants
    wanted = [_wishes(len(documents), fractions, main) for documents in documents_of]  # [L, parts]
    left = [len(documents) for documents in documents_of]  # documents of each label not dealt yet
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
        for document in documents_of[label]:
            if place[document] >= 0:
                continue
            part = place[document] = neediest(wanted[label])
            room[part] -= 1
            carried = labels_of[document]
            for other in carried:
                wanted[other][part] -= 1
                left[other] -= 1
            changed.update(carried)
        for other in changed:
            if left[other]:
                heapq.heappush(heap, (left[other], tie[other], other))
    for document, part in enumerate(place):
        if part < 0:  # no label: it goes where there is room
            place[document] = part = neediest(room)
            room[part] -= 1
    return place


def _wishes(documents: int, fractions: list[float], main: int) -> list[float]:
    """How many documents of a label each part wants.

    The paper's wish is the fraction itself, which leaves a label of three documents in training alone. At least
    one a part costs training little and lets the parts of later, more frequent labels make up for the sizes.
    """
    wishes = [fraction * documents for fraction in fractions]
    if documents >= len(fractions):
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
    """The non-zero positions along each row (CSR) or column (CSC).

    Plain lists, for the loops are per element, but made as they are asked for: all at once they would take some
    hundred bytes a document.
    """

    def __init__(self, matrix: csr_array | csc_array) -> None:
        self._indices, self._bounds = matrix.indices, matrix.indptr.tolist()

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, row: int) -> list[int]:  # type: ignore[override]  # nobody asks for a slice
        positions: list[int] = self._indices[self._bounds[row] : self._bounds[row + 1]].tolist()
        return positions
