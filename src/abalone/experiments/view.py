"""What tables and figures are made from: the finished runs of each row."""

from collections.abc import Sequence
from dataclasses import dataclass

from abalone.config import Config
from abalone.experiments.grid import Grid, Point, choose, points
from abalone.experiments.identity import UNIMPORTANT, CorpusCard, encoder_name
from abalone.experiments.layout import Value
from abalone.experiments.results import Record, Results
from abalone.experiments.rows import Experiment, Row


@dataclass(frozen=True)
class Finished:
    """A row with its finished runs.

    Args:
        row: the row.
        records: what was stored of its runs.
        planned: how many there are to be.
        setting: what validation has chosen, in words.
    """

    row: Row
    records: list[Record]
    planned: int
    setting: str = ""

    @property
    def runs(self) -> str:
        """How many of the planned runs are finished."""
        return f"{len(self.records)}/{self.planned}"

    def score(self, cut: str, metric: str, factor: float) -> Value | None:
        """A test score with thresholds at `cut`, scaled by `factor`."""
        found = [record["scores"]["test"][cut].get(metric) for record in self.records]
        return Value.of([None if value is None else factor * value for value in found])

    def clustering(self, measure: str, proportion: float) -> Value | None:
        """A clustering score at a share of the label combinations."""
        curves = [record["clustering"] for record in self.records if record.get("clustering")]
        return Value.of([curve[measure][curve["proportions"].index(proportion)] for curve in curves])


Sections = list[tuple[str, list[Finished]]]


@dataclass(frozen=True)
class View:
    """A corpus, a grid, and what is known of its runs."""

    card: CorpusCard
    grid: Grid
    base: Config
    results: Results

    def __post_init__(self) -> None:
        labels = len(self.card.label_names)
        for record in self.results.all():
            lengths = {len(values) for values in (record.get("forces") or {}).values()}
            if lengths - {labels}:
                raise ValueError(f"{self.results.path}: a record has forces of {max(lengths)} labels, not {labels}")

    def sections(self, experiment: Experiment) -> Sections:
        """The rows of an experiment by section: averaged over all their runs, or at the chosen setting."""
        by_name = {row.name: row for row in experiment.rows}
        return [
            (heading, [self._finished(by_name[name], experiment) for name in names])
            for heading, names in experiment.sections
        ]

    def _finished(self, row: Row, experiment: Experiment) -> Finished:
        candidates = points(row, experiment, self.grid, self.base, self.results)
        if candidates is None:
            return Finished(row, [], len(self.grid.seeds), "waits for its start")
        if experiment.varies != "setting":
            return Finished(row, self._records(candidates), sum(len(point.runs) for point in candidates))
        chosen = choose(candidates, self.results)
        if chosen is None:
            return Finished(row, [], len(self.grid.seeds))
        tried = chosen.settings
        setting = f"lr {tried['learning_rate']:g}, epochs {tried['epochs']:g}" if tried else ""
        return Finished(row, self._records([chosen]), len(chosen.runs), setting)

    def _records(self, chosen: Sequence[Point]) -> list[Record]:
        runs = (run for point in chosen for run in point.runs)
        return [record for run in runs if (record := self.results.get(run)) is not None]

    def how_made(self, sections: Sections) -> str:
        """For captions: the encoder, what differs from the paper's grid, and where and when the runs were made."""
        default, base = Config().to_dict(), self.base.to_dict()
        silent = {"encoder", "pooling", "seed", *UNIMPORTANT}
        changed = [f"{name} {base[name]}" for name in base if name not in silent and base[name] != default[name]]
        sentences = [
            f"Encoder: {', '.join([encoder_name(self.base.encoder), f'{self.base.pooling} pooling', *changed])}."
        ]
        if smaller := self.grid.caption():
            sentences.append(f"Not the paper's grid: {smaller}.")
        records = [record for _, rows in sections for row in rows for record in row.records]
        if records:
            dates = sorted(record["date"][:10] for record in records)
            machines = sorted({str(record["machine"]["gpu"] or record["machine"]["cpu"]) for record in records})
            minutes = sum(record["seconds"] for record in records) / 60
            when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
            sentences.append(f"{len(records)} runs, {when}, {', '.join(machines)}, {minutes:,.0f} min of runs in all.")
        return " ".join(sentences)
