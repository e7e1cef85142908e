"""An estimate of the time of a training: its work, planned in tokens, and a few batches measured beforehand."""

import copy
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from abalone.config import Config
from abalone.data.batches import shuffled_batches, token_budget_batches
from abalone.data.corpus import Corpus
from abalone.data.store import take
from abalone.device import cpu_has_bf16, reading_precision
from abalone.encoder.feed import CPU_TOKEN_BUDGET, FROZEN, Feed, FeedRows, FrozenFeed, embed, make_batch
from abalone.encoder.text_encoder import TextEncoder
from abalone.evaluation.crossfit_probe import CrossFitProbe
from abalone.evaluation.mixing import ENOUGH
from abalone.evaluation.tfidf import TermCounts
from abalone.losses import loss_spec
from abalone.progress import Timetable, as_parts_of, overall, spoken
from abalone.recipes import recipe
from abalone.training.folds import Fold
from abalone.training.loop import parameter_groups, validation_of
from abalone.training.objectives import Objective
from abalone.training.open_settings import HELD_OUT, settled, trained_shares
from abalone.training.progress import WARM_UP, RunProgress
from abalone.training.run import TrainingRun
from abalone.training.stages import CANDIDATES, FITTING, PROBE, STAGE
from abalone.training.step import Step
from abalone.training.words import COUNTED, FITTED

DECISION = "decision"  # a kind of work; others are named where they are done
LONG = 30 * 60.0  # seconds on a CPU that a person should know of beforehand

TRAINING = 3.0  # times the cost of reading: forward once, backward twice
SAMPLED = 1 / 10  # of the work, at most, that is measured beforehand
BATCHES = 3  # measured of each kind

READ = "read"  # the kind of work that is tokens × layers, forward

# Seconds on one core of an AMD EPYC of 2024, quiet: `python -m benchmarks.times` tells whether they hold elsewhere.
A_TOKEN = 4e-5  # through a layer of width 384, for the guess until something is measured
GPU_TOKEN = 2e-8  # the same on an H200
COUNTED_CHARACTER = 3.8e-7  # counting words and pieces of words
FITTED_CHARACTER = 1.9e-8  # fitting tf-idf + SVM, by label
PARALLEL = 5e7  # characters × labels: fewer are fitted in one process
PROBE_STEP, PROBED_FEATURE = 4e-4, 3.9e-8  # a step of cross-fitted probes, and by label and width
GRID_FEATURE = 7.6e-8  # probes with every setting of the paper, by document, label and width
AN_EXPERT, DECIDED_PAIR = 0.25, 1.1e-5  # the decision, for each expert: as such, and by document and label
SAMPLE = 200  # documents whose words are counted to see how fast the processor is


def measure_slowness(corpus: Corpus, clock: Callable[[], float] = time.monotonic) -> float:
    """Return how slow this processor is beside the one that the constants are from, busy neighbours included.

    Not by what the encoder takes: a processor with bf16 reads twice as fast, and fits no faster.
    """
    documents = len(corpus.train)
    rows = np.arange(0, documents, max(documents // SAMPLE, 1))
    texts = take(corpus.train.texts, rows)
    TermCounts.of(texts[:5], min_df=1, with_pieces=True)  # the first time is not typical
    before = clock()
    TermCounts.of(texts, min_df=1, with_pieces=True)
    characters = sum(map(len, texts))
    return (clock() - before) / (COUNTED_CHARACTER * characters) if characters else 1.0


@dataclass(frozen=True)
class Costs:
    """Seconds that parts of the work take here.

    Args:
        token: a token through a layer, forward.
        measured: whether that was, rather than guessed.
        slowness: of one core, as `measure_slowness` tells.
        cores: that share work which can be shared.
        on_cpu: whether the probes are fitted by the processor too.
        width: of the encoder.
        characters: of the mean document.
    """

    token: float
    measured: bool
    slowness: float
    cores: int
    on_cpu: bool
    width: int
    characters: float

    @classmethod
    def here(
        cls, timetable: Timetable, corpus: Corpus, encoder: TextEncoder, device: torch.device, slowness: float
    ) -> "Costs":
        """Take what was measured, and guess the rest."""
        on_cpu, width = device.type == "cpu", encoder.hidden_size
        guess = (A_TOKEN if on_cpu else GPU_TOKEN) * (width / 384) ** 2
        token = timetable.cost(READ, guess)
        documents = len(corpus.train)
        looked_at = range(0, documents, max(documents // 1000, 1))
        mean = sum(len(corpus.train.texts[row]) for row in looked_at) / max(len(looked_at), 1)
        return cls(token, token != guess, slowness, torch.get_num_threads(), on_cpu, width, mean)

    @property
    def counted(self) -> float:
        """Return the seconds of counting the words of a document, in one thread."""
        return self.slowness * COUNTED_CHARACTER * self.characters

    def words(self, corpus: Corpus) -> float:
        """Return the seconds of fitting a tf-idf expert, for each document."""
        labels, characters = len(corpus.label_names), self.characters * len(corpus.train)
        cores = self.cores if characters * labels > PARALLEL else 1
        return self.slowness * FITTED_CHARACTER * labels * self.characters / cores

    def grid_probe(self, corpus: Corpus) -> float:
        """Return the seconds of fitting the probes of the paper once, with every setting."""
        pairs = len(corpus.train) * len(corpus.label_names)
        return self._shared(GRID_FEATURE * pairs * self.width)

    def probe(self, corpus: Corpus, folds: int) -> float:
        """Return the seconds of fitting cross-fitted probes to one fold, with one of their settings."""
        probe = CrossFitProbe()
        documents = len(corpus.train) * (1 - (HELD_OUT if folds < 2 else 1 / folds))
        steps = max(probe.epochs * documents / probe.batch_size, probe.least_steps)
        a_step = PROBE_STEP + PROBED_FEATURE * len(corpus.label_names) * self.width
        return self._shared(steps * a_step) / len(probe.settings)

    def decision(self, corpus: Corpus, documents: float, experts: int) -> float:
        """Return the seconds of fitting weights, temperatures and thresholds to so many documents."""
        pairs = min(documents * len(corpus.label_names), ENOUGH)
        return self.slowness * max(experts, 0.5) * (AN_EXPERT + DECIDED_PAIR * pairs)

    def fast(self, run: TrainingRun, corpus: Corpus, depth: int) -> float:
        """Return the seconds of the recipe `fast`: it reads the first tokens of each document, and fits the rest."""
        settings = recipe("fast")
        documents = len(corpus.train) + len(corpus.validation)
        folds = settled(settings, documents, on_cpu=self.on_cpu).folds or 0
        lengths = [feed.lengths for feed in (run.train, run.validation) if feed is not None]
        tokens = float(np.minimum(np.concatenate(lengths), settings.max_length).sum())
        words = documents * (self.counted + trained_shares(folds) * self.words(corpus))
        probes = (folds * len(CrossFitProbe().settings) + 1) * self.probe(corpus, folds)
        return tokens * depth * self.token + words + probes + self.decision(corpus, documents, 1)

    def _shared(self, seconds: float) -> float:
        """Return the seconds of work with matrices, which all cores or the GPU do."""
        return self.slowness * seconds / self.cores if self.on_cpu else seconds / 100


@dataclass(frozen=True)
class Estimate:
    """The time that a run will take, before it begins.

    Args:
        seconds: of the whole run from here on.
        device: as a person knows it, "2 CPU cores" or "NVIDIA H200".
        gpu: whether that is one.
        trains: whether the encoder is trained, rather than taken as it is.
        fast_seconds: of the recipe `fast` on the same documents.
    """

    seconds: float
    device: str
    gpu: bool
    trains: bool
    fast_seconds: float

    @property
    def long(self) -> bool:
        """Return whether a person should think of the recipe `fast`."""
        return not self.gpu and self.trains and self.seconds > LONG and self.fast_seconds < self.seconds / 2

    def advice(self, fast: str = "recipe='fast'") -> str:
        """Say what to expect and what is faster; `fast` is how that is asked for."""
        found = "No GPU is used" if torch.cuda.is_available() else "No GPU found"
        return (
            f"{found}: training takes about {spoken(self.seconds)} on {self.device}; "
            f"{fast} takes about {spoken(self.fast_seconds)}"
        )


OnEstimate = Callable[[Estimate], None]


def warn_if_long(estimate: Estimate) -> None:
    """Warn before hours of work on a CPU."""
    if estimate.long:
        warnings.warn(estimate.advice(), stacklevel=2)


@contextmanager
def timed(
    run: TrainingRun,
    corpus: Corpus,
    encoder: TextEncoder,
    parts: tuple[TextEncoder, TextEncoder] | None,
    on_estimate: OnEstimate | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Show the progress of the run that is done meanwhile, and tell beforehand how long it will take.

    On a CPU a few batches are measured, on copies and with random numbers of their own, so that the run itself is the
    same to the last bit. A GPU would have to compile first: there the first batches of the run are measured. So it is
    for several processes, and a run that goes on, of which only its checkpoint knows what is left.

    Args:
        run: its settings, documents and device.
        corpus: where the documents are from.
        encoder: the whole of it.
        parts: the frozen and the trained layers, if any are frozen.
        on_estimate: told the estimate, where there is one beforehand; may raise to stop the run.
        clock: seconds from any start.
    """
    device = run.runtime.device
    on_cpu = device.type == "cpu"
    if on_cpu and run.config.precision == "bf16" and not cpu_has_bf16():
        warnings.warn(
            "this processor has no bf16 arithmetic and emulates it, ten times slower than fp32: "
            "leave precision at auto, which takes bf16 where it is faster",
            stacklevel=4,
        )
    timetable = Timetable(clock)
    frozen = 0 if parts is None else parts[0].depth
    if on_cpu and run.ranks.count == 1:
        _measure(timetable, run, encoder, parts, clock)
    costs = Costs.here(timetable, corpus, encoder, device, measure_slowness(corpus, clock))
    _plan(timetable, run, corpus, encoder.depth, frozen, costs)
    name = _device_name(device)
    known = timetable.measured and not run.resume
    if known and on_estimate is not None:
        fast = costs.fast(run, corpus, encoder.depth)
        on_estimate(Estimate(timetable.left, name, not on_cpu, bool(run.config.epochs), fast))
    display = RunProgress(timetable, f"Training on {name}", told=known, warm_up=0 if on_cpu else WARM_UP)
    with display, as_parts_of(display):
        yield


def _plan(timetable: Timetable, run: TrainingRun, corpus: Corpus, depth: int, frozen: int, costs: Costs) -> None:
    """Put the work of all stages on the timetable: tokens to train on, and tokens × layers to read."""
    config, folds = run.config, run.config.folds or 0
    every, of_names = float(run.train.lengths.sum()), float(run.train.lengths[len(corpus.train) :].sum())
    train = every - of_names
    validation = 0.0 if run.validation is None else float(run.validation.lengths.sum())
    held_out = {0: validation, 1: HELD_OUT * train}.get(folds, train)  # tokens that the decision is fitted to
    shares, trainings, trained = trained_shares(folds), folds + 1, depth - frozen
    taught = shares * train + trainings * of_names  # tokens: of label names in every training

    def read(kind: str, tokens: float, layers: int) -> None:
        timetable.plan(kind, tokens * layers, costs.token)
        if costs.measured:
            timetable.measure(kind, 1, costs.token)  # it is the same work; what is measured later outweighs it

    def probe(times: float) -> None:
        read(PROBE, times * (every + validation), trained)
        timetable.plan(FITTING, times, costs.grid_probe(corpus))

    if frozen:
        read(FROZEN, every + validation, frozen)
    for stage, epochs in stages_of(config).items():
        timetable.plan(stage, epochs * taught, TRAINING * trained * costs.token)
        read(validation_of(stage), epochs * validation, trained)
    probed = config.epochs == 0 or (STAGE in stages_of(config) and config.classifier == "probe")
    if probed and folds:
        timetable.plan(FITTING, folds * len(CrossFitProbe().settings) + 1, costs.probe(corpus, folds))
    elif probed:
        probe(1 if config.epochs == 0 else min(len(CANDIDATES), config.epochs or 0))
    if folds and config.epochs == 0:
        read(READ, every, depth)  # once for all folds
    elif folds:
        read(READ, held_out + (taught if config.neighbours or probed else 0), depth)
    else:
        read(READ, held_out + (train if config.neighbours else 0), depth)
    if config.lexical:
        timetable.plan(COUNTED, len(run.train), costs.counted)
        names = len(run.train) - len(corpus.train)
        timetable.plan(FITTED, shares * len(corpus.train) + trainings * names, costs.words(corpus))
    documents = held_out / max(train / len(corpus.train), 1)
    timetable.plan(DECISION, 1, costs.decision(corpus, documents, config.lexical + config.neighbours))


def stages_of(config: Config) -> dict[str, int]:
    """Return the stages of a training, and the epochs of each."""
    spec, epochs = loss_spec(config.objective), config.epochs or 0
    if epochs == 0:
        return {}
    if spec.joint or spec.takes == "logits":
        return {"training": epochs}
    return {STAGE: epochs} | ({"finetuning": config.finetune_epochs} if config.classifier == "finetune" else {})


def skip_fold(run: TrainingRun, fold: Fold, depth: int) -> None:
    """Take the work of a fold off the estimate, since an earlier attempt has done it."""
    trained, asked = (float(run.train.lengths[rows].sum()) for rows in (fold.taught, fold.held_out))
    for stage, epochs in stages_of(run.config).items():
        overall().skip(stage, epochs * trained)
    overall().skip(READ, depth * (asked + (trained if run.config.neighbours else 0)))
    overall().skip(FITTED, len(fold.taught))
    overall().skip(FITTING, len(CrossFitProbe().settings))


def _measure(
    timetable: Timetable,
    run: TrainingRun,
    encoder: TextEncoder,
    parts: tuple[TextEncoder, TextEncoder] | None,
    clock: Callable[[], float],
) -> None:
    """Read and train on a few batches, and leave everything as it was; nothing where they would be much of the work."""
    config, device, feed = run.config, run.runtime.device, run.train
    epochs = config.epochs or 0
    half = reading_precision(config.precision)
    lengths = token_budget_batches(feed.lengths, CPU_TOKEN_BUDGET)
    count = min(BATCHES, int(len(lengths) * SAMPLED * max(1, TRAINING * epochs)))
    if count:
        chosen = [lengths[(2 * i + 1) * len(lengths) // (2 * count)] for i in range(count)]  # of all lengths
        embed(encoder, FeedRows(feed, chosen[0][:4]), device, precision=half)  # the first time is not typical
        for rows in chosen:
            before = clock()
            embed(encoder, FeedRows(feed, rows), device, precision=half)
            timetable.measure(READ, encoder.depth * int(feed.lengths[rows].sum()), clock() - before)
    batches = shuffled_batches(len(feed), config.batch_size, seed=config.seed, epoch=0)
    count = min(BATCHES, int(epochs * len(batches) * SAMPLED) - 1)
    if count < 1:
        return
    rows = np.concatenate(batches[: count + 1])
    with torch.random.fork_rng([]):
        sample: Feed = FeedRows(feed, rows)
        lower, trained = (None, encoder) if parts is None else parts
        if lower is not None:
            before = clock()
            with run.runtime.autocast():
                sample = FrozenFeed(sample, lower, device)
            timetable.measure(FROZEN, lower.depth * int(sample.lengths.sum()), clock() - before)
        objective = Objective(
            copy.deepcopy(trained), feed.labels.shape[1], config.objective, config, labels=feed.labels
        )
        plan = run.plan(objective)
        groups = parameter_groups(objective, plan)
        size = config.batch_size
        step = Step(objective, groups, run.runtime, clip=plan.clip, batch_size=size, lengths=sample.lengths)
        objective.train()
        stage = STAGE if objective.head is None else "training"
        for number in range(count + 1):
            part = number % len(batches)  # a few documents may be a batch or two, for many epochs
            own = np.arange(part * size, min((part + 1) * size, len(rows)))
            before = clock()
            step(make_batch(sample, own), 1.0)
            if number:  # the first time is not typical
                timetable.measure(stage, int(sample.lengths[own].sum()), clock() - before)
    run.runtime.free_memory()  # of the copy that was trained


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return f"the GPU ({device.type})"
    cores = torch.get_num_threads()
    return f"{cores} CPU core{'s' * (cores != 1)}"
