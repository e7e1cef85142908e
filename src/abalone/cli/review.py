"""`abalone review`: list training labels that are probably wrong or missing, for a person to decide."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from abalone.cli.app import app
from abalone.cli.options import Data, DataPath, read_training_data, tell
from abalone.errors import InputError

if TYPE_CHECKING:
    from abalone.data.corpus import Corpus
    from abalone.data.corrections import Suggestion
    from abalone.evaluation.out_of_fold import OutOfFold
    from abalone.evaluation.review import Suspects

MANY = 500  # rows, about as many as a person decides in a day


@app.command()
def review(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.", show_default=False)],
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The CSV file to write.", show_default=False)
    ],
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="Rows to write at most.")] = MANY,
    path: DataPath = None,
) -> None:
    """List labels of training documents that are probably wrong or missing, the most doubtful first.

    DATA is what MODEL was trained on. Each document is judged by a model that was not trained on it, and by its other
    labels. Open the file in a spreadsheet and write yes or no into its column decision; then train again with
    --corrections FILE.
    """
    from abalone.data.corrections import write_suggestions
    from abalone.evaluation.review import find_suspects
    from abalone.files.atomic import written_whole
    from abalone.inference.folder import load_judged

    if model.is_file():
        raise InputError(f"{model} is a file, which has no out-of-fold predictions: give its model folder")
    if output.exists():
        raise InputError(f"{output} exists and may hold decisions: choose another name, or remove it first")
    judged = load_judged(model)
    answers, frequencies = judged.out_of_fold, judged.frequencies
    assert answers is not None  # or `load_judged` had said so
    suspects = find_suspects(answers, frequencies).likely()
    texts = _texts(read_training_data(data, judged.story.get("provenance", {}), path), answers, suspects)
    rows = list(_suggestions(suspects, answers, texts, judged.label_names, frequencies))
    if not rows:
        tell([f"no label is doubtful, so {output} was not written."])
        return
    with written_whole(output) as file:
        write_suggestions(file, rows[:top])
    missing = sum(row.add for row in rows)
    may = f"{len(rows) - missing:,} labels may be wrong, {missing:,} may be missing"
    tell([f"{may}; {output} has {len(rows[:top]):,} of them."])
    file_option = shlex.join(["--corrections", str(output)])
    typer.echo(f"next: decide them, and train as before with {file_option} after any earlier files", err=True)


def _texts(corpus: "Corpus", answers: "OutOfFold", suspects: "Suspects") -> dict[int, str]:
    """Return the texts of the suspects by their hashes."""
    import numpy as np

    from abalone.data.hashes import text_hashes

    wanted = set(answers.documents[suspects.documents].tolist())
    texts: dict[int, str] = {}
    lacking = np.ones(len(answers), dtype=bool)
    for _, split in corpus.splits():
        hashes = text_hashes(split.texts)
        lacking &= ~np.isin(answers.documents, hashes)
        texts |= {key: split.texts[row] for row, key in enumerate(hashes.tolist()) if key in wanted}
    number = np.count_nonzero(lacking)
    if number == len(answers):
        raise InputError(f"{corpus.name} has none of the {number:,} documents that the model was trained on")
    if number:
        tell([f"{corpus.name} lacks {number:,} of {len(answers):,} documents that the model was trained on."])
    return texts


def _suggestions(
    suspects: "Suspects",
    answers: "OutOfFold",
    texts: Mapping[int, str],
    names: Sequence[str],
    frequencies: Sequence[int],
) -> "Iterator[Suggestion]":
    """Yield a suggestion for each suspect whose text is known, once for all copies of the text."""
    from abalone.data.corrections import Suggestion

    told = set()
    for document, label, given, doubt, probability in zip(
        *(column.tolist() for column in (suspects.documents, suspects.labels, suspects.given)),
        *(column.tolist() for column in (suspects.doubts, suspects.probabilities)),
        strict=True,
    ):
        key = int(answers.documents[document])
        if key not in texts or (key, label) in told:
            continue
        told.add((key, label))
        own = answers.labels.indices[answers.labels.indptr[document] : answers.labels.indptr[document + 1]]
        carried = tuple(names[column] for column in sorted(own.tolist()))
        yield Suggestion(texts[key], names[label], not given, doubt, probability, frequencies[label], carried)
