"""The HTML page: scores, charts and documents of one run, or of several side by side, in one file."""

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

# In this order: a constant must be defined before the first line that needs it runs.
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
        models: finished models by their names on the page.
        output: the file; an old one stays until the new one is complete.
        documents: what to score them on. Without it, the page shows the out-of-fold predictions and metadata of the
            model folders.
    """
    if not models:
        raise InputError("a report needs at least one model")
    page = report_page([run_of(name, model, documents) for name, model in models.items()], documents)
    with written_whole(Path(output)) as file:
        file.write(page.encode())


def report_page(runs: Sequence[ReportedRun], documents: Documents | None) -> str:
    """Return the page as HTML."""
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
    """Return the content security policy: only our own script runs, and nothing is fetched."""
    return (
        f"default-src 'none'; script-src '{_fingerprint(script)}'; style-src '{_fingerprint(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _fingerprint(source: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"


def as_script_data(value: Any) -> str:
    """Return JSON that is safe inside a script element, whatever the texts contain.

    Example:
        >>> as_script_data({"text": "</script>"})
        '{"text":"\\\\u003c/script\\\\u003e"}'
    """
    return json.dumps(_plain(value), separators=(",", ":"), allow_nan=False).translate(NO_MARKUP)


def _plain(value: Any) -> Any:
    """Return plain values of `DIGITS` digits instead of numpy's; NaN and infinity become null."""
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
    """Replace lone surrogates, as in a file name that is not UTF-8, by U+FFFD: they cannot be encoded."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
