"""One HTML file that stands alone: figures, documents and scores of one run or of several side by side."""

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from abalone.errors import InputError
from abalone.files.atomic import written_whole
from abalone.report.payload import report_payload
from abalone.report.runs import Documents, ReportedRun, run_of

if TYPE_CHECKING:
    from abalone.classifier import AbaloneClassifier

# In this order: a constant must be there before the first line that needs it runs.
SCRIPTS = (
    *("dom", "chart", "scores", "curves", "tail", "labels", "thirds", "calibration", "map", "clustering"),
    *("confusion", "documents", "versus", "settings", "main"),
)
DIGITS = 6  # of what is written to the page; it shows fewer
# Inside a script element only these could end it or begin a comment. As JSON escapes they are the same text.
NO_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def write_report(
    models: "Mapping[str, AbaloneClassifier]", output: str | Path, documents: Documents | None = None
) -> None:
    """Write a report on one model, or a comparison of several, to an HTML file.

    Args:
        models: finished models by the names that the page is to call them.
        output: the file; an old one stays whole until the new one is complete.
        documents: what to score them on. Without it the page shows what the models remember of their training.
    """
    if not models:
        raise InputError("a report needs at least one model")
    page = report_page([run_of(name, model, documents) for name, model in models.items()], documents)
    with written_whole(Path(output)) as file:
        file.write(page.encode())


def report_page(runs: Sequence[ReportedRun], documents: Documents | None) -> str:
    """The page as text."""
    assets = files("abalone.report") / "assets"
    # One function around all: a name in one file cannot be taken for a name of the browser.
    scripts = "\n".join((assets / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    script = f'(() => {{\n"use strict";\n{scripts}\n}})();\n'
    style = (assets / "page.css").read_text(encoding="utf-8")
    title = f"{' vs '.join(run.name for run in runs)} · ABALONE report"
    return Template((assets / "page.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(_well_formed(title)),
        policy=_policy(script, style),
        style=style,
        data=as_script_data(report_payload(runs, documents)),
        script=script,
    )


def _policy(script: str, style: str) -> str:
    """Nothing runs but our own script, and nothing is fetched: the browser holds the page to it."""
    return (
        f"default-src 'none'; script-src '{_fingerprint(script)}'; style-src '{_fingerprint(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _fingerprint(source: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"


def as_script_data(value: Any) -> str:
    """Plain values as JSON that is safe inside a script element, whatever the texts say.

    Example:
        >>> as_script_data({"text": "</script>"})
        '{"text":"\\\\u003c/script\\\\u003e"}'
    """
    return json.dumps(_plain(value), separators=(",", ":"), allow_nan=False).translate(NO_MARKUP)


def _plain(value: Any) -> Any:
    """Without numpy, without digits that nobody reads; NaN and infinity become null."""
    match value:
        case np.ndarray() | np.generic():
            return _plain(value.tolist())
        case str():
            return _well_formed(value)
        case float():
            return round(value, DIGITS) if math.isfinite(value) else None
        case dict():
            return {_well_formed(str(key)): _plain(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_plain(entry) for entry in value]
        case _:
            return value


def _well_formed(text: str) -> str:
    """With U+FFFD for half a character, say in a file name that is no UTF-8: nothing can write or show one."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
