"""Errors about what a user gave, and what their messages say of settings and of extras to install."""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType


class InputError(ValueError):
    """Refuse what a user gave: a setting, an argument, a file.

    The command line prints the message alone. Any other `ValueError` is a bug there, and shows its traceback.
    """


@contextmanager
def as_input_error() -> Iterator[None]:
    """Turn a `ValueError` into an `InputError`: of `losses`, say, which import nothing of ours, about a user's setting.

    Example:
        >>> with as_input_error():
        ...     raise ValueError("temperature must be above 0")
        Traceback (most recent call last):
            ...
        abalone.errors.InputError: temperature must be above 0
    """
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        raise InputError(*error.args) from error


_options: ContextVar[Mapping[str, str]] = ContextVar("options", default=MappingProxyType({}))


@contextmanager
def spelling_options(options: Mapping[str, str]) -> Iterator[None]:
    """Let `spelled` write these settings as options of a command, such as {"text_column": "--text-column"}."""
    before = _options.set(options)
    try:
        yield
    finally:
        _options.reset(before)


def spelled(setting: str, value: object = None) -> str:
    """Return a setting as the reader of a message types it: an argument in Python, an option in a terminal.

    Args:
        setting: its name in Python.
        value: what to set it to; `None` names the setting alone.

    Example:
        >>> spelled("text_column"), spelled("encoding", "cp1252"), spelled("skip_bad_rows", True)
        ('text_column=', "encoding='cp1252'", 'skip_bad_rows=True')
        >>> with spelling_options({"encoding": "--encoding", "skip_bad_rows": "--skip-bad-rows"}):
        ...     spelled("text_column"), spelled("encoding", "cp1252"), spelled("skip_bad_rows", True)
        ('text_column=', '--encoding cp1252', '--skip-bad-rows')
    """
    option = _options.get().get(setting)
    if option is None:
        return f"{setting}=" if value is None else f"{setting}={value!r}"
    return option if value is None or value is True else f"{option} {shlex.quote(str(value))}"


def install_hint(extra: str = "") -> str:
    """Return how to install ABALONE with an extra, for messages about a library that is missing.

    Example:
        >>> install_hint("serve")
        "run pip install '.[serve]' in a clone of ABALONE"
    """
    what = f"'.[{extra}]'" if extra else "."
    return f"run pip install {what} in a clone of ABALONE"
