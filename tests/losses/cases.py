"""Batches to try losses on: random sizes, and the awkward ones by name."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Case:
    """What a contrastive loss is given."""

    embeddings: Tensor
    labels: Tensor
    queue: tuple[Tensor, Tensor] | None = None
    prototypes: Tensor | None = None

    def references(self, *, prototypes: bool = True) -> dict:
        given = {} if self.queue is None else {"queue": self.queue}
        return given if self.prototypes is None or not prototypes else {**given, "prototypes": self.prototypes}


def sets(labels: Tensor) -> list[set[int]]:
    return [set(row.nonzero().flatten().tolist()) for row in labels]


def make(
    *,
    seed: int = 0,
    batch: int = 6,
    queue: int = 9,
    dim: int = 5,
    labels: int = 4,
    prototypes: bool = True,
    p: float = 0.4,
) -> Case:
    g = torch.Generator().manual_seed(seed)

    def vectors(n: int) -> Tensor:
        return torch.randn(n, dim, generator=g, dtype=torch.float64)

    def label_rows(n: int) -> Tensor:
        return (torch.rand(n, labels, generator=g) < p).long()

    return Case(
        vectors(batch),
        label_rows(batch),
        (vectors(queue), label_rows(queue)) if queue else None,
        vectors(labels) if prototypes else None,
    )


def awkward() -> dict[str, Case]:
    cases = {
        "full": make(),
        "no queue": make(queue=0),
        "no prototypes": make(prototypes=False),
        "batch alone": make(queue=0, prototypes=False),
        "one document": make(batch=1),
        "one document alone": make(batch=1, queue=0, prototypes=False),
        "one label": make(labels=1),
        "many labels": make(labels=40, p=0.1),
    }
    unlabelled = make(seed=1)
    unlabelled.labels[:3] = 0
    unlabelled.queue[1][::2] = 0
    cases["documents without labels"] = unlabelled
    nothing = make(seed=2)
    nothing.labels[:] = 0
    cases["no labels at all"] = nothing
    lonely = make(seed=3, batch=4, queue=3, prototypes=False)
    lonely.labels[:] = torch.eye(4, dtype=torch.long)
    lonely.queue[1][:] = 0
    cases["anchors without positives"] = lonely
    twins = make(seed=4)
    twins.embeddings[:] = twins.embeddings[0]
    twins.labels[:] = twins.labels[0]
    twins.queue[0][:] = twins.embeddings[0]
    cases["identical documents"] = twins
    everywhere = make(seed=5)
    everywhere.labels[:, 0] = 1
    everywhere.queue[1][:, 0] = 1
    cases["a label on every document"] = everywhere
    zero = make(seed=6)
    zero.embeddings[0] = 0
    cases["a zero embedding"] = zero
    return cases
