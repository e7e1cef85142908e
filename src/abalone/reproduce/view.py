"""The finished runs of each row of a table, and the part of its caption that says how they were made."""

from dataclasses import dataclass

from abalone.config import OF_THE_MACHINE, Config
from abalone.errors import InputError
from abalone.reproduce.fingerprints import encoder_name
from abalone.reproduce.grid import Experiment, Grid, Point, Row, choose, planned_runs, points
from abalone.reproduce.layout import Value
from abalone.reproduce.results import CorpusCard, Record, Results


@dataclass(frozen=True)
class Finished:
    """A row with its finished runs.

    Args:
        row: the row.
        records: of the runs that are shown: of all, or of the chosen setting.
        finished: number of runs of all its settings whose record has the shown part.
        planned: number of runs of all its settings.
        complete: whether all of them are done, so that nothing shown will change.
        setting: the chosen learning rate and epochs, as text.
    """

    row: Row
    records: list[Record]
    finished: int
    planned: int
    complete: bool = False
    setting: str = ""

    @property
    def runs(self) -> str:
        """Finished and planned runs, such as 4/18."""
        return f"{self.finished}/{self.planned}"

    def score(self, cut: str, metric: str, factor: float) -> Value | None:
        """Return a test score with thresholds at `cut`, scaled by `factor`."""
        found = [record["scores"]["test"][cut].get(metric) for record in self.records]
        return Value.of(found, factor=factor, final=self.complete)

    def clustering(self, measure: str, proportion: float) -> Value | None:
        """Return a clustering score at a share of the label combinations."""
        curves = [record["clustering"] for record in self.records]
        found = [curve[measure][curve["proportions"].index(proportion)] for curve in curves]
        return Value.of(found, final=self.complete)


Sections = list[tuple[str, list[Finished]]]


@dataclass(frozen=True)
class View:
    """A corpus, a grid, and the stored results of its runs."""

    card: CorpusCard
    grid: Grid
    base: Config
    results: Results

    def __post_init__(self) -> None:
        labels = len(self.card.label_names)
        for record in self.results.all():
            lengths = {len(values) for values in (record.get("forces") or {}).values()}
            if lengths - {labels}:
                raise InputError(f"{self.results.path}: a record has forces of {max(lengths)} labels, not {labels}")

    def sections(self, experiment: Experiment) -> Sections:
        """Return the rows of an experiment by section: with all their runs, or those of the chosen setting."""
        by_name = {row.name: row for row in experiment.rows}
        return [
            (heading, [self._finished(by_name[name], experiment) for name in names])
            for heading, names in experiment.sections
        ]

    def _finished(self, row: Row, experiment: Experiment) -> Finished:
        planned = planned_runs(row, experiment, self.grid)
        candidates = points(row, experiment, self.grid, self.base, self.results)
        if candidates is None:
            return Finished(row, [], 0, planned, setting="waits for its start")
        done = [self._records(point) for point in candidates]
        shown = [[record for record in records if record.get(experiment.shows)] for records in done]
        every = [record for records in shown for record in records]
        complete = sum(map(len, done)) == planned
        if experiment.varies != "setting":
            return Finished(row, every, len(every), planned, complete)
        chosen = choose(candidates, self.results)
        if chosen is None:
            return Finished(row, [], 0, planned)
        number = candidates.index(chosen)
        setting = _setting(chosen)
        if setting and not complete:
            begun = sum(map(bool, done))
            settings = f"of {begun} of {len(candidates)} settings, " if begun < len(candidates) else ""
            setting += f" ({settings}{len(done[number])} of {len(chosen.runs)} seeds)"
        return Finished(row, shown[number], len(every), planned, complete, setting)

    def _records(self, point: Point) -> list[Record]:
        return [record for run in point.runs if (record := self.results.get(run)) is not None]

    def how_made(self, experiment: Experiment, sections: Sections, *, bold: bool = True) -> str:
        """Return the end of a caption: encoder, differences from the paper's grid, missing runs, machine and dates.

        Args:
            experiment, sections: the rows of the table.
            bold: whether it sets the best in bold.
        """
        default, base = Config().to_dict(), self.base.to_dict()
        silent = {"encoder", "pooling", "seed", *OF_THE_MACHINE}
        changed = [f"{name} {base[name]}" for name in base if name not in silent and base[name] != default[name]]
        sentences = []
        if any(row.kind != "lexical" for row in experiment.rows):
            about = [encoder_name(self.base.encoder), f"{self.base.pooling} pooling", *changed]
            sentences.append(f"Encoder: {', '.join(about)}.")
        if differences := self.grid.caption(experiment):
            sentences.append(f"Not the paper's grid: {differences}.")
        rows = flat(sections)
        if not all(row.complete for row in rows):
            sentences.append(_provisional(experiment, bold))
        if records := [record for row in rows for record in row.records]:
            sentences.append(_origin(records))
        return " ".join(sentences)


def flat(sections: Sections) -> list[Finished]:
    """Return the rows of all sections."""
    return [done for _, rows in sections for done in rows]


def counted(number: int, noun: str) -> str:
    """Return `1 seed`, `3 seeds`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _setting(point: Point) -> str:
    tried = point.settings
    return f"lr {tried['learning_rate']:g}, epochs {tried['epochs']:g}" if tried else ""


def _provisional(experiment: Experiment, bold: bool) -> str:
    """Return the sentences for a table with missing runs."""
    sentences = ["Not complete: means are over the runs that are finished."]
    if bold:
        sentences.append("Bold is what is complete and ahead of all.")
    if experiment.varies == "setting":
        sentences.append(
            "The setting of rows with runs to come may change: it is the best of those that have a run, over the seeds "
            "that these, or most of them, have in common."
        )
    return " ".join(sentences)


def _origin(records: list[Record]) -> str:
    dates = sorted(record["date"][:10] for record in records)
    machines = sorted({str(record["machine"]["gpu"] or record["machine"]["cpu"]) for record in records})
    minutes = sum(record["seconds"] for record in records) / 60
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    runs = counted(len(records), "run")
    return f"Shown: {runs}, {when}, {', '.join(machines)}; the times of these runs add up to {minutes:,.0f} min."
