"""`abalone evaluate`: how good a model is on documents whose labels are known."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from abalone.cli.app import app
from abalone.cli.corpus import Data, reads_corpus
from abalone.cli.scored import to_score

SHOWN = 10  # labels at the bad end of the per-label table


@app.command()
@reads_corpus
def evaluate(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A model folder.")],
    data: Data,
    split: Annotated[
        str | None,
        typer.Option(help="train, validation, test or all; by default test, or all of a file that brings no splits."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda …")] = "auto",
    **reading: Any,
) -> None:
    """Score a model on one split of DATA: overall, by thirds of the labels, and label by label."""
    from abalone.classifier import AbaloneClassifier
    from abalone.cli.tables import labels_table, scores_table
    from abalone.data.corpus import SPLITS, Split
    from abalone.data.memory import known_labels
    from abalone.training.processes import launched_ranks

    if split not in {None, "all", *SPLITS}:
        raise ValueError(f"no split is called {split!r}; there are {', '.join(SPLITS)}, and all")
    classifier = AbaloneClassifier.from_pretrained(model, device=device)
    trained_on = {str(model): classifier.predictor_.story.get("provenance", {})}
    name, split, texts, labels = to_score(data, split, trained_on, **reading)
    classifier.predictor_.ranks = launched_ranks(device)
    scores, by_label = classifier.evaluate_split(Split(texts, known_labels(labels, classifier.label_names)))
    if as_json:
        typer.echo(
            json.dumps({**scores, "labels": [asdict(label) for label in by_label]}, indent=2, ensure_ascii=False)
        )
        return
    scores_table({split: scores}, title=f"{name}, {len(texts):,} documents")
    labels_table(sorted(by_label, key=lambda label: label.f1)[:SHOWN], title="The labels it knows least")
