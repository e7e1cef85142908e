"""`abalone demo`: compare models on a bundled corpus, in minutes."""

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
    """Compare ABALONE with BCE and tf-idf on bundled arXiv abstracts, in about four minutes."""
    from abalone.demo import run_demo

    run_demo(output)
