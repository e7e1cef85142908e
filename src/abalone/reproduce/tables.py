"""The paper's tables, and those that we add, from stored results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np

from abalone.evaluation.clustering import IN_THE_TABLE, PROPORTIONS
from abalone.evaluation.metrics import THIRDS, label_thirds
from abalone.reproduce import paper
from abalone.reproduce.figures import FORCES, POSITIVES_OF, clustering_figure, imbalance_figure
from abalone.reproduce.grid import (
    ABLATION,
    COMPARISON,
    IMBALANCE,
    REPRESENTATION,
    ROWS,
    TEMPERATURE,
    UNTRAINED,
    Experiment,
)
from abalone.reproduce.layout import Cell, Column, Line, Table, Value, escaped, write
from abalone.reproduce.results import Record
from abalone.reproduce.view import Finished, Sections, View, counted, flat

CUTS = {"half": "at 0.5", "macro": "tuned"}  # the stored cuts that are shown, and their names
SETTING, RUNS, PAIRS = (Column(name, text=True) for name in ("setting", "runs", "pairs"))
PRECISION = Column("mean over labels", "average precision", best="highest")
TUNED = "Tuned: one threshold a label, fitted on validation for macro-F1, on the same models."
REFERENCE = "L_Base"  # other losses are compared with it in pairs
BY_THIRD = {f"macro_f1_{third}": third for third in THIRDS}  # headings by key in a record


# Scores as the paper shows them: by key in a record, the factor and the column.
METRICS = {
    "micro_f1": (100, Column("micro-F1", latex=r"$\mu$-F$_1$", best="highest")),
    "macro_f1": (100, Column("macro-F1", latex="M-F$_1$", best="highest")),
    "hamming_loss": (1000, Column("Hamming ×10³", latex="Ham", best="lowest")),
}


def present(names: Sequence[str], experiments: Sequence[Experiment], view: View, folder: Path) -> list[Table]:
    """Write the tables and figures called `names` to `folder` from stored results, and return the tables."""
    by_name = {experiment.name: experiment for experiment in experiments}
    tables: list[Table] = []
    for name in names:
        if name == "datasets":
            tables.append(datasets_table(view))
        elif name not in by_name:
            continue
        elif name == "ablation":
            tables += [*ablation_tables(view, by_name[name]), *ablation_details(view, by_name[name])]
        elif name == "comparison":
            tables += comparison_tables(view, by_name[name])
        elif name == "representation":
            tables += [representation_table(view, by_name[name]), clustering_table(view, by_name[name])]
            clustering_figure(view, by_name[name], folder)
        else:
            tables += imbalance_tables(view, by_name[name])
            imbalance_figure(view, by_name[name], folder)
    for table in tables:
        write(table, folder)
    return tables


def datasets_table(view: View) -> Table:
    """Return Table 1: the sizes of the corpus."""
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
    """Return Table 2: every row averaged over temperatures and seeds; and the same by thirds of the labels."""
    temperatures, seeds = len(view.grid.temperatures), len(view.grid.seeds)
    frozen = " (L_MLM: seeds alone)" if ROWS["L_MLM"] in experiment.rows else ""
    over = f"{counted(temperatures, 'temperature')} × {counted(seeds, 'seed')}{frozen}"
    averaged = f"{_each_value(temperatures * seeds, over)}; learning rate {view.grid.learning_rates[0]:g}."
    return _score_tables(view, experiment, averaged, paper.ABLATION)


def comparison_tables(view: View, experiment: Experiment = COMPARISON) -> list[Table]:
    """Return Table 3: every row at the setting chosen on validation, averaged over seeds; and by thirds."""
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
        own = [done.score(cut, key, factor) for cut in CUTS for key, (factor, _) in METRICS.items()]
        given = _published_values(theirs, done, len(METRICS))
        return (*own, *given, *([done.setting] if with_setting else []), done.runs)

    def by_third(done: Finished) -> tuple[Cell, ...]:
        thirds = (done.score(cut, key, 100) for cut in CUTS for key in BY_THIRD)
        # Of calibrated probabilities: uncalibrated ones of probes are 1.0 for many documents, which ties them.
        return (*thirds, done.score("macro", "mean_average_precision", 100), done.runs)

    how = f"{TUNED} {averaged} {view.how_made(experiment, sections)}"
    return [
        Table(
            experiment.name,
            "Loss",
            (*(replace(column, group=group) for group in groups for _, column in METRICS.values()), *after),
            _lines(sections, scores),
            f"{view.card.name}, test. F1 in percent, Hamming loss × 10³. {how}{_about_the_paper(view, theirs)}",
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


def ablation_details(view: View, experiment: Experiment = ABLATION) -> list[Table]:
    """Return each loss against L_Base in pairs of runs, and each loss at each temperature, as far as rows allow."""
    trained = experiment.only([row.name for row in experiment.rows if row.kind == "contrastive"])
    sections = view.sections(trained)
    rows = flat(sections)
    made = view.how_made(trained, sections, bold=False)
    tables = []
    if any(done.row.name == REFERENCE for done in rows) and len(rows) > 1:
        overall = {key: column.heading for key, (_, column) in METRICS.items() if column.best == "highest"}
        thirds = f"Macro-F1 of each third of the labels, the most frequent first. {made}"
        tables = [_pairs("pairs", overall, rows, view, made), _pairs("pairs-thirds", BY_THIRD, rows, view, thirds)]
    if rows and len(view.grid.temperatures) > 1:
        tables.append(_temperatures(rows, view, made))
    return tables


def _pairs(name: str, scores: Mapping[str, str], rows: Sequence[Finished], view: View, made: str) -> Table:
    """Return each loss minus L_Base at the same temperature and seed, over all temperatures and at each of them."""
    columns = [
        column
        for cut in CUTS.values()
        for heading in scores.values()
        for column in (Column(heading, cut), Column(f"{heading}: ahead", cut, text=True))
    ]
    temperatures = view.grid.temperatures
    groups = {"all temperatures": temperatures} if len(temperatures) > 1 else {}
    groups |= {f"temperature {temperature:g}": (temperature,) for temperature in temperatures}
    (before,) = (_by_setting(done) for done in rows if done.row.name == REFERENCE)

    def gains(done: Finished, group: Sequence[float]) -> tuple[Cell, ...]:
        pairs = [
            (before[setting], record)
            for setting, record in _by_setting(done).items()
            if setting in before and setting[0] in group
        ]
        cells: list[Cell] = []
        for cut in CUTS:
            for score in scores:
                both = [[record["scores"]["test"][cut].get(score) for record in pair] for pair in pairs]
                found = [100 * (own - base) for base, own in both if None not in (base, own)]
                ahead = f"{sum(gain > 0 for gain in found)}/{len(found)}" if found else None
                cells += [Value.of(found), ahead]
        return (*cells, f"{len(pairs)}/{len(view.grid.seeds) * len(group)}")

    others = [done for done in rows if done.row.name != REFERENCE]
    return Table(
        f"ablation-{name}",
        "Loss",
        (*columns, PAIRS),
        tuple(
            (heading, tuple(Line(done.row.name, done.row.latex, gains(done, group)) for done in others))
            for heading, group in groups.items()
        ),
        f"{view.card.name}, test. Points of F1 above {REFERENCE} with the same temperature and seed: the mean over "
        f"pairs ± the sample standard deviation, and in how many pairs the loss is ahead. {TUNED} {made}",
    )


def _by_setting(done: Finished) -> dict[tuple[float, int], Record]:
    return {(record["config"]["temperature"], record["config"]["seed"]): record for record in done.records}


def _temperatures(rows: list[Finished], view: View, made: str) -> Table:
    """Return each loss at each temperature: the validation scores to choose by, and the test scores."""
    groups = {
        "micro-F1 on validation, at 0.5": ("validation", "half", "micro_f1"),
        "macro-F1 on validation, at 0.5": ("validation", "half", "macro_f1"),
        **{f"macro-F1, {called}": ("test", cut, "macro_f1") for cut, called in CUTS.items()},
        **{f"tail, {called}": ("test", cut, "macro_f1_tail") for cut, called in CUTS.items()},
    }

    def cells(done: Finished) -> tuple[Cell, ...]:
        at = {
            temperature: [record["scores"] for record in done.records if record["config"]["temperature"] == temperature]
            for temperature in view.grid.temperatures
        }
        return tuple(
            Value.of((scores[split][cut].get(score) for scores in found), factor=100)
            for split, cut, score in groups.values()
            for found in at.values()
        )

    return Table(
        "ablation-temperatures",
        "Loss",
        tuple(Column(f"{temperature:g}", group) for group in groups for temperature in view.grid.temperatures),
        _lines([("", rows)], cells),
        f"{view.card.name}, in percent, by temperature; on test where nothing else is said, tail: the rarest third of "
        f"the labels. Each value is the mean over seeds ± the sample standard deviation. {TUNED} {made}",
    )


def representation_table(view: View, experiment: Experiment = REPRESENTATION) -> Table:
    """Return Table 4: how well test embeddings separate the label combinations."""
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
        return (*own, *_published_values(theirs, done, 2), done.setting, done.runs)

    curves = [record["clustering"] for done in flat(sections) for record in done.records]
    documents = f"{curves[0]['documents'][-1]:,} " if curves else ""
    return Table(
        experiment.name,
        "Method",
        (*columns, SETTING, RUNS),
        _lines(sections, cells),
        f"{view.card.name}: {documents}test embeddings, each label combination a class, the most frequent "
        f"{IN_THE_TABLE:.0%} of the combinations kept; Euclidean distances of what the classifier is given. Settings "
        "as in the comparison; mean over seeds ± the sample standard deviation. "
        f"{view.how_made(experiment, sections)}{_about_the_paper(view, theirs)}",
    )


def clustering_table(view: View, experiment: Experiment = REPRESENTATION) -> Table:
    """Return the numbers of the clustering figure: both scores for every share of the label combinations."""
    measures = {"silhouette": "Silhouette", "davies_bouldin": "Davies–Bouldin"}

    def cells(done: Finished) -> tuple[Cell, ...]:
        return (*(done.clustering(measure, share) for measure in measures for share in PROPORTIONS), done.runs)

    return Table(
        "clustering",
        "Method",
        (*(Column(f"{share:.0%}", name, decimals=3) for name in measures.values() for share in PROPORTIONS), RUNS),
        _lines(view.sections(experiment), cells),
        f"{view.card.name}: as in the representation table, over the share of the label combinations that is kept.",
    )


def imbalance_tables(view: View, experiment: Experiment = IMBALANCE) -> list[Table]:
    """Return positives, attraction and repulsion by thirds of the labels, and label by label."""
    sections = view.sections(experiment)
    rows = flat(sections)
    frequencies = np.array(view.card.statistics["frequencies"])
    third_of = label_thirds(frequencies)
    counted_rows = [done.row for done in rows if done.row.name in POSITIVES_OF]
    columns = (
        Column("documents", decimals=0),
        *(Column(row.name, "positives an anchor finds", row.latex) for row in counted_rows),
        *(Column(row.name, "% of anchors without one", row.latex, decimals=1) for row in counted_rows),
        *(Column(done.row.name, force, done.row.latex, decimals=3) for force in FORCES for done in rows),
    )

    def cells(labels: np.ndarray) -> tuple[Cell, ...]:
        positives = [view.card.positives[POSITIVES_OF[row.name]] for row in counted_rows]
        return (
            Value(float(frequencies[labels].mean())),
            *(_mean_over(labels, found["mean"]) for found in positives),
            *(_mean_over(labels, found["missing"], 100) for found in positives),
            *(_force(done, force, labels) for force in FORCES for done in rows),
        )

    names = view.card.label_names
    order = np.argsort(-frequencies, kind="stable")
    by_third = [(name, order[third_of[order] == third]) for third, name in enumerate(THIRDS)]
    by_third = [(name, labels) for name, labels in by_third if labels.size]
    about = (
        f"{view.card.name}. Training documents a label; positives that an anchor of the label finds in its batch "
        "(L_Base), or in batch, queue and prototypes (L_MSC); mean attraction (−cosine to the label's other test "
        "documents: −1 when they coincide) and repulsion (cosine to test documents without the label) of the trained "
        f"embeddings, at temperature {TEMPERATURE:g} and the first learning rate, over seeds ± the sample standard "
        f"deviation. Runs: {', '.join(f'{done.row.name} {done.runs}' for done in rows)}. "
        f"{view.how_made(experiment, sections, bold=False)}"
    )
    whole = tuple(Line(name, name, cells(np.sort(labels))) for name, labels in by_third)
    single = tuple(
        (name, tuple(Line(names[label], escaped(names[label]), cells(np.array([label]))) for label in labels))
        for name, labels in by_third
    )
    return [
        Table("imbalance", "Labels", columns, (("", whole),), f"The mean over the labels of each third. {about}"),
        Table("imbalance-labels", "Label", columns, single, about),
    ]


def _force(done: Finished, force: str, labels: np.ndarray) -> Value | None:
    """Return the mean attraction or repulsion of some labels, over seeds."""
    means = (_mean_over(labels, record["forces"][force]) for record in done.records)
    return Value.of((None if mean is None else mean.mean for mean in means), final=done.complete)


def _mean_over(labels: np.ndarray, values: Sequence[float | None], factor: float = 1) -> Value | None:
    known = [value for label in labels if (value := values[label]) is not None]
    return Value(factor * fmean(known)) if known else None


def _about_the_paper(view: View, theirs: Mapping[str, tuple[float, ...]]) -> str:
    return f" {paper.about(view.card.published)}" if theirs and view.card.published else ""


def _published_values(theirs: Mapping[str, tuple[float, ...]], done: Finished, number: int) -> list[Cell]:
    """Return the paper's figures for a row; None for rows it has not, nothing where the corpus is not the paper's."""
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
