"""Errors about what a user gave; in their messages settings, extras to install, and text that is safe to print."""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any

LONGEST = 800  # characters of a reason or a hint: files can hold column names of a megabyte


class InputError(ValueError):
    """Refuse what a user gave: a setting, an argument, a file.

    The command line prints the message alone. Any other `ValueError` is a bug there, and shows its traceback.
    """


class DataError(InputError):
    """Data that cannot be used as it is.

    The message reads `file:line: reason` followed by a hint, with whatever of these is known.

    Args:
        reason: what is wrong.
        path: of the file.
        line: in it.
        hint: what to do.
    """

    def __init__(
        self,
        reason: str,
        *,
        path: str | Path | None = None,
        line: int | None = None,
        hint: str | None = None,
    ) -> None:
        self.reason, self.path, self.line, self.hint = reason, path, line, hint
        where = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(readable(where) + readable(reason) + (f"\n  {readable(hint)}" if hint else ""))


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


def readable(text: str, longest: int = LONGEST) -> str:
    r"""Return a message, or what it quotes of a file: cut where it is long, and `printable` line by line.

    Further lines are indented, so that none of them passes for a message of its own.

    >>> print(readable("no label 'a\nerror: all is lost'"))
    no label 'a
      error: all is lost'
    """
    first, *others = _cut(text, longest).split("\n")
    lines = [first, *(line if line.startswith("  ") else f"  {line}" for line in others)]
    return _cut("\n".join(map(printable, lines)), longest)


def printable(text: str) -> str:
    r"""Return a text, such as a name, in one line and with nothing in it that a terminal would obey.

    That is colours, bells, writing from right to left, and line breaks, after which a name could go on as a message.

    >>> printable("a \x1b[31mred label\nerror: all is lost")
    'a \\x1b[31mred label\\nerror: all is lost'
    """
    return text if text.isprintable() else _escaped(text, lambda c: c.encode("unicode_escape").decode())


def printable_json(value: object, **options: Any) -> str:
    r"""Return a value as JSON, with escapes for what a terminal would obey: whoever reads the JSON gets it back.

    >>> printable_json(["naïve", "\x9b31mred"])
    '["naïve", "\\u009b31mred"]'
    """
    text = json.dumps(value, ensure_ascii=False, **options)
    if text.isprintable():
        return text
    # Within a string there is no line break any more; those between are of the layout.
    return _escaped(text, lambda c: c if c == "\n" else json.dumps(c)[1:-1])


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    return "".join(c if c.isprintable() else escape(c) for c in text)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest * 3 // 4]} … {text[-longest // 4 :]}"
