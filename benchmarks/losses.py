"""Forward and backward pass of the losses over a large queue, against the similarity products alone."""

from functools import partial

import torch
from torch import Tensor, nn

from abalone.losses import loss_spec, make_loss
from benchmarks.measure import Line, best_seconds, extra_memory, show

BATCH, QUEUE, DIM, LABELS_PER_DOCUMENT = 256, 65_536, 256, 5
PROMISED = {128: "≤ 3×", 4096: "≤ 6×"}  # by number of labels


def draw_labels(rows: int, labels: int) -> Tensor:
    """Draw five labels per row (fewer where two are equal), the first labels far more often than the last."""
    columns = (labels * torch.rand(rows, LABELS_PER_DOCUMENT) ** 3).long()
    return torch.zeros(rows, labels, dtype=torch.bool).scatter_(1, columns, True)


def products(batch: Tensor, *others: Tensor) -> None:
    """Compute the similarities and their gradient: the minimum of every loss."""
    batch.grad = None
    for references in (batch, *others):
        similarities = references @ batch.T
        similarities.backward(torch.ones_like(similarities))


def step(loss: nn.Module, batch: Tensor, labels: Tensor, **references: object) -> None:
    batch.grad = None
    loss(batch, labels, **references).backward()


def lines_for(num_labels: int) -> list[Line]:
    batch, labels = torch.randn(BATCH, DIM, requires_grad=True), draw_labels(BATCH, num_labels)
    queue = torch.randn(QUEUE, DIM), draw_labels(QUEUE, num_labels)
    prototypes = torch.randn(num_labels, DIM, requires_grad=True)
    floats = BATCH * (QUEUE + num_labels) * 4  # bytes of B×(K+L) floats
    bare = partial(products, batch, queue[0], prototypes)
    lines = []
    for name in ("msc", "bqproto", "bqueue"):
        given = {"prototypes": prototypes} if loss_spec(name).prototypes else {}
        run = partial(step, make_loss(name), batch, labels, queue=queue, **given)
        plain, ours = best_seconds(bare, run)
        memory = extra_memory(run)
        times = f"{plain * 1e3:.0f} ms", f"{ours * 1e3:.0f} ms", f"{ours / plain:.2f}×"
        lines.append(Line(f"{name}, {num_labels:,} labels", *times, PROMISED[num_labels]))
        lines.append(
            Line("  peak, in B×(K+L) floats", "", f"{memory / 2**20:.0f} MiB", f"{memory / floats:.2f}", "≤ 4")
        )
    return lines


def main() -> None:
    torch.manual_seed(0)
    title = f"Losses over a queue of {QUEUE:,} (batch {BATCH}, dim {DIM}); plain = the similarity products alone"
    show(title, [line for num_labels in PROMISED for line in lines_for(num_labels)])


if __name__ == "__main__":
    main()
