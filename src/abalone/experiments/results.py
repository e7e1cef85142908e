"""The results file: one finished run a JSON line, only ever appended to."""

import json
import os
import warnings
import zlib
from pathlib import Path
from typing import Any

from abalone.experiments.grid import Run
from abalone.experiments.identity import run_key

RESULTS, CHECKSUM = "results.jsonl", "checksum"
Record = dict[str, Any]


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
        parent = None if run.starts_from is None else run.starts_from.to_dict()
        return run_key(run.config.to_dict(), parent, self.corpus)

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
        whole = isinstance(record, dict) and {"config", "starts_from", "corpus", "scores"} <= record.keys()
    except ValueError:
        whole = False
    if not whole:
        raise ValueError(f"{path}:{number}: no result of a run; remove the line, or name another --output")
    # Results of older versions have none.
    if (checksum := record.pop(CHECKSUM, None)) is not None and checksum != _checksum(record):
        raise ValueError(
            f"{path}:{number}: this result is damaged: its checksum is another. Remove the line, and the run is done "
            f"again; if you changed it yourself, remove its {CHECKSUM}"
        )
    return dict(record)


def _checksum(record: Record) -> str:
    """Of what it says, not of how it is spaced."""
    return f"{zlib.crc32(json.dumps(record).encode()):08x}"


def _cut_unfinished(file: int, path: Path) -> None:
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        os.ftruncate(file, content.rfind(b"\n") + 1)
