"""Rows of the paper's tables, the grid of settings they are run with, and the choice among settings."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from itertools import product
from statistics import fmean
from typing import Any, Literal, Protocol

from abalone.config import NO_ENCODER, Config
from abalone.errors import InputError

Kind = Literal["lexical", "frozen", "contrastive", "supervised", "finetuned"]
UNTRAINED = ("lexical", "frozen")  # kinds of rows that vary by seed alone
LEXICAL = "tf-idf"  # stands as the objective of a run without an encoder
TEMPERATURE = 0.1  # of everything but the ablation: the paper's best


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Args:
        name: as printed and as chosen with `--rows`.
        latex: as in the paper's source.
        kind: which part of the grid varies for it.
        settings: what it changes in `Config`.
        starts_from: the row whose pre-trained encoder it continues with.
    """

    name: str
    latex: str
    kind: Kind
    settings: Mapping[str, Any] = field(default_factory=dict)
    starts_from: str | None = None


def _loss(name: str, kind: Kind, *, starts_from: str | None = None, **settings: Any) -> Row:
    return Row(f"L_{name}", rf"$\mathcal{{L}}_{{{name}}}$", kind, settings, starts_from)


_ALL = (
    _loss("MLM", "frozen"),
    _loss("Base", "contrastive", objective="base"),
    _loss("BQueue", "contrastive", objective="bqueue"),
    _loss("BQProto", "contrastive", objective="bqproto"),
    _loss("MSC", "contrastive", objective="msc"),
    _loss("ASY", "supervised", objective="asymmetric"),
    _loss("FCL", "supervised", objective="focal"),
    _loss("BCE", "supervised", objective="bce"),
    _loss("Base-FT", "finetuned", objective="bce", starts_from="L_Base"),
    _loss("MSC-FT", "finetuned", objective="bce", starts_from="L_MSC"),
    # Beyond the paper
    Row("tf-idf + SVM", "tf-idf + SVM", "lexical"),
    _loss("MSC+BCE", "contrastive", objective="msc+10*bce"),
    _loss("MSC-names", "contrastive", objective="msc", name_prototypes=True),
    _loss("MulSupCon", "contrastive", objective="mulsupcon"),
    _loss("ZLPR", "supervised", objective="zlpr"),
)
ROWS: dict[str, Row] = {row.name: row for row in _ALL}


@dataclass(frozen=True)
class Experiment:
    """A table or figure: its rows, and the part of the grid that they vary over.

    Args:
        name: of the command and of the files.
        sections: rows by heading; an empty heading is none.
        varies: "temperature": every row is averaged over temperatures and seeds. "setting": each row has its learning
            rate and epochs chosen on validation, and is averaged over seeds. "seed": nothing but the seed varies.
        shows: which part of a run's record; a run whose record lacks it counts as missing.
    """

    name: str
    sections: tuple[tuple[str, tuple[str, ...]], ...]
    varies: Literal["temperature", "setting", "seed"]
    shows: Literal["scores", "clustering", "forces"] = "scores"

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, in order."""
        return tuple(ROWS[name] for _, names in self.sections for name in names)

    @property
    def needed(self) -> list[Row]:
        """Its rows and those they start from, each once."""
        names = (name for row in self.rows for name in (row.starts_from, row.name) if name is not None)
        return [ROWS[name] for name in dict.fromkeys(names)]

    def only(self, names: Sequence[str]) -> "Experiment":
        """Return the same experiment with some of its rows."""
        left = ((heading, tuple(name for name in own if name in names)) for heading, own in self.sections)
        return replace(self, sections=tuple(section for section in left if section[1]))


ABLATION = Experiment("ablation", (("", ("L_MLM",)), ("", ("L_Base", "L_BQueue", "L_BQProto", "L_MSC"))), "temperature")
COMPARISON = Experiment(
    "comparison",
    (
        ("Supervised loss", ("L_ASY", "L_FCL", "L_BCE")),
        ("Contrastive loss", ("L_Base", "L_Base-FT")),
        ("Ours", ("L_MSC", "L_MSC-FT")),
        ("Beyond the paper", ("tf-idf + SVM", "L_MSC+BCE", "L_MSC-names", "L_MulSupCon", "L_ZLPR")),
    ),
    "setting",
)
REPRESENTATION = Experiment(
    "representation",
    (("", ("L_MLM", "L_BCE")), ("", ("L_Base", "L_Base-FT")), ("", ("L_MSC", "L_MSC-FT"))),
    "setting",
    "clustering",
)
IMBALANCE = Experiment("imbalance", (("", ("L_MLM", "L_Base", "L_MSC")),), "seed", "forces")
EXPERIMENTS: dict[str, Experiment] = {e.name: e for e in (ABLATION, COMPARISON, REPRESENTATION, IMBALANCE)}
TABLES = ("datasets", *EXPERIMENTS)  # arguments of the command


def chosen_experiments(tables: Sequence[str], rows: Sequence[str] | None) -> list[Experiment]:
    """Return the experiments behind `tables`, reduced to `rows` where they are given."""
    found = [EXPERIMENTS[name] for name in tables if name in EXPERIMENTS]
    if rows is None:
        return found
    left = [smaller for experiment in found if (smaller := experiment.only(rows)).sections]
    if found and not left:
        raise InputError(f"none of the tables {', '.join(tables)} has a row {', '.join(rows)}")
    return left


def row_names(wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the rows that `msc`, `L_MSC` or `MSC-FT` mean, in upper or lower case."""
    known = {_lookup_name(name): name for name in ROWS}
    for name in wanted:
        if _lookup_name(name) not in known:
            near = get_close_matches(_lookup_name(name), known, n=1)
            hint = f"; did you mean {known[near[0]]!r}?" if near else "."
            raise InputError(f"no row is called {name!r}{hint} Rows: {', '.join(ROWS)}")
    return tuple(known[_lookup_name(name)] for name in wanted)


def _lookup_name(name: str) -> str:
    name = name.lower().replace(" ", "").removeprefix("l_")
    return LEXICAL if name == "tf-idf+svm" else name


# Set by rows and grid; settings from elsewhere would be overruled silently.
DECIDED = frozenset(
    {"objective", "temperature", "epochs", "learning_rate", "name_prototypes", "seed", "classifier", "lexical"}
    | {"finetune_objective", "finetune_epochs", "finetune_learning_rate", "neighbours", "thresholds", "at_least_one"}
)


def refuse_decided(base: Config) -> None:
    """Raise if `base` has a setting that rows and grid decide."""
    default = Config()
    if changed := sorted(name for name in DECIDED if getattr(base, name) != getattr(default, name)):
        raise InputError(
            f"{', '.join(changed)}: set by the rows and the grid of the table; remove it from the settings"
        )


@dataclass(frozen=True)
class Grid:
    """The values that are tried. The defaults are the paper's; `caption` says where others differ."""

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
                raise InputError(f"{entry.name} must be above 0 and finite, got {_listed(values)}")

    def capped(self) -> "Grid":
        """Return the same grid with no stage longer than `epochs`."""
        baseline, finetune = (
            tuple(dict.fromkeys(min(number, self.epochs) for number in numbers))
            for numbers in (self.baseline_epochs, self.finetune_epochs)
        )
        return replace(self, baseline_epochs=baseline, finetune_epochs=finetune)

    def caption(self, experiment: Experiment) -> str:
        """Describe how this grid differs from the paper's for `experiment`; empty where it does not."""
        own, papers = _tried(experiment, self), _tried(experiment, Grid())
        differences = [
            f"{name} {_listed(own[name])} (the paper: {_listed(papers[name])})"
            for name in papers
            if set(own[name]) != set(papers[name])
        ]
        if len(self.seeds) != len(Grid().seeds):
            differences.append(f"seeds {len(self.seeds)} (the paper: {len(Grid().seeds)})")
        return "; ".join(differences)


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


_CAPTIONS = {
    "temperature": "temperatures of the ablation",
    "learning_rate": "learning rates of the encoder",
    "contrastive": "epochs of contrastive training",
    "supervised": "epochs of the supervised losses",
    "finetuned": "epochs of fine-tuning",
}


def _tried(experiment: Experiment, grid: Grid) -> dict[str, list[float]]:
    """Return the values that the needed rows of an experiment are run with, by their names in captions."""
    tried: dict[str, dict[float, None]] = {}
    for row in experiment.needed:
        for settings in _settings(row, experiment, grid):
            for name, value in settings.items():
                tried.setdefault(_CAPTIONS[row.kind if name == "epochs" else name], {})[value] = None
    return {name: list(values) for name, values in tried.items()}


@dataclass(frozen=True)
class Run:
    """One model to train and score.

    Args:
        row: the line it belongs to.
        config: its settings, seed included.
        starts_from: the settings of the pre-training whose encoder it continues with.
        keep_encoder: whether a fine-tuning row starts from it.
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
    """The validation scores of finished runs."""

    def validation_micro_f1(self, run: Run) -> float | None:
        """Return micro-F1 on validation at 0.5; None if the run is not finished."""
        ...


def points(row: Row, experiment: Experiment, grid: Grid, base: Config, done: Scored) -> list[Point] | None:
    """Return the settings that a row is run with; None until the pre-training it starts from is chosen."""
    if row.kind in UNTRAINED:
        plain = Config(objective=LEXICAL, encoder=NO_ENCODER, epochs=0) if row.kind == "lexical" else base
        return [Point({}, tuple(Run(row.name, plain.replace(epochs=0, seed=seed)) for seed in grid.seeds))]
    starts = _starts(row, experiment, grid, base, done)
    if starts is None:
        return None
    finetuned = any(other.starts_from == row.name for other in ROWS.values())
    found = []
    for settings in _settings(row, experiment, grid):
        changes = {"temperature": TEMPERATURE, **row.settings, **settings}
        kept = finetuned and changes["temperature"] == TEMPERATURE
        runs = (Run(row.name, base.replace(**changes, seed=seed), start, kept) for seed, start in starts.items())
        found.append(Point(settings, tuple(runs)))
    return found


def _starts(
    row: Row, experiment: Experiment, grid: Grid, base: Config, done: Scored
) -> dict[int, Config] | dict[int, None] | None:
    """Return by seed the pre-training that a row starts from; None as long as it cannot be chosen."""
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
    """Return the number of runs that a row has when all its settings are done."""
    return len(list(_settings(row, experiment, grid))) * len(grid.seeds)


def choose(candidates: Sequence[Point], done: Scored) -> Point | None:
    """Return the point with the best validation micro-F1 at 0.5 averaged over seeds, as in the paper.

    While runs are missing, the points that have begun are compared over the seeds they have in common; where they have
    none in common, those that have the most frequent seed. None if nothing is finished.
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
    """Return by seed the validation micro-F1 of the finished runs of a point."""
    scores = {run.config.seed: done.validation_micro_f1(run) for run in point.runs}
    return {seed: score for seed, score in scores.items() if score is not None}


def wanted_runs(experiments: Sequence[Experiment], grid: Grid, base: Config, done: Scored) -> list[Run]:
    """Return every run that is known to be needed by now, finished or not, each once.

    First seeds come first, so that a table that is stopped early has something of every row.
    """
    runs: dict[tuple[Config, Config | None], Run] = {}
    for experiment in experiments:
        for row in experiment.needed:
            for point in points(row, experiment, grid, base, done) or ():
                for run in point.runs:
                    runs.setdefault((run.config, run.starts_from), run)
    return sorted(runs.values(), key=lambda run: grid.seeds.index(run.config.seed))
