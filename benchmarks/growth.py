"""Growth of the cost with documents, labels, queue, length and processes: a table, and the figure of performance.md.

Processor time of one thread, the shortest of some runs, so that a busy machine draws the same picture; for several
processes, which wait for each other, time on the clock, and as many of them as there are cores. Not part of
`make bench`: it writes into the documentation.
"""

import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertModel

from abalone.config import Config
from abalone.data.tokens import TokenArray
from abalone.distributed import ALONE, Ranks
from abalone.encoder.fast.optimizer import FusedAdamW
from abalone.encoder.feed import TokenFeed, embed, make_batch, unlabelled
from abalone.encoder.text_encoder import TextEncoder
from abalone.training.objectives import Objective
from abalone.training.runtime import Runtime
from benchmarks.measure import Line, show
from benchmarks.tiny import long_tailed_labels

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "growth.png"
CPU = torch.device("cpu")
WIDTH, LAYERS, VOCABULARY, BATCH, TOKENS = 128, 2, 1000, 32, 64
REPEAT = 5
Y_TICKS = (10, 30, 100, 300, 1000, 3000)  # milliseconds


@dataclass(frozen=True)
class Panel:
    """One of the curves.

    Args:
        title: what grows, and what is timed.
        sizes: how large it is.
        cost: seconds at a size.
        shared: whether the work is divided by the size.
    """

    title: str
    sizes: tuple[int, ...]
    cost: Callable[[int], float]
    shared: bool = False

    def proportion(self, size: int) -> float:
        """Return the cost at `size` relative to the first size, if nothing but the work counted."""
        return self.sizes[0] / size if self.shared else size / self.sizes[0]


def _shortest(run: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    best = float("inf")
    for _ in range(REPEAT):
        start = clock()
        run()
        best = min(best, clock() - start)
    return best


def encoder() -> TextEncoder:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=4 * WIDTH,
    )
    return TextEncoder(BertModel(config, add_pooling_layer=False))


def tokens(documents: int, length: int = TOKENS) -> TokenArray:
    ids = np.random.default_rng(0).integers(VOCABULARY, size=documents * (length - 2)).astype(np.uint16)
    return TokenArray(ids, np.arange(documents + 1) * (length - 2), (2,), (3,))


def encoding(documents: int) -> float:
    model, feed = encoder(), TokenFeed(tokens(documents), unlabelled(documents), TOKENS)
    return _shortest(lambda: embed(model, feed, CPU))


def step(labels: int = 100, queue: int = 512, length: int = TOKENS, ranks: Ranks = ALONE) -> float:
    """Run one step of L_MSC with a full queue, and the update."""
    config = Config(queue_size=queue, max_length=512)
    objective = Objective(encoder(), labels, "msc", config, ranks)
    groups = [{"params": [parameter for parameter in objective.parameters() if parameter.requires_grad], "lr": 1e-3}]
    optimizer = FusedAdamW(
        groups, clip=1.0, encoder=objective.encoder, average=objective.slow, followed=objective.followed
    )
    feed = TokenFeed(tokens(BATCH, length), long_tailed_labels(BATCH, labels), 512)
    batch = make_batch(feed, np.arange(BATCH), ranks)
    assert objective.queue is not None
    remembered = torch.from_numpy(long_tailed_labels(queue, labels, seed=1).toarray().astype(bool))
    objective.queue.enqueue(torch.randn(queue, config.projection_dim), remembered)

    def run() -> None:
        optimizer.zero_grad()
        keys = objective.keys(batch)
        objective(batch).backward()
        objective.enqueue(keys, batch)
        ranks.average_gradients(list(objective.parameters()))
        optimizer.step()

    return _shortest(run, time.process_time if ranks.count == 1 else time.perf_counter)


def shared_step(processes: int) -> float:
    """Run one step with a batch that several processes share."""
    if processes == 1:
        return step()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    costs = context.SimpleQueue()
    started = [context.Process(target=_one_of, args=(index, processes, port, costs)) for index in range(processes)]
    for process in started:
        process.start()
    found: float = max(costs.get() for _ in started)
    for process in started:
        process.join()
    return found


def _one_of(index: int, processes: int, port: int, costs: Any) -> None:
    names = {"RANK": index, "LOCAL_RANK": index, "WORLD_SIZE": processes, "MASTER_PORT": port}
    os.environ.update({"MASTER_ADDR": "127.0.0.1"} | {name: str(value) for name, value in names.items()})
    torch.set_num_threads(1)
    costs.put(step(ranks=Runtime.start("cpu", "fp32").ranks))


PROCESSES = tuple(count for count in (1, 2, 4, 8, 16) if count <= (os.cpu_count() or 1))
PANELS = (
    Panel("documents: encoding all", (250, 500, 1000, 2000, 4000), encoding),
    Panel("labels: one step", (100, 500, 2_500, 12_500, 50_000), lambda labels: step(labels=labels)),
    Panel("queue: one step", (128, 512, 2048, 8192, 32_768), lambda queue: step(queue=queue)),
    Panel("tokens: one step", (32, 64, 128, 256, 512), lambda length: step(length=length)),
    Panel("processes: one step", PROCESSES, shared_step, shared=True),
)


def draw(costs: list[list[float]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 2.9), layout="constrained")
    for axes, panel, seconds in zip(figure.subplots(1, len(PANELS)), PANELS, costs, strict=True):
        axes.loglog(panel.sizes, [1000 * s for s in seconds], marker="o", label="measured")
        expected = [1000 * seconds[0] * panel.proportion(size) for size in panel.sizes]
        axes.loglog(panel.sizes, expected, ls=":", color="grey", label="in proportion")
        axes.set_title(panel.title, fontsize=10)
        axes.set_xticks(panel.sizes, [f"{size:,}" for size in panel.sizes], rotation=40, fontsize=8)
        axes.set_ylim(8, 5000)  # the same for all, so that they can be compared
        axes.set_yticks(Y_TICKS, [f"{tick:,}" for tick in Y_TICKS], fontsize=8)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("milliseconds")
    figure.axes[0].legend(fontsize=8)
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that are started
    torch.set_num_threads(1)
    costs = [[panel.cost(size) for size in panel.sizes] for panel in PANELS]
    draw(costs)
    lines = []
    for panel, seconds in zip(PANELS, costs, strict=True):
        more, dearer = panel.sizes[-1] / panel.sizes[0], seconds[-1] / seconds[0]
        what = f"{panel.title}, {panel.sizes[0]:,} → {panel.sizes[-1]:,} ({more:.0f}×)"
        lines.append(Line(what, f"{1000 * seconds[0]:.0f} ms", f"{1000 * seconds[-1]:.0f} ms", f"{dearer:.1f}×"))
    shape = f"{LAYERS} layers {WIDTH} wide, batch {BATCH}, {TOKENS} tokens, 100 labels, queue 512 unless said"
    show(f"How the cost grows: {shape}; plain = the smallest\npicture: docs/images/{PICTURE.name}", lines)


if __name__ == "__main__":
    main()
