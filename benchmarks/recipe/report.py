"""What the scores come to: tables, intervals, a picture, and a summary for programs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from abalone.evaluation.bootstrap import Drawn, Interval, draw_scores
from abalone.evaluation.metrics import Counts, label_thirds
from abalone.progress import track
from abalone.reproduce.layout import Column, Line, Table, Value, markdown
from benchmarks.recipe.scores import DEFAULT, METRICS, PLAIN, ROWS, WORDS, Bench, Fitted
from benchmarks.recipe.train import ENCODER, SEEDS, WHOLE

SHADES = {PLAIN: "#4477aa", WORDS: "#ccbb44", DEFAULT: "#aa3377"}
SOURCES = {"reuters": "--reuters reuters21578.tar.xz", "arxiv54": "--arxiv54 arxiv54"}  # as commands are written down
TUNED, ONE_CUT, OUT_OF_FOLD = "test, tuned", "test, one cut", "out of fold"

Ahead = dict[str, dict[str, Interval]]  # of each row, by metric


@dataclass(frozen=True, eq=False)
class Scored:
    """What one row with one seed came to.

    Args:
        seed: of the model.
        fitted: its decisions.
        scores: in percent, by where (`TUNED`, `ONE_CUT`, `OUT_OF_FOLD`) and metric.
        given: to the test documents, by thresholds of their own and by one cut; nothing where test is not scored.
    """

    seed: int
    fitted: Fitted
    scores: dict[str, dict[str, float]]
    given: dict[str, csr_array]

    @classmethod
    def of(cls, bench: Bench, row: str, seed: int, *, test: bool) -> "Scored":
        """Fit the decisions out of fold and, if wanted, score the test documents with them."""
        fitted = bench.fit(row, seed)
        decisions = {TUNED: fitted.decision, ONE_CUT: fitted.one_cut} if test else {}
        given = {where: bench.given(row, seed, decision) for where, decision in decisions.items()}
        scores = {where: bench.test_scores(labels) for where, labels in given.items()}
        scores[OUT_OF_FOLD] = bench.out_of_fold_scores(fitted.out_of_fold)
        return cls(seed, fitted, scores, given)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        weights, cut = self.fitted.decision.mixture.to_dict(), float(self.fitted.one_cut.thresholds.values[0])
        return {"seed": self.seed, "weights": weights, "cut": cut, **self.scores}


Rows = Mapping[str, Sequence[Scored]]


def report(bench: Bench, *, test: bool = True) -> None:
    """Score what there are logits of, and write it down; without `test`, what holds out of fold alone."""
    target = bench.target
    target.mkdir(exist_ok=True)
    rows = {
        row: [Scored.of(bench, row, seed, test=test) for seed in bench.seeds(row)]
        for row in track(bench.rows, f"Scoring {bench.name}")
    }
    judged = {row: [each.fitted.out_of_fold.given for each in runs] for row, runs in rows.items()}
    ahead = {OUT_OF_FOLD: ahead_of(bench.leader, bench.held_out["labels"], judged, bench.frequencies)}
    text = _text(table(bench, rows, [OUT_OF_FOLD]), bench.leader, ahead[OUT_OF_FOLD])
    (target / "out_of_fold.md").write_text(text)
    if test:
        for where in (TUNED, ONE_CUT):
            given = {row: [each.given[where] for each in runs] for row, runs in rows.items()}
            ahead[where] = ahead_of(bench.leader, bench.corpus.test.labels, given, bench.frequencies)
        text = _text(table(bench, rows, [TUNED, ONE_CUT, OUT_OF_FOLD]), bench.leader, ahead[TUNED])
        (target / "recipe.md").write_text(text)
        _write_json(target / "recipe.json", records(bench, rows, ahead))
        _write_json(target / "summary.json", summary(bench, rows))
        if bench.name in WHOLE and set(SHADES) <= set(rows):
            draw(bench, rows, target / "recipe.png")
    print(text)


def table(bench: Bench, rows: Rows, places: Sequence[str]) -> Table:
    """Lay out means over seeds, a line for each row."""
    columns = [
        Column(heading, where, best="highest", decimals=1) for where in places for heading in METRICS.values()
    ] + [Column("seeds", decimals=0)]
    lines = []
    for row, runs in rows.items():
        cells = [Value.of([run.scores[where][metric] for run in runs]) for where in places for metric in METRICS]
        lines.append(Line(row, row, (*cells, Value(len(runs)))))
    held_out = "a fifth of the documents, held out once" if bench.folds == 1 else f"{bench.folds} folds"
    caption = (
        f"{bench.name}: F1 in percent, mean over seeds ± the sample standard deviation. Weights, temperatures and "
        f"thresholds are fitted out of fold ({held_out}). Out of fold, a document is decided by thresholds from other "
        "folds."
    )
    if ONE_CUT in places:
        caption += " One cut: the same threshold for all labels, chosen out of fold for macro-F1."
    return Table("recipe" if TUNED in places else OUT_OF_FOLD, "", tuple(columns), (("", tuple(lines)),), caption)


def ahead_of(leader: str, truth: csr_array, given: Mapping[str, Sequence[csr_array]], frequencies: np.ndarray) -> Ahead:
    """Return how far one row is ahead of each other, over documents drawn again; means over seeds.

    Args:
        leader: the row that is compared with the others.
        truth: [n, L].
        given: by row and seed, [n, L] each, of the same documents.
        frequencies: [L], training documents of each label.
    """
    if leader not in given:
        return {}
    thirds = label_thirds(frequencies)

    def mean(row: str) -> Drawn:
        runs = [draw_scores(truth, labels, thirds) for labels in given[row]]
        return Drawn(
            {name: float(np.mean([run.scores[name] for run in runs])) for name in runs[0].scores},
            {name: np.mean([run.draws[name] for run in runs], axis=0) for name in runs[0].draws},
        )

    ours = mean(leader)
    return {row: ours.against(mean(row)) for row in given if row != leader}


def records(bench: Bench, rows: Rows, ahead: Mapping[str, Ahead]) -> dict[str, Any]:
    """Return everything there is to know: models, weights, scores of every seed, and intervals."""
    return {
        "corpus": bench.name,
        "folds": bench.folds,
        "scores": {row: [run.to_dict() for run in runs] for row, runs in rows.items()},
        f"{bench.leader} is ahead of": {
            where: {row: {metric: asdict(each) for metric, each in of_row.items()} for row, of_row in by_row.items()}
            for where, by_row in ahead.items()
        },
        "models": bench.stories,
    }


def summary(bench: Bench, rows: Rows) -> dict[str, dict[str, Any]]:
    """Return the mean test scores of each row in percent, and how to get them."""

    def means(runs: Sequence[Scored], where: str) -> dict[str, float]:
        return {metric: round(float(np.mean([run.scores[where][metric] for run in runs])), 2) for metric in METRICS}

    return {
        row: {
            **means(runs, TUNED),
            "seeds": len(runs),
            "command": command(bench, row, len(runs)),
            "one_cut": means(runs, ONE_CUT),
        }
        for row, runs in rows.items()
    }


def command(bench: Bench, row: str, seeds: int) -> str:
    """Return the commands that make a row; words take the folds of any contender."""
    contender = ROWS[row].contender or bench.runs[0].contender
    shared = f"--output results --corpus {bench.name} {SOURCES[bench.name.partition('-')[0]]}"
    if bench.name in WHOLE and seeds != SEEDS:
        shared += f" --seeds {seeds}"
    encoder = bench.stories[contender][0]["config"]["encoder"]
    own = f"--contender {contender}" + ("" if encoder == ENCODER else f" --encoder ./{encoder}")
    return f"python -m benchmarks.recipe train {shared} {own} && python -m benchmarks.recipe score {shared}"


def draw(bench: Bench, rows: Rows, path: Path) -> None:
    """Draw the F1 of every label against how many training documents carry it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.8, 4.4), layout="constrained")
    axes = figure.add_subplot(xscale="log", xlabel="training documents of the label", ylabel="F1 on test, %")
    order, truth = np.argsort(bench.frequencies), bench.corpus.test.labels
    for (row, shade), marker in zip(SHADES.items(), "osD", strict=True):
        f1 = 100 * np.mean([Counts.of(truth, run.given[TUNED]).f1() for run in rows[row]], axis=0)  # [L]
        axes.scatter(bench.frequencies, f1, s=14, color=shade, alpha=0.55, marker=marker, linewidth=0)
        groups = [group for group in np.array_split(order, 9) if len(group)]
        centres = [np.exp(np.log(np.maximum(bench.frequencies[group], 1)).mean()) for group in groups]
        means = [f1[group].mean() for group in groups]
        axes.plot(centres, means, color=shade, linewidth=2, label=f"{row}: macro-F1 {f1.mean():.1f}")
    figure.legend(frameon=False, loc="outside lower center", ncols=len(SHADES), fontsize=8)
    axes.set_title(f"{bench.name}: points are labels, lines means of a ninth of them", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def shown(interval: Interval) -> str:
    """Return a difference in points, with its 95 % interval over documents."""
    # Adding 0 turns -0.0 into 0.0.
    value, low, high = (round(100 * each, 1) + 0.0 for each in (interval.value, interval.low, interval.high))
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f})"


def _text(made: Table, leader: str, ahead: Ahead) -> str:
    """Return a table, and below it how far one row is ahead of the others."""
    lines = tuple(Line(row, row, tuple(shown(of_row[metric]) for metric in METRICS)) for row, of_row in ahead.items())
    columns = tuple(Column(heading, text=True) for heading in METRICS.values())
    caption = "Points, means over seeds, with 95 % bootstrap intervals over documents."
    leads = Table(f"{leader} is ahead of", "", columns, (("", lines),), caption)
    return markdown(made) + ("\n" + markdown(leads) if lines else "")


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
