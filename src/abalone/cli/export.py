"""`abalone export`: write a model folder as one ONNX file that runs without torch."""

from pathlib import Path
from typing import Annotated

import typer

from abalone.cli.app import app

WORTH_IT = 1.2  # times as fast as full precision


@app.command()
def export(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A model folder.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The .onnx file to write.")],
    int8: Annotated[
        bool, typer.Option("--int8", help="Quantize weights to 8 bits: smaller, faster, slightly less exact.")
    ] = False,
) -> None:
    """Write a model as one ONNX file that runs without torch, and check it against the model.

    `abalone predict`, `evaluate` and `serve` take the file in place of the model folder. It holds the network, the
    tokenizer, the label names, the thresholds, and the tf-idf model and nearest neighbours if the model uses them:
    for neighbours, that is the embeddings and labels of all training documents, but not their texts. The file of a
    model without an encoder holds no network.
    """
    from abalone.inference.export import export as write
    from abalone.inference.folder import load

    written = write(load(model, device="cpu"), output, int8=int8)
    typer.echo(
        f"{written.path}: {_size(written.bytes)}; on {written.texts} sample texts its probabilities differ by "
        f"{written.mean_difference:.2g} on average, {written.largest_difference:.2g} at most"
    )
    if int8:
        typer.echo(_about_speed(written.speed))
    typer.echo(f"next: abalone predict {written.path} texts.txt", err=True)


def _size(number: int) -> str:
    return f"{number / 1e6:,.1f} MB" if number >= 1e5 else f"{number / 1e3:,.1f} kB"


def _about_speed(speed: float) -> str:
    told = f"int8 is {speed:.2g}× as fast as full precision on this processor"
    if speed >= WORTH_IT:
        return told
    return f"{told}: the file is smaller, but not worth it for speed. To run it here, export without --int8"
