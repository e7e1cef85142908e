"""`abalone evaluate`: how good a model is on documents whose labels are known."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from abalone.cli.app import app
from abalone.cli.corpus import Data, one_or_several, read_and_tell, reads_corpus
from abalone.data.errors import printable

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
    trained_on = classifier.predictor_.story.get("provenance", {})
    name, split, texts, labels = to_score(data, split, trained_on.get("sha256"), **reading)
    if not texts:
        raise ValueError(f"the {split} split of {name} is empty; choose another with --split")
    classifier.predictor_.ranks = launched_ranks(device)
    scores, by_label = classifier.evaluate_split(Split(texts, known_labels(labels, classifier.label_names)))
    if as_json:
        typer.echo(
            json.dumps({**scores, "labels": [asdict(label) for label in by_label]}, indent=2, ensure_ascii=False)
        )
        return
    scores_table({split: scores}, title=f"{name}, {len(texts):,} documents")
    labels_table(sorted(by_label, key=lambda label: label.f1)[:SHOWN], title="The labels it knows least")


def to_score(
    data: str, split: str | None, trained_on: object, *, path: Path | None, **options: Any
) -> tuple[str, str, Sequence[str], Sequence[Sequence[str]]]:
    """What is scored: the names of data and split, the texts, and their labels as they stand in the data.

    Not from a `Corpus` where that can be helped: it has no column for a label that its own training split lacks, and
    the model may know that label well.
    """
    import numpy as np
    from scipy.sparse import vstack

    from abalone.data.benchmarks import BENCHMARKS
    from abalone.data.label_lists import LabelLists
    from abalone.data.load import read_source
    from abalone.data.texts import take

    if data not in BENCHMARKS:
        options_of_source = {**options, "text_column": one_or_several(options["text_column"])}
        options_of_source["label_column"] = one_or_several(options["label_column"])
        read = read_source(data, **options_of_source)
        documents, brought = read.documents, any(read.documents.splits)
        # A file without splits that the model was trained on was split then, and is split the same way again.
        if not brought and split is None and read.provenance.get("sha256") != trained_on:
            split = "all"
        if brought or split == "all":
            wanted = split or "test"
            rows = np.arange(len(documents.texts)) if wanted == "all" else documents.rows()[wanted]
            for note in documents.notes:
                typer.echo(f"note: {printable(note)}", err=True)
            return read.name, wanted, take(documents.texts, rows), documents.labels.select(rows)
    corpus = read_and_tell(data, path=path, **options)
    parts = dict(corpus.splits())
    chosen = list(parts.values()) if split == "all" else [parts[split or "test"]]
    labels = vstack([part.labels for part in chosen], format="csr")
    texts = chosen[0].texts if len(chosen) == 1 else [text for part in chosen for text in part.texts]
    return corpus.name, split or "test", texts, LabelLists(corpus.label_names, labels.indices, labels.indptr[1:])
