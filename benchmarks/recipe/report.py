"""What the scores come to: a table, intervals, and a picture."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from abalone.evaluation.bootstrap import Drawn, Interval, draw_scores
from abalone.evaluation.groups import label_thirds
from abalone.evaluation.metrics import Counts
from abalone.experiments.layout import Column, Line, Table, Value, markdown
from abalone.progress import track
from benchmarks.recipe.scores import METRICS, MIXED_IN, PLAIN, RECIPE, Bench, Composition, Scored

SHADES = {PLAIN: "#4477aa", Composition("lexical"): "#ccbb44", RECIPE: "#aa3377"}


def table(bench: Bench, scored: dict[Composition, list[Scored]]) -> Table:
    """Means over seeds, and what the recipe's model took to train beside BCE."""
    columns = [
        *(Column(heading, "test, tuned", best="highest", decimals=1) for heading in METRICS.values()),
        *(Column(heading, "test, at 0.5", decimals=1) for heading in METRICS.values()),
        *(Column(heading, "validation, crosswise", decimals=1) for heading in METRICS.values()),
        Column("training time", decimals=2),
    ]
    # Of these two, trained side by side; the others may have had more or less beside them. The least of the seeds: what
    # else ran beside them only ever adds.
    timed = (PLAIN.contender, RECIPE.contender)
    seconds = {name: min(story["training_seconds"] for story in bench.stories(name)) for name in timed}
    lines = []
    for composition, runs in scored.items():
        cells = [
            Value.of([run.scores[f"{where}: {metric}"] for run in runs])
            for where in ("test", "test at 0.5", "validation, crosswise")
            for metric in METRICS
        ]
        took = seconds.get(composition.contender)
        ratio = None if took is None else Value(took / seconds[PLAIN.contender])
        lines.append(Line(composition.name, composition.name, (*cells, ratio)))
    several = f"mean over {len(bench.seeds)} seeds ± the sample standard deviation"
    caption = (
        f"{bench.corpus.name}: F1 in percent, {several if len(bench.seeds) > 1 else 'one seed'}. "
        "Weights, temperatures and thresholds are fitted on validation; crosswise: fitted on one half of it and scored "
        f"on the other. Training time of the recipe's model beside {PLAIN.name}'s, of each the fastest seed."
    )
    return Table("recipe", "", tuple(columns), (("", tuple(lines)),), caption)


def intervals(bench: Bench, scored: dict[Composition, list[Scored]]) -> dict[str, dict[str, Interval]]:
    """What the recipe is ahead of each other composition, over documents drawn again; means over seeds."""
    thirds, truth = label_thirds(bench.frequencies), bench.corpus.test.labels
    drawn = {
        composition: [draw_scores(truth, run.given, thirds) for run in runs] for composition, runs in scored.items()
    }

    def mean(composition: Composition) -> Drawn:
        runs = drawn[composition]
        return Drawn(
            {name: float(np.mean([run.scores[name] for run in runs])) for name in runs[0].scores},
            {name: np.mean([run.draws[name] for run in runs], axis=0) for name in runs[0].draws},
        )

    ours = mean(RECIPE)
    return {other.name: ours.against(mean(other)) for other in scored if other != RECIPE}


def draw(bench: Bench, scored: dict[Composition, list[Scored]], path: Path) -> None:
    """F1 of every label against how many training documents carry it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.8, 4.4), layout="constrained")
    axes = figure.add_subplot(xscale="log", xlabel="training documents of the label", ylabel="F1 on test, %")
    order, truth = np.argsort(bench.frequencies), bench.corpus.test.labels
    for (composition, shade), marker in zip(SHADES.items(), "osD", strict=True):
        f1 = 100 * np.mean([Counts.of(truth, csr_array(run.given)).f1() for run in scored[composition]], axis=0)
        axes.scatter(bench.frequencies, f1, s=14, color=shade, alpha=0.55, marker=marker, linewidth=0)
        groups = [group for group in np.array_split(order, 9) if len(group)]
        centres = [np.exp(np.log(np.maximum(bench.frequencies[group], 1)).mean()) for group in groups]
        means = [f1[group].mean() for group in groups]
        axes.plot(centres, means, color=shade, linewidth=2, label=f"{composition.name}: macro-F1 {f1.mean():.1f}")
    figure.legend(frameon=False, loc="outside lower center", ncols=len(SHADES), fontsize=8)
    axes.set_title(f"{bench.corpus.name}: points are labels, lines means of a ninth of them", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def report(bench: Bench) -> None:
    """Score everything there is, and write it down."""
    compositions = [Composition("lexical")]
    compositions += [Composition(name, experts) for name in bench.contenders() for experts in MIXED_IN]
    scored = {
        composition: [bench.score(composition, seed) for seed in bench.seeds]
        for composition in track(compositions, "Scoring")
    }
    made = table(bench, scored)
    ahead = intervals(bench, scored)
    records = {
        "corpus": bench.corpus.name,
        "seeds": list(bench.seeds),
        "models": {name: bench.stories(name) for name in bench.contenders()},
        "scores": {
            composition.name: [{**run.scores, "weights": run.weights} for run in runs]
            for composition, runs in scored.items()
        },
        f"{RECIPE.name} is ahead of": {
            name: {metric: asdict(interval) for metric, interval in by_metric.items()}
            for name, by_metric in ahead.items()
        },
    }
    (bench.folder / "recipe.json").write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n")
    text = (
        markdown(made)
        + "\n"
        + "\n".join(
            f"- {RECIPE.name} is ahead of {name} by {shown(by_metric['macro_f1'])} of macro-F1 and "
            f"{shown(by_metric['micro_f1'])} of micro-F1"
            for name, by_metric in ahead.items()
        )
    )
    (bench.folder / "recipe.md").write_text(text + "\n")
    draw(bench, scored, bench.folder / "recipe.png")
    print(text)


def shown(interval: Interval) -> str:
    """In points, with its 95 % interval over documents."""
    return f"{100 * interval.value:+.1f} ({100 * interval.low:+.1f} to {100 * interval.high:+.1f})"
