"""Repair of a split: move a few documents so that every part holds every label it can.

Whether all labels can be in all parts is a set-splitting problem, NP-hard in general, so this is a local search:
first only moves that gain (enough whenever a label has documents of its own to give), then, for the labels that
are left, a short search that also takes moves that lose and keeps the best state it saw.
"""

import random
from collections import deque
from collections.abc import Sequence

PATIENCE = 30  # search moves per missing pair; more than this finds next to nothing
CANDIDATES = 64  # documents looked at per search move, so that a frequent label does not cost its frequency
NOISE = 0.5  # chance of a random move, against going round in circles; less of it misses more labels


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

    The `main` part, if there is one, comes before the others: in the end it holds every label that has a document.

    Args:
        place: part of each document; changed in place.
        labels_of: labels of each document.
        documents_of: documents of each label.
        parts: number of parts.
        main: the part that has to hold every label; `None` where all parts are alike.
        rng: breaks ties.
    """
    coverage = _Coverage(place, labels_of, documents_of, parts, main)
    _only_gains(coverage, documents_of)
    if coverage.missing:
        _search(coverage, documents_of, rng)
        _only_gains(coverage, documents_of)  # the best state seen may lie in the middle of a repair


class _Coverage:
    """Which part holds which label how often, and the (label, part) pairs that are missing."""

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
        """How many more pairs are missing after moving `document` to `part`: in the main part, and in others."""
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
