"""The results file: one finished run a JSON line, only ever appended to."""

import json
import os
import warnings
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from abalone.errors import InputError
from abalone.evaluation.clustering import PROPORTIONS
from abalone.files.schema import NUMBER, misfit
from abalone.reproduce.grid import Run
from abalone.reproduce.identity import differences, encoder_name, portable, run_key

RESULTS, CHECKSUM = "results.jsonl", "checksum"
Record = dict[str, Any]

_SETTINGS = {"encoder": str, "pooling": str, "epochs": NUMBER}
_SCORES = {"*": (NUMBER, None)}
_CURVE = [(NUMBER, None)]
SHAPE = {
    "config": _SETTINGS,
    "starts_from": (None, _SETTINGS),
    "encoder_fingerprint?": str,  # results of older versions have none
    "corpus": {"fingerprint": str},
    "scores": {
        "validation": {"half": {"micro_f1": NUMBER}},
        "test": {"half": _SCORES, "macro": _SCORES, "micro": _SCORES},
    },
    "clustering?": (
        None,
        {"proportions": [NUMBER], "documents": [NUMBER], "silhouette": _CURVE, "davies_bouldin": _CURVE},
    ),
    "forces?": (None, {"attraction": _CURVE, "repulsion": _CURVE}),
    "date": str,
    "seconds": NUMBER,
    "machine": {"cpu": (str, None), "gpu": (str, None)},
}
"""What tables rely on in a record."""


class Results:
    """Finished runs of one corpus.

    A process may be killed in the middle of a line. Such a line is recognised by the missing line end, left out when
    reading, and cut off before the next one is written; anything else that is no record is an error, told by line.

    Args:
        path: the file; it need not exist.
        corpus: the fingerprint of the corpus; results of others are passed over.
    """

    def __init__(self, path: Path, corpus: str) -> None:
        self.path, self.corpus = path, corpus
        self._records: dict[str, Record] = {}
        for record in read_records(path):
            if record["corpus"]["fingerprint"] == corpus:
                self._records[run_key(record["config"], record["starts_from"], corpus)] = record

    def __len__(self) -> int:
        return len(self._records)

    def key(self, run: Run) -> str:
        """The name of a run on this corpus."""
        parent = None if run.starts_from is None else portable(run.starts_from)
        return run_key(portable(run.config), parent, self.corpus)

    def get(self, run: Run) -> Record | None:
        """What was recorded of a run; None if it is not finished."""
        return self._records.get(self.key(run))

    def validation_micro_f1(self, run: Run) -> float | None:
        """What settings are chosen by."""
        record = self.get(run)
        return None if record is None else float(record["scores"]["validation"]["half"]["micro_f1"])

    def all(self) -> list[Record]:
        """Every record, in the order of the file."""
        return list(self._records.values())

    def stored_encoder(self, encoder: str) -> str:
        """The name that `encoder` has here, also when its folder is gone.

        Then nothing but the results can tell the folder `models/bert` from the hub's `models/bert`.
        """
        names = {record["config"]["encoder"] for record in self.all()}
        name = encoder_name(encoder)
        last = PurePath(name).name
        return last if name not in names and last in names else name

    def refuse_other_encoder(self, encoder: str, fingerprint: str) -> None:
        """Raise if results are stored of another encoder with the name of `encoder`."""
        name = encoder_name(encoder)
        for record in self.all():
            if record["config"]["encoder"] == name and record.get("encoder_fingerprint", fingerprint) != fingerprint:
                raise InputError(
                    f"{self.path} has results of another encoder that is called {name}: its weights, architecture or "
                    f"tokenizer are not those of {encoder}. Rename the folder of this one, or give another --output"
                )

    def nearest(self, runs: Sequence[Run]) -> dict[str, tuple[Any, Any]]:
        """The settings, stored and wanted, that keep the most similar result from being one of these runs.

        What a run starts from is not looked at.
        """
        found = (
            differences(record["config"], portable(run.config))
            for run in runs
            for record in self.all()
            if record.get("row") == run.row
        )
        return min(filter(None, found), key=len, default={})

    def append(self, run: Run, record: Record) -> None:
        """Write a finished run to the end of the file; it is on the disk when this returns."""
        whole = {**record, CHECKSUM: _checksum(record)}
        line = json.dumps(whole, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            _cut_unfinished(file.fileno(), self.path)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._records[self.key(run)] = record


def read_records(path: Path) -> list[Record]:
    """The records of a file, without an unfinished one at the end."""
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")
    if unfinished := lines.pop():
        warnings.warn(f"{path}: the last line is not finished ({len(unfinished)} bytes) and is left out", stacklevel=3)
    return [_record(line, path, number) for number, line in enumerate(lines, 1) if line.strip()]


def _record(line: bytes, path: Path, number: int) -> Record:
    try:
        record = json.loads(line)
        wrong = misfit(record, SHAPE) or _misfit_curves(record.get("clustering"))
    except (ValueError, RecursionError):
        wrong = "it is not JSON"
    if wrong:
        raise InputError(
            f"{path}:{number}: not the result of a run ({wrong}): remove the line, or give another --output"
        )
    # Results of older versions have none.
    if (checksum := record.pop(CHECKSUM, None)) is not None and checksum != _checksum(record):
        raise InputError(
            f"{path}:{number}: this result is damaged: its checksum does not match. Remove the line to "
            f"do the run again; if you changed it yourself, remove its {CHECKSUM}"
        )
    return dict(record)


def _checksum(record: Record) -> str:
    """Of what it says, not of how it is spaced."""
    return f"{zlib.crc32(json.dumps(record).encode()):08x}"


def _misfit_curves(clustering: Mapping[str, list[Any]] | None) -> str | None:
    if not clustering:
        return None
    lengths = {len(clustering[name]) for name in ("proportions", "documents", "silhouette", "davies_bouldin")}
    same = clustering["proportions"] == list(PROPORTIONS) and len(lengths) == 1
    return None if same else "it['clustering'] has other proportions"


def _cut_unfinished(file: int, path: Path) -> None:
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        os.ftruncate(file, content.rfind(b"\n") + 1)
