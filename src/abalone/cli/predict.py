"""`abalone predict`: texts in, one JSON line a text out."""

import codecs
import json
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from abalone.cli.app import app

BLOCK = 256  # texts in memory at a time


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A model folder.")],
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Texts: a table, or lines of text; - is standard input.")
    ] = "-",
    text_column: Annotated[list[str] | None, typer.Option(help="Of a table or JSON lines. Several are joined.")] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of every label.")] = False,
    top: Annotated[int | None, typer.Option(min=1, help="Give this many most probable labels instead.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda …")] = "auto",
) -> None:
    """Predict the labels of texts; the answer is one JSON line a text, in order.

    From standard input a line is a text, or a JSON object with a `text`. Lines are answered as they come, in
    constant memory.
    """
    from abalone.classifier import AbaloneClassifier
    from abalone.device import choose_device

    choose_device(device)  # a wrong name is told at once, not with the first text, which may be long in coming
    classifier = AbaloneClassifier.from_pretrained(model, device=device)
    names = classifier.label_names
    for texts in texts_in_blocks(file, text_column or None):
        scores = classifier.predict_proba(texts)
        chosen = classifier.predictor_.decision.labels(scores)
        for row, given in zip(scores, chosen, strict=True):
            order = (-row).argsort(kind="stable")
            labels = [names[j] for j in (order[:top] if top else order) if top or given[j]]
            answer: dict[str, object] = {"labels": labels}
            if probabilities:
                answer["probabilities"] = {names[j]: round(float(row[j]), 6) for j in order}
            typer.echo(json.dumps(answer, ensure_ascii=False))
        sys.stdout.flush()


def texts_in_blocks(file: str, text_column: list[str] | None) -> Iterator[list[str]]:
    """Texts in lists of up to `BLOCK`."""
    from abalone.data.unlabelled import read_texts

    if file == "-":
        yield from texts_of_stream(sys.stdin.fileno(), text_column)
    else:
        rest = iter(read_texts(Path(file), text_column))
        while block := list(islice(rest, BLOCK)):
            yield block


def texts_of_stream(descriptor: int, text_column: list[str] | None) -> Iterator[list[str]]:
    """The texts of a stream's lines, as they come; the lines before one that cannot be used are still given."""
    from abalone.data.errors import DataError
    from abalone.data.unlabelled import text_of_line

    number = 0
    for lines in lines_as_they_come(descriptor):
        texts: list[str] = []
        for line in lines:
            number += 1
            try:
                texts.append(text_of_line(line, text_column))
            except ValueError as error:
                yield texts
                raise DataError(str(error), path="standard input", line=number) from None
        yield texts


def lines_as_they_come(descriptor: int) -> Iterator[list[str]]:
    """Whole lines of a stream, as many at a time as have arrived: one from a person, many from a file.

    Bytes that are not UTF-8 become replacement characters, so that a stream goes on.
    """
    pending, begun = b"", False
    while chunk := os.read(descriptor, 1 << 16):
        if not begun:
            chunk, begun = chunk.removeprefix(codecs.BOM_UTF8), True
        *lines, pending = (pending + chunk).split(b"\n")
        for start in range(0, len(lines), BLOCK):
            yield [line.decode("utf-8", "replace").rstrip("\r") for line in lines[start : start + BLOCK]]
    if pending:
        yield [pending.decode("utf-8", "replace").rstrip("\r")]
