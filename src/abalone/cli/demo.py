"""`abalone demo`: the main job on a bundled corpus, as much of it as fits into minutes here."""

from pathlib import Path
from typing import Annotated

import typer

from abalone.cli.app import app


@app.command()
def demo(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Keep the model in this folder.")
    ] = None,
) -> None:
    """Train on bundled arXiv abstracts beside BCE and tf-idf, and show what came out, in about four minutes."""
    from abalone.demo import run_demo

    run_demo(output)
