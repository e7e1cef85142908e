"""`abalone predict`: texts in, one JSON line a text out."""

import codecs
import json
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from abalone.cli.app import app
from abalone.config import Precision

if TYPE_CHECKING:
    from abalone.model.predictor import Predictor
    from abalone.serving.onnx_model import OnnxModel

BLOCK = 256  # texts in memory at a time


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, or an ONNX file made from one.")],
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Texts: a table, or lines of text; - is standard input.")
    ] = "-",
    text_column: Annotated[list[str] | None, typer.Option(help="Of a table or JSON lines. Several are joined.")] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of every label.")] = False,
    top: Annotated[int | None, typer.Option(min=1, help="Give this many most probable labels instead.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda …")] = "auto",
    precision: Annotated[
        Precision | None, typer.Option(help="bf16 is faster where the hardware has it, and exact to about 0.01.")
    ] = None,
) -> None:
    """Predict the labels of texts; the answer is one JSON line a text, in order.

    From standard input a line is a text, or a JSON object with a `text`. Lines are answered as they come, in
    constant memory. An ONNX file runs on the processor, without torch.
    """
    predictor = open_onnx(model, device, precision) if model.is_file() else open_folder(model, device, precision)
    names = predictor.label_names
    for texts in texts_in_blocks(file, text_column or None):
        scores = predictor.probabilities(texts)
        chosen = predictor.decision.labels(scores)
        for row, given in zip(scores, chosen, strict=True):
            order = (-row).argsort(kind="stable")
            labels = [names[j] for j in (order[:top] if top else order) if top or given[j]]
            answer: dict[str, object] = {"labels": labels}
            if probabilities:
                answer["probabilities"] = {names[j]: round(float(row[j]), 6) for j in order}
            typer.echo(json.dumps(answer, ensure_ascii=False))
        sys.stdout.flush()


def open_folder(model: Path, device: str, precision: Precision | None = None) -> "Predictor":
    """The model in a folder."""
    from abalone.device import choose_device
    from abalone.model.folder import load

    choose_device(device)  # a wrong name is told at once, not with the first text, which may be long in coming
    settings = {} if precision is None else {"precision": precision}
    return load(model, device=device, **settings)


def open_onnx(model: Path, device: str, precision: Precision | None = None) -> "OnnxModel":
    """The model in an ONNX file. Nothing here may import torch, even by way of another module."""
    from abalone.serving.onnx_model import OnnxModel

    if device not in ("auto", "cpu"):
        raise ValueError(f"an ONNX file runs on the processor, not on device={device!r}; give the model folder instead")
    if precision is not None:
        raise ValueError("the precision of an ONNX file is fixed when it is exported; give the model folder instead")
    opened = OnnxModel.load(model)
    if opened.left_out:
        told = ", ".join(f"{name} (weight {weight:.2f})" for name, weight in opened.left_out.items())
        typer.echo(f"note: {model} leaves out what was mixed in where it comes from: {told}", err=True)
    return opened


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
