"""From stored results to the paper's tables."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from abalone.evaluation.clustering import IN_THE_TABLE, PROPORTIONS
from abalone.evaluation.metrics import THIRDS
from abalone.reproduce import paper
from abalone.reproduce.grid import TEMPERATURE, UNTRAINED
from abalone.reproduce.latex import escaped
from abalone.reproduce.layout import Best, Cell, Column, Line, Table, Value
from abalone.reproduce.rows import ABLATION, COMPARISON, REPRESENTATION, ROWS, Experiment
from abalone.reproduce.view import Finished, Sections, View, counted

CUTS = {"half": "at 0.5", "macro": "tuned"}  # which of the stored cuts are shown, and how they are called
SETTING, RUNS = Column("setting", text=True), Column("runs", text=True)
PRECISION = Column("mean over labels", "average precision", best="highest")
TUNED = "Tuned: one threshold a label, fitted on validation for macro-F1, on the same models."


class Metric(NamedTuple):
    """A score as the paper shows it."""

    key: str
    heading: str
    latex: str
    factor: float
    best: Best

    def column(self, group: str) -> Column:
        """Its column in a group of columns."""
        return Column(self.heading, group, self.latex, self.best)


METRICS = (
    Metric("micro_f1", "micro-F1", r"$\mu$-F$_1$", 100, "highest"),
    Metric("macro_f1", "macro-F1", "M-F$_1$", 100, "highest"),
    Metric("hamming_loss", "Hamming ×10³", "Ham", 1000, "lowest"),
)


def datasets_table(view: View) -> Table:
    """Table 1: what the corpus looks like."""
    stats = view.card.statistics
    headings = {
        "Train": r"$|\mathrm{Train}|$",
        "Val": r"$|\mathrm{Val}|$",
        "Test": r"$|\mathrm{Test}|$",
        "Labels": "$L$",
        "Labels/document": r"$\overline{L}$",
        "Words/document": r"$\overline{W}$",
    }
    own = (
        *(f"{stats[name]:,}" for name in ("train", "validation", "test", "labels")),
        f"{stats['labels_per_document']:.2f}",
        f"{stats['words_per_document']:,.0f}",
    )
    lines = [Line(view.card.name, escaped(view.card.name), own)]
    if view.card.published is not None:
        name = f"{view.card.published}, the paper"
        lines.append(Line(name, name, tuple(map(str, paper.DATASETS[view.card.published]))))
    return Table(
        "datasets",
        "Dataset",
        tuple(Column(heading, latex=latex, text=True) for heading, latex in headings.items()),
        (("", tuple(lines)),),
        "Documents in the three splits, labels, and the mean numbers of labels and of words a document carries.",
    )


def ablation_tables(view: View, experiment: Experiment = ABLATION) -> list[Table]:
    """Table 2: every row averaged over temperatures and seeds, and the same by thirds of the labels."""
    temperatures, seeds = len(view.grid.temperatures), len(view.grid.seeds)
    frozen = " (L_MLM: seeds alone)" if ROWS["L_MLM"] in experiment.rows else ""
    over = f"{counted(temperatures, 'temperature')} × {counted(seeds, 'seed')}{frozen}"
    averaged = f"{_each_value(temperatures * seeds, over)}; learning rate {view.grid.learning_rates[0]:g}."
    return _score_tables(view, experiment, averaged, paper.ABLATION)


def comparison_tables(view: View, experiment: Experiment = COMPARISON) -> list[Table]:
    """Table 3: every row at the setting that validation has chosen, averaged over seeds, and by thirds."""
    kinds = {row.kind for row in experiment.rows}
    seeds = len(view.grid.seeds)
    averaged = f"{_each_value(seeds, counted(seeds, 'seed'))}."
    if kinds.difference(UNTRAINED):
        averaged = (
            f"Temperature {TEMPERATURE:g}. Each row has the learning rate and epochs with the best validation micro-F1 "
            f"at 0.5 averaged over seeds. {averaged}"
        )
    if "finetuned" in kinds:
        averaged += " Fine-tuning (FT) starts from the pre-training that was chosen for its loss."
    return _score_tables(view, experiment, averaged, paper.COMPARISON)


def _each_value(runs: int, over: str) -> str:
    """For captions: what a cell is when all of its runs are done."""
    return (
        "Each value is of one run"
        if runs == 1
        else f"Each value is the mean over {over} ± the sample standard deviation"
    )


def _score_tables(view: View, experiment: Experiment, averaged: str, published: dict[str, paper.Scores]) -> list[Table]:
    sections = view.sections(experiment)
    theirs = published.get(view.card.published or "", {})
    with_setting = experiment.varies == "setting"
    groups = [*CUTS.values(), *(["the paper"] if theirs else [])]
    after = [*([SETTING] if with_setting else []), RUNS]

    def scores(done: Finished) -> tuple[Cell, ...]:
        own = [done.score(cut, metric.key, metric.factor) for cut in CUTS for metric in METRICS]
        given = _beside(theirs, done, len(METRICS))
        return (*own, *given, *([done.setting] if with_setting else []), done.runs)

    def by_third(done: Finished) -> tuple[Cell, ...]:
        thirds = (done.score(cut, f"macro_f1_{third}", 100) for cut in CUTS for third in THIRDS)
        # Of calibrated probabilities: those of probes as they are end at 1.0 for many documents, which ties them.
        return (*thirds, done.score("macro", "mean_average_precision", 100), done.runs)

    how = f"{TUNED} {averaged} {view.how_made(experiment, sections)}"
    return [
        Table(
            experiment.name,
            "Loss",
            (*(metric.column(group) for group in groups for metric in METRICS), *after),
            _lines(sections, scores),
            f"{view.card.name}, test. F1 in percent, Hamming loss × 10³. {how}{_about(view, theirs)}",
        ),
        Table(
            f"{experiment.name}-thirds",
            "Loss",
            (*(Column(third, cut, best="highest") for cut in CUTS.values() for third in THIRDS), PRECISION, RUNS),
            _lines(sections, by_third),
            f"{view.card.name}, test. Macro-F1 in percent over the most frequent third of the labels (head), the next "
            f"(medium) and the rarest (tail); average precision, of all labels, needs no threshold. {how}",
        ),
    ]


def representation_table(view: View, experiment: Experiment = REPRESENTATION) -> Table:
    """Table 4: how well test embeddings fall apart by label combination."""
    sections = view.sections(experiment)
    theirs = paper.REPRESENTATION.get(view.card.published or "", {})
    columns = [
        column
        for group in ("", *(["the paper"] if theirs else []))
        for column in (
            Column("Silhouette ↑", group, r"Sil $\uparrow$", "highest", 3),
            Column("Davies–Bouldin ↓", group, r"DBI $\downarrow$", "lowest", 3),
        )
    ]

    def cells(done: Finished) -> tuple[Cell, ...]:
        own = (done.clustering(measure, IN_THE_TABLE) for measure in ("silhouette", "davies_bouldin"))
        return (*own, *_beside(theirs, done, 2), done.setting, done.runs)

    curves = [run["clustering"] for _, rows in sections for row in rows for run in row.records]
    documents = f"{curves[0]['documents'][-1]:,} " if curves else ""
    return Table(
        experiment.name,
        "Method",
        (*columns, SETTING, RUNS),
        _lines(sections, cells),
        f"{view.card.name}: {documents}test embeddings, each label combination a class, the most frequent "
        f"{IN_THE_TABLE:.0%} of the combinations kept; Euclidean distances of what the classifier is given. Settings "
        "as in the comparison; mean over seeds ± the sample standard deviation. "
        f"{view.how_made(experiment, sections)}{_about(view, theirs)}",
    )


def clustering_table(view: View, experiment: Experiment = REPRESENTATION) -> Table:
    """What the clustering figure draws: both scores for every share of the label combinations."""
    measures = {"silhouette": "Silhouette", "davies_bouldin": "Davies–Bouldin"}
    sections = view.sections(experiment)

    def cells(done: Finished) -> tuple[Cell, ...]:
        return (*(done.clustering(measure, share) for measure in measures for share in PROPORTIONS), done.runs)

    return Table(
        "clustering",
        "Method",
        (*(Column(f"{share:.0%}", name, decimals=3) for name in measures.values() for share in PROPORTIONS), RUNS),
        _lines(sections, cells),
        f"{view.card.name}: as in the representation table, over the share of the label combinations that is kept.",
    )


def _about(view: View, theirs: Mapping[str, tuple[float, ...]]) -> str:
    return f" {paper.about(view.card.published)}" if theirs and view.card.published else ""


def _beside(theirs: Mapping[str, tuple[float, ...]], done: Finished, number: int) -> list[Cell]:
    """The paper's figures for a row; none for rows it has not, nothing where the corpus is not the paper's."""
    if not theirs:
        return []
    given = theirs.get(done.row.name)
    return [None] * number if given is None else [Value(figure) for figure in given]


def _lines(
    sections: Sections, cells: Callable[[Finished], tuple[Cell, ...]]
) -> tuple[tuple[str, tuple[Line, ...]], ...]:
    return tuple(
        (heading, tuple(Line(done.row.name, done.row.latex, cells(done)) for done in rows))
        for heading, rows in sections
    )
