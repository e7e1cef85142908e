"""What the averages of the ablation hide: gains over L_Base in pairs of runs, and what the temperature does."""

from collections.abc import Sequence

from abalone.evaluation.metrics import THIRDS
from abalone.reproduce.layout import Cell, Column, Line, Table, Value
from abalone.reproduce.results import Record
from abalone.reproduce.rows import ABLATION, Experiment
from abalone.reproduce.tables import CUTS, METRICS, TUNED
from abalone.reproduce.view import Finished, View

REFERENCE = "L_Base"
PAIRS = Column("pairs", text=True)
Scores = dict[str, str]  # by key in a record, how tables call it
OVERALL: Scores = {metric.key: metric.heading for metric in METRICS if metric.best == "highest"}
BY_THIRD: Scores = {f"macro_f1_{third}": third for third in THIRDS}


def ablation_details(view: View, experiment: Experiment = ABLATION) -> list[Table]:
    """What can be said of these rows beside the averages of `ablation_tables`; nothing where it takes more of them."""
    trained = experiment.only([row.name for row in experiment.rows if row.kind == "contrastive"])
    sections = view.sections(trained)
    rows = [done for _, section in sections for done in section]
    made = view.how_made(trained, sections, bold=False)
    tables = []
    if any(done.row.name == REFERENCE for done in rows) and len(rows) > 1:
        thirds = f"Macro-F1 of each third of the labels, the most frequent first. {made}"
        tables += [_pairs("pairs", OVERALL, rows, view, made), _pairs("pairs-thirds", BY_THIRD, rows, view, thirds)]
    if rows and len(view.grid.temperatures) > 1:
        tables.append(_temperatures(rows, view, made))
    return tables


def _pairs(name: str, scores: Scores, rows: Sequence[Finished], view: View, made: str) -> Table:
    """Each loss minus L_Base at the same temperature and seed, over all temperatures and at each of them."""
    columns = [
        column
        for cut in CUTS.values()
        for heading in scores.values()
        for column in (Column(heading, cut), Column(f"{heading}: ahead", cut, text=True))
    ]
    temperatures = view.grid.temperatures
    groups = {"all temperatures": temperatures} if len(temperatures) > 1 else {}
    groups |= {f"temperature {temperature:g}": (temperature,) for temperature in temperatures}
    (reference,) = (done for done in rows if done.row.name == REFERENCE)
    return Table(
        f"ablation-{name}",
        "Loss",
        (*columns, PAIRS),
        tuple(
            (
                heading,
                tuple(
                    Line(done.row.name, done.row.latex, _gains(done, reference, group, scores, len(view.grid.seeds)))
                    for done in rows
                    if done is not reference
                ),
            )
            for heading, group in groups.items()
        ),
        f"{view.card.name}, test. Points of F1 above {REFERENCE} with the same temperature and seed: the mean over "
        f"pairs ± the sample standard deviation, and in how many pairs the loss is ahead. {TUNED} {made}",
    )


def _gains(
    done: Finished, reference: Finished, temperatures: Sequence[float], scores: Scores, seeds: int
) -> tuple[Cell, ...]:
    before, after = _by_setting(reference), _by_setting(done)
    common = [
        (before[setting], record)
        for setting, record in after.items()
        if setting in before and setting[0] in temperatures
    ]
    cells: list[Cell] = []
    for cut in CUTS:
        for score in scores:
            both = [[record["scores"]["test"][cut].get(score) for record in pair] for pair in common]
            gains = [100 * (own - base) for base, own in both if None not in (base, own)]
            ahead = f"{sum(gain > 0 for gain in gains)}/{len(gains)}" if gains else None
            cells += [Value.of(gains), ahead]
    return (*cells, f"{len(common)}/{seeds * len(temperatures)}")


def _by_setting(done: Finished) -> dict[tuple[float, int], Record]:
    return {(record["config"]["temperature"], record["config"]["seed"]): record for record in done.records}


def _temperatures(rows: Sequence[Finished], view: View, made: str) -> Table:
    """Each loss at each temperature: what validation would choose by, and what test says."""
    groups = {
        "micro-F1 on validation, at 0.5": ("validation", "half", "micro_f1"),
        "macro-F1 on validation, at 0.5": ("validation", "half", "macro_f1"),
        **{f"macro-F1, {called}": ("test", cut, "macro_f1") for cut, called in CUTS.items()},
        **{f"tail, {called}": ("test", cut, "macro_f1_tail") for cut, called in CUTS.items()},
    }

    def cells(done: Finished) -> tuple[Cell, ...]:
        return tuple(
            Value.of([_percent(record["scores"][split][cut].get(score)) for record in _at(done, temperature)])
            for split, cut, score in groups.values()
            for temperature in view.grid.temperatures
        )

    return Table(
        "ablation-temperatures",
        "Loss",
        tuple(Column(f"{temperature:g}", group) for group in groups for temperature in view.grid.temperatures),
        (("", tuple(Line(done.row.name, done.row.latex, cells(done)) for done in rows)),),
        f"{view.card.name}, in percent, by temperature; on test where nothing else is said, tail: the rarest third of "
        f"the labels. Each value is the mean over seeds ± the sample standard deviation. {TUNED} {made}",
    )


def _at(done: Finished, temperature: float) -> list[Record]:
    return [record for record in done.records if record["config"]["temperature"] == temperature]


def _percent(score: float | None) -> float | None:
    return None if score is None else 100 * score
