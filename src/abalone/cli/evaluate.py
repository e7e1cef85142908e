"""`abalone evaluate`: how good a model is on documents whose labels are known."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from abalone.cli.app import app
from abalone.cli.corpus import (
    Data,
    DataPath,
    LabelColumn,
    LabelSeparator,
    SkipBadRows,
    SplitColumn,
    TextColumn,
)
from abalone.cli.train import read_and_tell

SHOWN = 10  # labels at the bad end of the per-label table


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A model folder.")],
    data: Data,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda …")] = "auto",
    path: DataPath = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    split_column: SplitColumn = None,
    label_separator: LabelSeparator = None,
    skip_bad_rows: SkipBadRows = False,
) -> None:
    """Score a model on one split of DATA: overall, by thirds of the labels, and label by label."""
    from abalone.classifier import AbaloneClassifier
    from abalone.cli.tables import labels_table, scores_table
    from abalone.data.corpus import SPLITS, Split
    from abalone.data.memory import known_labels, label_lists

    if split not in SPLITS:
        raise ValueError(f"no split is called {split!r}; there are {', '.join(SPLITS)}")
    corpus = read_and_tell(
        data,
        path=path,
        text_column=text_column,
        label_column=label_column,
        split_column=split_column,
        label_separator=label_separator,
        skip_bad_rows=skip_bad_rows,
    )
    part = dict(corpus.splits())[split]
    if len(part) == 0:
        raise ValueError(f"the {split} split of {corpus.name} is empty; choose another with --split")
    classifier = AbaloneClassifier.from_pretrained(model, device=device)
    labels = known_labels(label_lists(part.labels, corpus.label_names), classifier.label_names)
    scores, by_label = classifier.evaluate_split(Split(part.texts, labels))
    if as_json:
        typer.echo(
            json.dumps({**scores, "labels": [asdict(label) for label in by_label]}, indent=2, ensure_ascii=False)
        )
        return
    scores_table({split: scores}, title=f"{corpus.name}, {len(part):,} documents")
    labels_table(sorted(by_label, key=lambda label: label.f1)[:SHOWN], title="The labels it knows least")
