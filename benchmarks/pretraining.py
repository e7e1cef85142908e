"""Contrastive pre-training against two other implementations in the same run: speed, memory, and loss error.

`BENCH_ENCODER` names the encoder for the losses on real data, where the packaged one is not installed.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from transformers import AutoModel, BertConfig, PreTrainedModel

from abalone import load_corpus
from abalone.config import Config, Precision
from abalone.data.batches import shuffled_batches
from abalone.data.tokens import TokenArray, tokenize
from abalone.encoder.fast.graph import own_stream
from abalone.encoder.feed import TokenFeed, make_batch, ready_batches
from abalone.encoder.load import load_encoder
from abalone.encoder.text_encoder import TextEncoder
from abalone.training.loop import Plan, parameter_groups
from abalone.training.objectives import Objective
from abalone.training.runtime import Runtime
from abalone.training.step import Step
from benchmarks.measure import Line, show
from benchmarks.plain import PlainPretraining, TunedPretraining, rectangle

MAX_LENGTH, BATCH, QUEUE, LABELS = 300, 32, 512, 54
PLAN = Plan(epochs=80, batch_size=BATCH, learning_rate=5e-5, head_learning_rate=5e-5, schedule="cosine")
SIZES: dict[str, dict[str, Any]] = {
    "base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "MiniLM-L6": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
}
PROMISED = {"base": "≥ 4.5×, 1,900/s", "MiniLM-L6": "≥ 8×"}
TUNED_PROMISED = {"base": "≥ 2×", "MiniLM-L6": "≥ 2×"}  # beside the best without kernels of our own
GRAIN = 64  # tuned: rectangles are a multiple of so many tokens long, so that few lengths are compiled
STEPS = 300  # over which losses are compared
Batches = list[np.ndarray]


def made_up_documents(documents: int, seed: int = 0) -> TokenFeed:
    """Return random ids with lengths like AAPD's (mean 215, cut at 300), and labels with a long tail."""
    random = np.random.default_rng(seed)
    lengths = np.clip(random.normal(217, 66, documents), 30, None).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = TokenArray(random.integers(1000, 30_000, offsets[-1]).astype(np.uint16), offsets, (101,), (102,))
    popularity = 1 / np.arange(1, LABELS + 1)
    labels = random.random((documents, LABELS)) < 2.4 * popularity / popularity.sum()
    return TokenFeed(tokens, csr_array(labels.astype(np.int32)), MAX_LENGTH)


def made_up_model(size: str, attention: str = "eager") -> PreTrainedModel:
    """Return a BERT of this size with random weights."""
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModel.from_config(
        BertConfig(**SIZES[size]), attn_implementation=attention, add_pooling_layer=False
    )
    return model


class Ours:
    """Our step over the batches of a feed."""

    def __init__(self, model: PreTrainedModel, feed: TokenFeed, precision: Precision = "auto") -> None:
        torch.manual_seed(1)
        self.feed, self.runtime = feed, Runtime.start("auto", precision)
        labels = feed.labels.shape[1]
        self.objective = Objective(TextEncoder(model, "cls"), labels, "msc", Config(queue_size=QUEUE))
        self.objective.to(self.runtime.device).train()
        self.step = Step(
            self.objective,
            parameter_groups(self.objective, PLAN),
            self.runtime,
            clip=PLAN.clip,
            batch_size=BATCH,
            lengths=feed.lengths,
        )

    def run(self, batches: Batches, after: Callable[[], object] = lambda: None) -> None:
        """Train on these batches, then synchronise."""
        with own_stream(self.runtime.device):
            for batch in ready_batches(self.feed, batches, self.runtime.device):
                self.step(batch, rate=1.0)
                after()
            self.step.read()

    def losses(self, batches: Batches) -> np.ndarray:
        """Return the loss of every batch."""
        sums = [0.0]
        self.step.begin(0, 0.0)
        self.run(batches, lambda: sums.append(self.step.read().loss_sum))
        return np.diff(sums) / BATCH

    def plainly(
        self, model: PreTrainedModel, precision: torch.dtype, kind: type[PlainPretraining] = PlainPretraining
    ) -> PlainPretraining:
        """Return a plain implementation with the same weights."""
        projection, prototypes = self.objective.projection, self.objective.prototypes
        assert projection is not None
        assert prototypes is not None
        torch.nn.Module.to(model, self.runtime.device)  # transformers gives its own `to` no usable type
        return kind(model.train(), projection, prototypes.weight, QUEUE, precision)


def plain_batches(
    feed: TokenFeed, batches: Batches, grain: int = MAX_LENGTH
) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Return ids, mask and labels of each batch, padded to a multiple of `grain` tokens, at most the full length."""
    made = []
    for rows in batches:
        documents = [feed.tokens.document(int(row), MAX_LENGTH) for row in rows]
        length = min(-(-max(map(len, documents)) // grain) * grain, MAX_LENGTH)
        made.append((*rectangle(documents, length, pad_id=0), make_batch(feed, rows).labels))
    return made


def speed(size: str, steps: int, plain_steps: int, warm_up: int) -> list[Line]:
    """Return documents per second after warm-up (ours: a pass over the same batches), and memory of the device."""
    on_gpu = torch.cuda.is_available()
    feed = made_up_documents((warm_up + steps) * BATCH)
    batches = shuffled_batches(len(feed), BATCH, seed=0, epoch=0)
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    ours = Ours(made_up_model(size), feed)
    ours.run(batches)  # once through: every graph is recorded
    start = time.perf_counter()
    ours.run(batches[warm_up:])
    fast = steps * BATCH / (time.perf_counter() - start)
    memory = torch.cuda.max_memory_reserved() / 2**30 if on_gpu else 0.0
    plain = ours.plainly(made_up_model(size), torch.float16 if on_gpu else torch.float32)
    del ours
    given = plain_batches(feed, batches[: warm_up + plain_steps])
    for batch in given[:warm_up]:
        plain.step(*batch)
    start = time.perf_counter()
    for batch in given[warm_up:]:
        plain.step(*batch)  # reads its loss, and so waits for the device
    slow = plain_steps * BATCH / (time.perf_counter() - start)
    del plain
    tuned = tuned_speed(size, feed, batches, warm_up) if on_gpu else tuned_speed(size, feed, batches[-2:], 1)
    promised, tuned_promised = (PROMISED[size], TUNED_PROMISED[size]) if on_gpu else ("", "")
    lines = [
        Line(f"{size}: documents a second", f"{slow:,.0f}", f"{fast:,.0f}", f"{fast / slow:.1f}×", promised),
        Line("  against tuned", f"{tuned:,.0f}", f"{fast:,.0f}", f"{fast / tuned:.1f}×", tuned_promised),
    ]
    if on_gpu:
        limit = "< 8 GiB" if size == "base" else ""
        lines.append(Line("  memory of the device", "", f"{memory:.1f} GiB", "", limit))
    return lines


def tuned_speed(size: str, feed: TokenFeed, batches: Batches, warm_up: int) -> float:
    """Return documents per second of the tuned implementation, once every length is compiled."""
    precision = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    tuned = Ours(made_up_model(size), feed).plainly(made_up_model(size, "sdpa"), precision, TunedPretraining)
    given = plain_batches(feed, batches, GRAIN)
    lengths = {batch[0].shape[1]: batch for batch in given}
    for batch in (*lengths.values(), *given[:warm_up]):
        tuned.step(*batch)
    measured = given[warm_up:]
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    for batch in measured:
        tuned.step(*batch)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return len(measured) * BATCH / (time.perf_counter() - start)


def agreement() -> list[Line]:
    """Return the loss error of two paths in bf16 against the plain one in fp32: real data, no dropout."""
    name = os.environ.get("BENCH_ENCODER", "all-MiniLM-L6-v2")
    corpus = load_corpus("arxiv-sample")

    def model() -> PreTrainedModel:
        encoder, _ = load_encoder(name, dropout=0.0)
        encoder.model.set_attn_implementation("eager")
        return encoder.model

    feed = TokenFeed(tokenize(corpus.train.texts, load_encoder(name)[1]), corpus.train.labels, MAX_LENGTH)
    epochs = (shuffled_batches(len(feed), BATCH, seed=0, epoch=epoch, drop_last=True) for epoch in range(2))
    batches = [batch for epoch in epochs for batch in epoch][:STEPS]
    given = plain_batches(feed, batches)
    losses = {}
    for what, precision in (("exact", torch.float32), ("plain", torch.bfloat16)):
        plain = Ours(model(), feed).plainly(model(), precision)
        losses[what] = np.array([plain.step(*batch) for batch in given])
    losses["ours"] = Ours(model(), feed, "bf16").losses(batches)
    theirs, mine = (float(np.abs(losses[what] - losses["exact"]).mean()) for what in ("plain", "ours"))
    first, last = losses["exact"][:20].mean(), losses["exact"][-20:].mean()
    what = f"losses of {STEPS} steps on real data ({first:.2f} → {last:.2f}): mean error of bf16"
    return [Line(what, f"{theirs:.2e}", f"{mine:.2e}", f"{mine / theirs:.2f}×", "≤ 1.5×")]


def main() -> None:
    if torch.cuda.is_available():
        where = torch.cuda.get_device_name()
        lines = [*speed("base", 400, 20, 20), *speed("MiniLM-L6", 600, 40, 20), *agreement()]
    else:
        where = "CPU, full precision against auto"
        lines = speed("MiniLM-L6", 3, 2, 1)
    show(
        f"Pre-training with L_MSC, batch {BATCH}, lengths like AAPD's, on {where}\n"
        "plain: padded to 300, eager attention, fp16 on a GPU, the momentum encoder parameter by parameter\n"
        "tuned: padded to the longest, SDPA, bf16, torch.compile, fused AdamW, the momentum encoder in one call",
        lines,
    )


if __name__ == "__main__":
    main()
