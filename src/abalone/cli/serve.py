"""`abalone serve`: serve a model over HTTP, with a page to try it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abalone.cli.app import app
from abalone.cli.options import DataPath, Device, open_model, read_training_data
from abalone.errors import InputError, install_hint

if TYPE_CHECKING:
    from abalone.serving.predictions import Served


@app.command()
def serve(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, or an ONNX file made from one.")],
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 lets other machines connect.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    evidence: Annotated[
        str | None,
        typer.Option(
            metavar="DATA", help="The training data, to show the nearest training documents beside predictions."
        ),
    ] = None,
    path: DataPath = None,
    max_texts: Annotated[int, typer.Option(metavar="N", min=1, help="Most texts per request.")] = 256,
    max_characters: Annotated[int, typer.Option(metavar="N", min=1, help="Most characters per text.")] = 100_000,
    max_body: Annotated[int, typer.Option(min=1, metavar="MIB", help="Largest request, in MiB.")] = 4,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A file with the key that requests have to bring. Or set ABALONE_API_KEY to the key."
        ),
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Write a line of JSON per request, without texts, to standard output.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Serve a model over HTTP: a page to try it, and an API with its reference at /docs."""
    try:
        from abalone.serving.app import create_app
        from abalone.serving.limits import Limits
        from abalone.serving.middleware import read_key, write_access_log
        from abalone.serving.server import address, bind, own_hosts
        from abalone.serving.server import serve as serve_app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in (
            "fastapi",
            "h11",
            "opentelemetry",
            "uvicorn",
            "prometheus_client",
            "starlette",
            "pydantic",
        ):
            raise
        raise ImportError(f"serving needs {error.name}: {install_hint('serve')}") from None
    if path is not None and evidence is None:
        raise InputError("--path is where the files of --evidence are: give both")
    key = read_key(api_key_file)
    if access_log:
        write_access_log()
    # oneDNN keeps kernels for the last 1,024 shapes of products, and nearly every batch has shapes of its own. Keeping
    # 64 is as fast, and takes 40 MB less after 400 batches. The variable is read at the first product.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    limits = Limits(max_body * 1024 * 1024, max_texts, max_characters)
    with bind(host, port) as bound:
        served = read_model(model, evidence, path, device)
        where = address(bound)
        hosts = own_hosts(host, bound)
        if hosts is None and key is None:
            typer.echo(
                "note: anyone who can reach this machine can use the server. Pass --api-key-file, or set "
                "ABALONE_API_KEY, to ask for a key.",
                err=True,
            )
        labels = f"{len(served.classifier.label_names):,} labels"
        busy = serve_app(
            create_app(served, limits=limits, hosts=hosts, key=key),
            bound,
            lambda: typer.echo(f"{served.name}, {labels}, at {where} (Ctrl-C stops)", err=True),
        )
    typer.echo("stopped", err=True)
    if busy:  # as Python ends, a thread within a library in C++ would crash the process
        os._exit(0)


def read_model(model: Path, evidence: str | None, path: Path | None, device: str) -> "Served":
    """Return the model, warmed up, with the training documents it is to show."""
    from abalone.serving.predictions import Query, Served

    classifier = open_model(model, device)
    story: Mapping[str, Any] = classifier.story  # which an ONNX file of before does not have
    documents = None
    if evidence is not None:
        from abalone.inference.evidence import Evidence, as_trained_on

        corpus = read_training_data(evidence, story.get("provenance", {}), path)
        trained = as_trained_on(corpus, story)
        if len(trained.train) > len(corpus.train):
            typer.echo("note: evidence is training and validation documents: the model was trained on both.", err=True)
        documents = Evidence.of(trained, classifier.vectors, model)
    frequencies = story.get("statistics", {}).get("frequencies")
    name = model.resolve().name.removesuffix(".onnx")
    served = Served(name, classifier, frequencies, documents, story.get("label_f1"))
    served.answer([Query("A first text, so that nobody waits for what is loaded at the first use.")])
    return served
