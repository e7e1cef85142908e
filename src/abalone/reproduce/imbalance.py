"""What the paper's first figure argues, measured: positives, attraction and repulsion from head to tail."""

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from abalone.evaluation.metrics import THIRDS, label_thirds
from abalone.reproduce.grid import TEMPERATURE
from abalone.reproduce.latex import escaped
from abalone.reproduce.layout import Cell, Column, Line, Table, Value
from abalone.reproduce.rows import IMBALANCE, ROWS, Experiment
from abalone.reproduce.view import Finished, View

FINDS = {"L_Base": "base", "L_MSC": "msc"}  # which positives of the corpus card an anchor of a row finds
FORCES = ("attraction", "repulsion")
Numbers = Sequence[float | None]


def imbalance_tables(view: View, experiment: Experiment = IMBALANCE) -> list[Table]:
    """By thirds of the labels, and label by label."""
    sections = view.sections(experiment)
    rows = [done for _, section in sections for done in section]
    frequencies = np.array(view.card.statistics["frequencies"])
    third_of = label_thirds(frequencies)
    order = np.argsort(-frequencies, kind="stable")
    finds = finding(rows)
    columns = (
        Column("documents", decimals=0),
        *(Column(name, "positives an anchor finds", ROWS[name].latex) for name in finds),
        *(Column(name, "% of anchors without one", ROWS[name].latex, decimals=1) for name in finds),
        *(Column(done.row.name, force, done.row.latex, decimals=3) for force in FORCES for done in rows),
    )

    def cells(labels: np.ndarray, documents: Value) -> tuple[Cell, ...]:
        positives = view.card.positives
        return (
            documents,
            *(_mean_over(labels, positives[FINDS[name]]["mean"]) for name in finds),
            *(_mean_over(labels, positives[FINDS[name]]["missing"], 100) for name in finds),
            *(_over_seeds(done, force, labels) for force in FORCES for done in rows),
        )

    def documents_of(third: int) -> Value:
        return Value(float(frequencies[third_of == third].mean()))

    present = [third for third in range(len(THIRDS)) if np.any(third_of == third)]
    by_third = tuple(
        Line(THIRDS[third], THIRDS[third], cells(np.flatnonzero(third_of == third), documents_of(third)))
        for third in present
    )
    names = view.card.label_names
    by_label = tuple(
        (
            THIRDS[third],
            tuple(
                Line(names[label], escaped(names[label]), cells(np.array([label]), Value(frequencies[label])))
                for label in order
                if third_of[label] == third
            ),
        )
        for third in present
    )
    about = (
        f"{view.card.name}. Training documents a label; positives that an anchor of the label finds in its batch "
        "(L_Base), or in batch, queue and prototypes (L_MSC); mean attraction (−cosine to the label's other test "
        "documents: −1 when they coincide) and repulsion (cosine to test documents without the label) of the trained "
        f"embeddings, at temperature {TEMPERATURE:g} and the first learning rate, over seeds ± the sample standard "
        f"deviation. Runs: {', '.join(f'{done.row.name} {done.runs}' for done in rows)}. "
        f"{view.how_made(experiment, sections, bold=False)}"
    )
    return [
        Table("imbalance", "Labels", columns, (("", by_third),), f"The mean over the labels of each third. {about}"),
        Table("imbalance-labels", "Label", columns, by_label, about),
    ]


def finding(rows: Sequence[Finished]) -> list[str]:
    """The names of the rows whose positives are counted."""
    return [done.row.name for done in rows if done.row.name in FINDS]


def force_by_label(done: Finished, force: str) -> list[float | None]:
    """[L], attraction or repulsion of each label, the mean over seeds."""
    stored = [record["forces"][force] for record in done.records]
    return [None if (value := Value.of(seeds)) is None else value.mean for seeds in zip(*stored, strict=True)]


def _over_seeds(done: Finished, force: str, labels: np.ndarray) -> Value | None:
    stored = [record["forces"][force] for record in done.records]
    means = (_mean_over(labels, values) for values in stored)
    return Value.of([mean.mean if mean else None for mean in means], final=done.complete)


def _mean_over(labels: np.ndarray, values: Numbers, factor: float = 1) -> Value | None:
    known = [value for label in labels if (value := values[label]) is not None]
    return Value(factor * fmean(known)) if known else None
