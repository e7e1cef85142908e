"""The tables and figures by name: what they need to be run, and what they leave in the folder."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from abalone.config import Config
from abalone.data.corpus import Corpus
from abalone.errors import InputError
from abalone.evaluation.clustering import PROPORTIONS
from abalone.files.locks import alone_in
from abalone.report.clustering import Curve, draw_clustering
from abalone.report.imbalance import draw_imbalance
from abalone.reproduce.ablation import ablation_details
from abalone.reproduce.corpus_card import CorpusCard
from abalone.reproduce.fingerprints import encoder_fingerprint
from abalone.reproduce.grid import Grid, needed, wanted_runs
from abalone.reproduce.identity import encoder_name
from abalone.reproduce.imbalance import FINDS, FORCES, finding, force_by_label, imbalance_tables
from abalone.reproduce.layout import Table, Value, write
from abalone.reproduce.results import RESULTS, Results
from abalone.reproduce.rows import EXPERIMENTS, Experiment
from abalone.reproduce.runner import Outcome, execute
from abalone.reproduce.tables import (
    ablation_tables,
    clustering_table,
    comparison_tables,
    datasets_table,
    representation_table,
)
from abalone.reproduce.view import Finished, View

TABLES = ("datasets", *EXPERIMENTS)
CLUSTERING_PICTURE, IMBALANCE_PICTURE = "clustering.png", "imbalance.png"
POSITIVES = "positives an anchor finds"
HEADINGS = {
    "attraction": "attraction (−1: a label's documents coincide)",
    "repulsion": "repulsion (cosine to the other documents)",
}


def chosen_experiments(names: Sequence[str], rows: Sequence[str] | None) -> list[Experiment]:
    """The experiments behind the tables called `names`, with some of their rows where `rows` are given."""
    found = [EXPERIMENTS[name] for name in names if name in EXPERIMENTS]
    if rows is None:
        return found
    left = [smaller for experiment in found if (smaller := experiment.only(rows)).sections]
    if found and not left:
        raise InputError(f"none of the tables {', '.join(names)} has a row {', '.join(rows)}")
    return left


def run_experiments(
    experiments: Sequence[Experiment],
    corpus: Corpus,
    grid: Grid,
    base: Config,
    folder: Path,
    *,
    published: str | None = None,
    jobs: int = 1,
    stop_after: float | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Do the runs that the experiments need and `folder` does not have.

    Args:
        experiments: what is wanted.
        corpus: what to train and score on.
        grid: what is tried.
        base: the settings that rows and grid do not decide.
        folder: where results are kept.
        published: the name of the corpus in the paper, if it is one of the paper's.
        jobs, stop_after, tell: as for `execute`.
    """
    for name, split in corpus.splits():
        if not len(split):
            raise InputError(f"the {name} split of {corpus.name} is empty, and tables need all three splits")
    reads = any(row.kind != "lexical" for experiment in experiments for row in needed(experiment))
    encoder = encoder_fingerprint(base.encoder) if reads else None
    with alone_in(folder):
        card = CorpusCard.of(corpus, base, published)
        card.save(folder)
        results = Results(folder / RESULTS, card.fingerprint)
        if encoder is not None:
            results.refuse_other_encoder(base.encoder, encoder)
        wanted = partial(wanted_runs, experiments, grid, base)
        return execute(wanted, corpus, results, encoder=encoder, jobs=jobs, stop_after=stop_after, tell=tell)


def present(names: Sequence[str], experiments: Sequence[Experiment], view: View, folder: Path) -> list[Table]:
    """Write the tables and pictures called `names` to `folder` from stored results, and return the tables."""
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
            _draw_clustering(view, by_name[name], folder)
        else:
            tables += imbalance_tables(view, by_name[name])
            _draw_imbalance(view, by_name[name], folder)
    for table in tables:
        write(table, folder)
    return tables


def _rows(view: View, experiment: Experiment) -> list[Finished]:
    return [done for _, rows in view.sections(experiment) for done in rows]


def _draw_clustering(view: View, experiment: Experiment, folder: Path) -> None:
    curves = {}
    for done in _rows(view, experiment):
        silhouette, index = (
            [done.clustering(measure, share) for share in PROPORTIONS] for measure in ("silhouette", "davies_bouldin")
        )
        if any(silhouette):
            curves[done.row.name] = Curve(
                _means(silhouette), _means(index), _deviations(silhouette), _deviations(index)
            )
    draw_clustering(
        PROPORTIONS, curves, folder / CLUSTERING_PICTURE, title=f"{view.card.name}, {encoder_name(view.base.encoder)}"
    )


def _draw_imbalance(view: View, experiment: Experiment, folder: Path) -> None:
    rows = _rows(view, experiment)
    known = [done for done in rows if done.records]
    panels = {
        POSITIVES: {name: view.card.positives[FINDS[name]]["mean"] for name in finding(rows)},
        **{HEADINGS[force]: {done.row.name: force_by_label(done, force) for done in known} for force in FORCES},
    }
    draw_imbalance(
        view.card.statistics["frequencies"],
        panels,
        folder / IMBALANCE_PICTURE,
        logarithmic=(POSITIVES,),
        title=f"{view.card.name}, {encoder_name(view.base.encoder)}",
    )


def _means(values: Sequence[Value | None]) -> list[float]:
    return [float("nan") if value is None else value.mean for value in values]


def _deviations(values: Sequence[Value | None]) -> list[float] | None:
    if all(value is None or value.deviation is None for value in values):
        return None
    return [0.0 if value is None or value.deviation is None else value.deviation for value in values]
