"""The application that all commands belong to: help, errors, warnings and exit statuses.

What a user can fix ends in a short `error: …` and status 2, in every command: an `InputError`, a file that cannot be
read or written, an extra that is not installed, and running out of memory (smaller settings help). Any other exception
is a bug, and shows its traceback.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandFunctionType

from abalone import __version__
from abalone.errors import InputError, install_hint, readable, spelling_options
from abalone.launch import is_main, launched

MISTAKES = (InputError, OSError, ImportError)
LONGEST = 2500  # characters of a message
MISTAKE, INTERRUPTED = 2, 130  # exit statuses
RIGHTS = "Ask its owner for the right (`ls -l` shows who that is, `chmod` gives it), or use another place"
NEEDED = ("sklearn", "torch", "transformers")  # for all but ONNX files
SHARED = ("train", "evaluate", "predict")  # commands that several processes can do together
# As one meets them, from a first look to the paper's tables.
ORDER = ("demo", "stats", "train", "evaluate", "predict", "review", "report", "serve", "export", "reproduce")


class Commands(TyperGroup):
    """Run a command, and print errors, warnings and Ctrl-C as lines without a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, in the order of the help."""
        return sorted(super().list_commands(ctx), key=ORDER.index)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options that stand before the command."""
        return without_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        _replace_unprintable()
        with _plain_warnings():
            try:
                _require_streams()
                with _main_process_speaks():
                    return super().invoke(ctx)
            except BrokenPipeError:
                raise  # `abalone … | head`: the reader has seen enough
            except (*MISTAKES, MemoryError, RuntimeError) as error:
                if not is_mistake(error):
                    raise
                # It may be that only this process cannot go on: a file that one machine does not have.
                kind = "error" if is_main() else f"error in process {launched()[0]}"
                _tell(kind, _message(error), typer.colors.RED)
                raise typer.Exit(MISTAKE) from None
            except KeyboardInterrupt as stop:
                if is_main():
                    typer.echo(f"\n{stop}" if str(stop) else "\ninterrupted", err=True)
                raise typer.Exit(INTERRUPTED) from None


class Command(TyperCommand):
    """Show help without Python types, and break its lines only where the terminal ends."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.help = unwrapped(self.help or "")

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, `--help` among them."""
        return without_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; messages of the library spell its settings as options."""
        options = {parameter.name: parameter.opts[0] for parameter in self.params if parameter.opts[0].startswith("--")}
        with spelling_options(options):
            return super().invoke(ctx)


def without_types(parameters: list[Any]) -> list[Any]:
    """Hide Python types, such as `<bool>` or `<path>`, beside flags and arguments."""
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None  # its name says what it is
        elif parameter.metavar is None and getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def unwrapped(text: str) -> str:
    r"""Undo line breaks within paragraphs.

    Example:
        >>> unwrapped("One\n    line.\n\n    Another paragraph.")
        'One line.\n\nAnother paragraph.'
    """
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


class App(typer.Typer):
    """Register commands that have the help of `Command`."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Register a command, as `typer.Typer` does."""
        return super().command(name, **{"cls": Command, **settings})


app = App(
    name="abalone",
    cls=Commands,
    help="Multi-label text classification, made for rare labels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"abalone {__version__}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options that stand before the command."""
    if launched()[1] > 1 and context.invoked_subcommand not in SHARED:
        raise InputError(
            f"abalone {context.invoked_subcommand} runs in one process, but {launched()[1]} were launched: "
            f"only {', '.join(SHARED)} share their work"
        )


def is_mistake(error: Exception) -> bool:
    """Return whether a user can fix it, so that the message is enough."""
    return isinstance(error, MISTAKES) or _is_out_of_memory(error)


def _is_out_of_memory(error: Exception) -> bool:
    # Known by name and words, since torch may not be imported here: a RuntimeError on the processor, its own on a GPU.
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


@contextmanager
def _main_process_speaks() -> Iterator[None]:
    """Silence all of several processes launched together but the main one: they would all print the same."""
    if is_main():
        yield
        return
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show a warning as one line, without the place in the code that gave it."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        _tell("warning", " ".join(str(message).split()), typer.colors.YELLOW)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _tell(kind: str, message: str, colour: str) -> None:
    # In one piece and to `sys.stderr` by name: while a bar is shown, that is a stream which writes above the bar.
    typer.echo(typer.style(f"{kind}: ", fg=colour, bold=True) + readable(message, LONGEST), file=sys.stderr)


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        told = f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
        return f"{told}. {RIGHTS}" if isinstance(error, PermissionError) else told
    if isinstance(error, Exception) and _is_out_of_memory(error):
        reason = str(error).partition("\n")[0]
        return f"out of memory{f' ({reason})' if reason else ''}: use smaller batches or fewer documents"
    if isinstance(error, ModuleNotFoundError) and error.name in NEEDED:  # whoever runs ONNX files may do without
        return f"this needs {error.name}: {install_hint()}"
    return str(error) or type(error).__name__


def _require_streams() -> None:
    """Raise if standard output is closed, as after `>&-`; replace standard input and error if they are.

    Otherwise the next file to be opened gets the number of the closed stream, and what a library prints ends in that
    file.
    """
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open()  # noqa: SIM115 - as long as the process lives
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    if sys.stdout is None:
        raise InputError("standard output is closed: let it go to a file, or to /dev/null if you do not need it")


def _replace_unprintable() -> None:
    # A terminal that cannot show a character of a label gets a question mark rather than a traceback.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
