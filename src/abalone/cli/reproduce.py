"""`abalone reproduce`: the paper's tables and figures, for any corpus and encoder."""

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from abalone.cli.app import app
from abalone.cli.options import DEVICE_HELP, Data, read_corpus, reads_corpus
from abalone.errors import InputError, install_hint, printable, readable

if TYPE_CHECKING:
    from abalone.reproduce.grid import Run
    from abalone.reproduce.results import Results
    from abalone.reproduce.runner import Outcome

FAILED = 1  # exit status
T = TypeVar("T", int, float)


def _option(panel: str, metavar: str, text: str, **limits: Any) -> Any:
    return typer.Option(metavar=metavar, help=text, rich_help_panel=panel, **limits)


_grid, _how = partial(_option, "The grid, the paper's by default"), partial(_option, "How to run")


@app.command()
@reads_corpus
def reproduce(
    table: Annotated[
        str,
        typer.Argument(metavar="TABLE", help="datasets, ablation, comparison, representation, imbalance, or all."),
    ],
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for results and tables.")],
    encoder: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A folder or a hub name; by default all-MiniLM-L6-v2.", show_default=False),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="cls (as in the paper), mean, normalized_mean.", show_default=False),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Other settings as YAML, such as max_length.")
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format", metavar="NAME", help="What is printed: markdown, csv or latex; all three are written."
        ),
    ] = "markdown",
    print_only: Annotated[
        bool, typer.Option("--print-only", help="Make the tables from the results stored in DIR, without reading DATA.")
    ] = False,
    rows: Annotated[str | None, _grid("NAMES", "Only these rows, such as MSC,BCE.")] = None,
    seeds: Annotated[str | None, _grid("LIST", "Seeds; by default 0,1,2.")] = None,
    temperatures: Annotated[str | None, _grid("LIST", "Temperatures; by default 0.07,0.1,0.2.")] = None,
    learning_rates: Annotated[str | None, _grid("LIST", "Learning rates; by default 5e-5,2e-5.")] = None,
    epochs: Annotated[int | None, _grid("N", "Contrastive epochs; by default 80.", min=1)] = None,
    baseline_epochs: Annotated[str | None, _grid("LIST", "Epochs of supervised losses; by default 10,40,80.")] = None,
    finetune_epochs: Annotated[str | None, _grid("LIST", "Epochs of fine-tuning; by default 5,10.")] = None,
    jobs: Annotated[int, _how("N", "Runs at the same time, on one device.", min=1)] = 1,
    stop_after: Annotated[float | None, _how("MINUTES", "Start no new run after this long.", min=0)] = None,
    device: Annotated[str | None, _how("NAME", DEVICE_HELP)] = None,
    precision: Annotated[str | None, _how("NAME", "auto, fp32, bf16 or fp16.")] = None,
    **reading: Any,
) -> None:
    """Regenerate a table or figure of the paper on DATA.

    Finished runs are kept in DIR/results.jsonl and are not repeated: run the same command again to continue.
    """
    from abalone.config import Config
    from abalone.data.benchmarks import BENCHMARKS
    from abalone.device import choose_device
    from abalone.reproduce.grid import TABLES, Grid, chosen_experiments, refuse_decided, row_names, wanted_runs
    from abalone.reproduce.layout import FORMATS
    from abalone.reproduce.paper import PUBLISHED
    from abalone.reproduce.results import RESULTS, CorpusCard, Results
    from abalone.reproduce.runner import run_experiments
    from abalone.reproduce.tables import present
    from abalone.reproduce.view import View
    from abalone.training.interruption import TrainingTerminated, told_to_stop

    # All options are checked before anything slow.
    if table not in {*TABLES, "all"}:
        raise InputError(f"no table is called {table!r}; there are {', '.join(TABLES)}, and all")
    if form not in FORMATS:
        raise InputError(f"no format is called {form!r}; there are {', '.join(FORMATS)}")
    names = TABLES if table == "all" else (table,)
    experiments = chosen_experiments(names, None if rows is None else row_names(rows.split(",")))
    if {"representation", "imbalance"} & {experiment.name for experiment in experiments} and not find_spec(
        "matplotlib"
    ):
        raise ImportError(f"pictures need matplotlib: {install_hint('plot')}")
    given = {"encoder": encoder, "pooling": pooling, "device": device, "precision": precision}
    base = (Config() if config is None else Config.from_yaml(config)).replace(
        **{name: value for name, value in given.items() if value is not None}
    )
    refuse_decided(base)
    tried = {
        "seeds": _numbers("seeds", seeds, int),
        "temperatures": _numbers("temperatures", temperatures, float),
        "learning_rates": _numbers("learning_rates", learning_rates, float),
        "epochs": epochs,
        "baseline_epochs": _numbers("baseline_epochs", baseline_epochs, int),
        "finetune_epochs": _numbers("finetune_epochs", finetune_epochs, int),
    }
    grid = Grid(**{name: value for name, value in tried.items() if value is not None}).capped()  # type: ignore[arg-type]

    outcome = None
    if not print_only:
        choose_device(base.device)
        corpus = read_corpus(data, **reading)
        with told_to_stop():
            try:
                outcome = run_experiments(
                    experiments,
                    corpus,
                    grid,
                    base,
                    output,
                    published=PUBLISHED.get(corpus.name) if data in BENCHMARKS else None,
                    jobs=jobs,
                    stop_after=stop_after,
                    tell=lambda line: typer.echo(readable(line), err=True),
                )
            except (KeyboardInterrupt, TrainingTerminated) as stop:
                kind = KeyboardInterrupt if isinstance(stop, KeyboardInterrupt) else TrainingTerminated
                raise kind("stopped; run the same command again to continue") from None
    card = CorpusCard.load(output, base)
    results = Results(output / RESULTS, card.fingerprint)
    if print_only:
        base = base.replace(encoder=results.stored_encoder(base.encoder))
    wanted = wanted_runs(experiments, grid, base, results)
    # Rows that train nothing fit any grid: they do not tell whether this one is stored.
    telling = [run for run in wanted if run.config.epochs] or wanted
    if print_only and wanted and not any(map(results.get, telling)):
        raise InputError(_no_match(results, telling))
    for made in present(names, experiments, View(card, grid, base, results), output):
        typer.echo("\n".join(map(printable, FORMATS[form][1](made).split("\n"))))
    typer.echo(f"written to {output}", err=True)
    if outcome is not None:
        _tell_outcome(outcome)


def _numbers(name: str, given: str | None, kind: Callable[[str], T]) -> tuple[T, ...] | None:
    if given is None:
        return None
    try:
        return tuple(kind(part) for part in given.split(","))
    except ValueError:
        whole = "whole numbers" if kind is int else "numbers"
        raise InputError(f"--{name.replace('_', '-')} must be {whole} separated by commas, got {given!r}") from None


def _no_match(results: "Results", wanted: "Sequence[Run]") -> str:
    """Return the message for options that no stored run matches: what is stored, and how the nearest run differs."""
    configs = [record["config"] for record in results.all()]
    kinds = sorted({f"{c['encoder']}, {c['pooling']} pooling, {c['epochs']} epochs" for c in configs})
    found = "; ".join(kinds) or "nothing"
    nearest = "; ".join(f"{name} {stored}, not {asked}" for name, (stored, asked) in results.nearest(wanted).items())
    but = f"; the nearest has {nearest}" if nearest else ""
    return f"no stored run has these settings; stored is: {found}{but}. Give the options of that command again."


def _tell_outcome(outcome: "Outcome") -> None:
    """Print what was not done, and why; a failed run is status 1."""
    if outcome.left:
        typer.echo(f"{outcome.left} runs are left: run the same command again to continue", err=True)
    if not outcome.failures:
        return
    typer.echo(f"{len(outcome.failures)} runs failed; run the same command again to retry them:", err=True)
    for failure in outcome.failures:
        typer.echo(readable(f"  {failure.task.run}: {failure.message}"), err=True)
        typer.echo(f"    see {failure.task.folder}", err=True)
    raise typer.Exit(FAILED)
