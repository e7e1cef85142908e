"""What queue, prototypes and weights add to L_Base: runs of the same temperature and seed, compared in pairs.

A mean that is ahead by less than its deviation says little; in how many pairs a loss is ahead says whether it is luck.
"""

from abalone.experiments.layout import Cell, Column, Line, Table, Value
from abalone.experiments.results import Record
from abalone.experiments.rows import ABLATION, Experiment
from abalone.experiments.tables import CUTS, METRICS, TUNED
from abalone.experiments.view import Finished, View

REFERENCE = "L_Base"
COMPARED = [metric for metric in METRICS if metric.best == "highest"]
PAIRS = Column("pairs", text=True)


def pairs_tables(view: View, experiment: Experiment = ABLATION) -> list[Table]:
    """The ablation's contrastive losses minus L_Base; no table where nothing can be set against it."""
    compared = experiment.only([row.name for row in experiment.rows if row.kind == "contrastive"])
    sections = view.sections(compared)
    rows = {done.row.name: done for _, section in sections for done in section}
    reference = rows.pop(REFERENCE, None)
    if reference is None or not rows:
        return []
    columns = [
        column
        for cut in CUTS.values()
        for metric in COMPARED
        for column in (metric.column(cut), Column(f"{metric.heading}: ahead", cut, text=True))
    ]
    lines = tuple(Line(done.row.name, done.row.latex, _cells(done, reference)) for done in rows.values())
    return [
        Table(
            f"{experiment.name}-pairs",
            "Loss",
            (*columns, PAIRS),
            (("", lines),),
            f"{view.card.name}, test. Points of F1 above {REFERENCE} with the same temperature and seed: the mean over "
            f"pairs ± the sample standard deviation, and in how many pairs the loss is ahead. {TUNED} "
            f"{view.how_made(compared, sections)}",
        )
    ]


def _cells(done: Finished, reference: Finished) -> tuple[Cell, ...]:
    before, after = _by_setting(reference), _by_setting(done)
    common = [(before[setting], record) for setting, record in after.items() if setting in before]
    final, cells = done.complete and reference.complete, list[Cell]()
    for cut in CUTS:
        for metric in COMPARED:
            scores = [[record["scores"]["test"][cut].get(metric.key) for record in pair] for pair in common]
            gains = [metric.factor * (own - base) for base, own in scores if None not in (base, own)]
            ahead = f"{sum(gain > 0 for gain in gains)}/{len(gains)}" if gains else None
            cells += [Value.of(gains, final=final), ahead]
    return (*cells, f"{len(common)}/{done.planned}")


def _by_setting(done: Finished) -> dict[tuple[float, int], Record]:
    return {(record["config"]["temperature"], record["config"]["seed"]): record for record in done.records}
