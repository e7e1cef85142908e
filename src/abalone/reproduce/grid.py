"""From a table to its runs: the paper's grid, a smaller one where asked for, and the choice among settings."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from statistics import fmean
from typing import Any, Protocol

from abalone.config import NO_ENCODER, Config
from abalone.errors import InputError
from abalone.reproduce.rows import LEXICAL, ROWS, Experiment, Row

TEMPERATURE = 0.1  # of everything but the ablation: the paper's best
UNTRAINED = ("lexical", "frozen")  # kinds of rows that nothing of the grid but the seed concerns


@dataclass(frozen=True)
class Grid:
    """What is tried. The defaults are the paper's; `caption` says where another differs."""

    seeds: tuple[int, ...] = (0, 1, 2)
    temperatures: tuple[float, ...] = (0.07, 0.1, 0.2)  # of the ablation
    learning_rates: tuple[float, ...] = (5e-5, 2e-5)  # of the encoder; the ablation takes the first
    epochs: int = 80  # contrastive; no other stage gets more
    baseline_epochs: tuple[int, ...] = (10, 40, 80)
    finetune_epochs: tuple[int, ...] = (5, 10)

    def __post_init__(self) -> None:
        for entry in fields(self):
            values = getattr(self, entry.name)
            if entry.name == "epochs":
                values = (values,)
            if not values or len(set(values)) < len(values):
                raise InputError(f"{entry.name} must be different values, one at least, got {values}")
            if entry.name == "seeds" and min(values) < 0:
                raise InputError(f"seeds must be at least 0, got {min(values)}")
            if entry.name != "seeds" and not all(0 < value < math.inf for value in values):
                raise InputError(f"{entry.name} must be above 0 and finite, got {_shown(values)}")

    def capped(self) -> "Grid":
        """The same with no stage longer than `epochs`."""
        return Grid(
            self.seeds,
            self.temperatures,
            self.learning_rates,
            self.epochs,
            tuple(dict.fromkeys(min(epochs, self.epochs) for epochs in self.baseline_epochs)),
            tuple(dict.fromkeys(min(epochs, self.epochs) for epochs in self.finetune_epochs)),
        )

    def caption(self, experiment: Experiment) -> str:
        """How this grid differs from the paper's in what `experiment` tries, in words; empty where it does not."""
        own, papers = _tried(experiment, self), _tried(experiment, Grid())
        differences = [
            f"{what} {_shown(own[what])} (the paper: {_shown(papers[what])})"
            for what in papers
            if set(own[what]) != set(papers[what])
        ]
        if len(self.seeds) != len(Grid().seeds):
            differences.append(f"seeds {len(self.seeds)} (the paper: {len(Grid().seeds)})")
        return "; ".join(differences)


def _shown(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


@dataclass(frozen=True)
class Run:
    """One model to be trained and scored.

    Args:
        row: the line it belongs to.
        config: its settings, seed included.
        starts_from: the settings of the pre-training whose encoder it goes on with.
        keep_encoder: whether a fine-tuning row goes on from it.
    """

    row: str
    config: Config
    starts_from: Config | None = None
    keep_encoder: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        row, config = ROWS[self.row], self.config
        parts = [self.row]
        if row.kind == "contrastive":
            parts.append(f"τ={config.temperature:g}")
        if row.kind not in UNTRAINED:
            parts += [f"lr={config.learning_rate:g}", f"epochs={config.epochs}"]
        return f"{', '.join(parts)}, seed {config.seed}"


@dataclass(frozen=True)
class Point:
    """One setting of the grid with a run for each seed."""

    settings: Mapping[str, float]
    runs: tuple[Run, ...]


class Scored(Protocol):
    """What is known of finished runs."""

    def validation_micro_f1(self, run: Run) -> float | None:
        """Micro-F1 on validation at 0.5; None if the run is not finished."""
        ...


def points(row: Row, experiment: Experiment, grid: Grid, base: Config, done: Scored) -> list[Point] | None:
    """What a row goes through; None as long as what it starts from is not chosen."""
    if row.kind in UNTRAINED:
        plain = Config(objective=LEXICAL, encoder=NO_ENCODER, epochs=0) if row.kind == "lexical" else base
        return [Point({}, tuple(Run(row.name, plain.replace(epochs=0, seed=seed)) for seed in grid.seeds))]
    starts = _starts(row, experiment, grid, base, done)
    if starts is None:
        return None
    goes_on = any(other.starts_from == row.name for other in ROWS.values())
    found = []
    for settings in _settings(row, experiment, grid):
        changes = {"temperature": TEMPERATURE, **row.settings, **settings}
        kept = goes_on and changes["temperature"] == TEMPERATURE
        runs = (Run(row.name, base.replace(**changes, seed=seed), start, kept) for seed, start in starts.items())
        found.append(Point(settings, tuple(runs)))
    return found


def _starts(
    row: Row, experiment: Experiment, grid: Grid, base: Config, done: Scored
) -> dict[int, Config] | dict[int, None] | None:
    """By seed, the pre-training that a row starts from; None as long as it cannot be chosen."""
    if row.starts_from is None:
        return dict.fromkeys(grid.seeds)
    before = points(ROWS[row.starts_from], experiment, grid, base, done)
    if before is None:
        return None
    # With a single setting there is nothing to choose, and a seed need not wait for the others.
    if len(before) > 1 and any(len(_scores(point, done)) < len(point.runs) for point in before):
        return None
    start = choose(before, done) or before[0]
    return {run.config.seed: run.config for run in start.runs}


def _settings(row: Row, experiment: Experiment, grid: Grid) -> Iterator[dict[str, Any]]:
    if row.kind in UNTRAINED:
        yield {}
        return
    if experiment.varies == "temperature":
        for temperature in grid.temperatures:
            yield {"temperature": temperature, "learning_rate": grid.learning_rates[0], "epochs": grid.epochs}
        return
    epochs = {"supervised": grid.baseline_epochs, "finetuned": grid.finetune_epochs}.get(row.kind, (grid.epochs,))
    rates = grid.learning_rates
    if experiment.varies == "seed":
        epochs, rates = epochs[-1:], rates[:1]
    for rate, number in product(rates, epochs):
        yield {"learning_rate": rate, "epochs": number}


def planned_runs(row: Row, experiment: Experiment, grid: Grid) -> int:
    """How many runs a row has when all its settings are done."""
    return len(list(_settings(row, experiment, grid))) * len(grid.seeds)


def choose(candidates: Sequence[Point], done: Scored) -> Point | None:
    """The point with the best validation micro-F1 at 0.5 averaged over seeds, as in the paper.

    While runs are missing, the points that have begun are compared over the seeds they have in common; where they have
    none in common, those that have the seed which most of them have. None if nothing is finished.
    """
    scores = [_scores(point, done) for point in candidates]
    points_with = Counter(seed for own in scores for seed in own)
    if not points_with:
        return None
    widest = max(points_with, key=lambda seed: points_with[seed])
    compared = {number: own for number, own in enumerate(scores) if widest in own}
    common = set.intersection(*map(set, compared.values()))
    return candidates[max(compared, key=lambda number: fmean(compared[number][seed] for seed in common))]


def _scores(point: Point, done: Scored) -> dict[int, float]:
    """By seed, the validation micro-F1 of the finished runs of a point."""
    scores = {run.config.seed: done.validation_micro_f1(run) for run in point.runs}
    return {seed: score for seed, score in scores.items() if score is not None}


def needed(experiment: Experiment) -> list[Row]:
    """The rows of an experiment and those they start from, each once."""
    rows: dict[str, Row] = {}
    for row in experiment.rows:
        if row.starts_from is not None:
            rows.setdefault(row.starts_from, ROWS[row.starts_from])
        rows.setdefault(row.name, row)
    return list(rows.values())


_CALLED = {"temperature": "temperatures of the ablation", "learning_rate": "learning rates of the encoder"}
_EPOCHS_CALLED = {
    "contrastive": "epochs of contrastive training",
    "supervised": "epochs of the supervised losses",
    "finetuned": "epochs of fine-tuning",
}


def _tried(experiment: Experiment, grid: Grid) -> dict[str, list[float]]:
    """What the rows of an experiment, and those they start from, go through: values by what captions call them."""
    tried: dict[str, list[float]] = {}
    for row in needed(experiment):
        for settings in _settings(row, experiment, grid):
            for name, value in settings.items():
                values = tried.setdefault(_EPOCHS_CALLED[row.kind] if name == "epochs" else _CALLED[name], [])
                values += [value] if value not in values else []
    return tried


def wanted_runs(experiments: Sequence[Experiment], grid: Grid, base: Config, done: Scored) -> list[Run]:
    """Every run that is known to be needed by now, finished or not, each once.

    First seeds come first, so that a table that is stopped early has something of every row.
    """
    runs: dict[tuple[Config, Config | None], Run] = {}
    for experiment in experiments:
        for row in needed(experiment):
            for point in points(row, experiment, grid, base, done) or ():
                for run in point.runs:
                    runs.setdefault((run.config, run.starts_from), run)
    return sorted(runs.values(), key=lambda run: grid.seeds.index(run.config.seed))
