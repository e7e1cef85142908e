"""Stored results: one finished run per JSON line, and the description of the corpus that tables need."""

import json
import os
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from abalone.config import Config
from abalone.data.corpus import Corpus, CorpusStats
from abalone.errors import InputError, readable
from abalone.evaluation.clustering import PROPORTIONS
from abalone.evaluation.diagnostics import positives_in_epoch
from abalone.files.atomic import written_whole
from abalone.files.schema import NUMBER, misfit
from abalone.reproduce.fingerprints import corpus_fingerprint, differences, encoder_name, portable, run_key
from abalone.reproduce.grid import Run
from abalone.reproduce.paper import PUBLISHED

RESULTS, CORPUS = "results.jsonl", "corpus.json"
CHECKSUM = "checksum"
Record = dict[str, Any]

_SETTINGS = {"encoder": str, "pooling": str, "epochs": NUMBER}
_SCORES = {"*": (NUMBER, None)}
_CURVE = [(NUMBER, None)]
_CLUSTERING = {"proportions": [NUMBER], "documents": [NUMBER], "silhouette": _CURVE, "davies_bouldin": _CURVE}
RECORD_SHAPE = {  # what tables rely on
    "config": _SETTINGS,
    "starts_from": (None, _SETTINGS),
    "encoder_fingerprint?": str,  # results of older versions have none
    "corpus": {"fingerprint": str},
    "scores": {
        "validation": {"half": {"micro_f1": NUMBER}},
        "test": {"half": _SCORES, "macro": _SCORES, "micro": _SCORES},
    },
    "clustering?": (None, _CLUSTERING),
    "forces?": (None, {"attraction": _CURVE, "repulsion": _CURVE}),
    "date": str,
    "seconds": NUMBER,
    "machine": {"cpu": (str, None), "gpu": (str, None)},
}

_POSITIVES = {"mean": [(NUMBER, None)], "missing": [(NUMBER, None)]}
_KINDS = {"base": _POSITIVES, "msc": _POSITIVES}
CARD_SHAPE = {
    "name": str,
    "fingerprint": str,
    "published": (str, None),
    "label_names": [str],
    "statistics": {"frequencies": [int], "*": NUMBER},
    "positives": ([{"batch_size": int, "queue_size": int, **_KINDS}], _KINDS),
}
# Older versions stored the positives of a single batch and queue size, mostly these.
_ONE_SIZE = {"batch_size": 32, "queue_size": 512}


class Results:
    """Finished runs of one corpus.

    A process may be killed in the middle of a line. Such a line is recognised by the missing line end, left out when
    reading, and cut off before the next one is written; any other line that is no record is an error with its number.

    Args:
        path: the file; it need not exist.
        corpus: the fingerprint of the corpus; results of others are ignored.
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
        """Return the key of a run on this corpus."""
        parent = None if run.starts_from is None else portable(run.starts_from)
        return run_key(portable(run.config), parent, self.corpus)

    def get(self, run: Run) -> Record | None:
        """Return the record of a run; None if it is not finished."""
        return self._records.get(self.key(run))

    def validation_micro_f1(self, run: Run) -> float | None:
        """Return the score that settings are chosen by; None if the run is not finished."""
        record = self.get(run)
        return None if record is None else float(record["scores"]["validation"]["half"]["micro_f1"])

    def all(self) -> list[Record]:
        """Return every record, in the order of the file."""
        return list(self._records.values())

    def stored_encoder(self, encoder: str) -> str:
        """Return the name that `encoder` has here, also when its folder is gone.

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
        """Return the settings, stored and wanted, in which the most similar result differs from these runs.

        The pre-training that a run starts from is not compared.
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
            content = self.path.read_bytes()
            if content and not content.endswith(b"\n"):  # an unfinished line
                os.ftruncate(file.fileno(), content.rfind(b"\n") + 1)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._records[self.key(run)] = record


def read_records(path: Path) -> list[Record]:
    """Return the records of a file, without an unfinished one at the end."""
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")
    if unfinished := lines.pop():
        warnings.warn(f"{path}: the last line is not finished ({len(unfinished)} bytes) and is left out", stacklevel=3)
    return [_record(line, path, number) for number, line in enumerate(lines, 1) if line.strip()]


def _record(line: bytes, path: Path, number: int) -> Record:
    try:
        record = json.loads(line)
        wrong = misfit(record, RECORD_SHAPE) or _misfit_curves(record.get("clustering"))
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
    """Return a checksum of the values, not of their spacing."""
    return f"{zlib.crc32(json.dumps(record).encode()):08x}"


def _misfit_curves(clustering: Mapping[str, list[Any]] | None) -> str | None:
    if not clustering:
        return None
    same = clustering["proportions"] == list(PROPORTIONS) and len({len(clustering[name]) for name in _CLUSTERING}) == 1
    return None if same else "it['clustering'] has other proportions"


@dataclass(frozen=True)
class CorpusCard:
    """The facts of a corpus that tables show, so that they can be printed again without it.

    Args:
        name: of the corpus.
        fingerprint: of its documents.
        published: its name in the paper, if it is one of the paper's.
        label_names, statistics: as in `Corpus` and `CorpusStats`.
        batch_size, queue_size: of the counted positives.
        positives: for each label the mean number of positives of an anchor, and the share of anchors without one;
            "base" in the batch alone, "msc" with queue and prototypes. None where nothing is known.
    """

    name: str
    fingerprint: str
    published: str | None
    label_names: tuple[str, ...]
    statistics: Mapping[str, Any]
    batch_size: int
    queue_size: int
    positives: Mapping[str, Mapping[str, list[float | None]]]

    @classmethod
    def of(cls, corpus: Corpus, base: Config, published: str | None = None) -> "CorpusCard":
        """Describe `corpus`, with the batch and queue of `base`."""
        sizes = _sizes(base)
        found = positives_in_epoch(corpus.train.labels, **sizes)
        kinds = {"base": {"queue": False, "prototypes": False}, "msc": {"queue": True, "prototypes": True}}
        positives = {
            name: {"mean": rounded(found.mean(**given)), "missing": rounded(found.missing(**given))}
            for name, given in kinds.items()
        }
        statistics = corpus.stats().as_dict()
        fingerprint = corpus_fingerprint(corpus)
        return cls(corpus.name, fingerprint, published, corpus.label_names, statistics, **sizes, positives=positives)

    def save(self, folder: Path) -> None:
        """Write it to `folder`, beside positives of other batches and queues; refuse the folder of another corpus."""
        before = _read_card(folder / CORPUS) if (folder / CORPUS).is_file() else None
        if before is not None and before["fingerprint"] != self.fingerprint:
            raise InputError(
                f"{folder} holds results of other documents ({before['name']}, {before['statistics']['train']:,} to "
                f"train on): give another --output for {self.name}"
            )
        card = asdict(self)
        own = {"batch_size": card.pop("batch_size"), "queue_size": card.pop("queue_size")}
        others = [] if before is None else [found for found in before["positives"] if not own.items() <= found.items()]
        card["positives"] = [*others, {**own, **card["positives"]}]
        with written_whole(folder / CORPUS) as file:
            file.write(json.dumps(card, indent=1, ensure_ascii=False).encode())

    @classmethod
    def load(cls, folder: Path, base: Config | None = None) -> "CorpusCard":
        """Read the card of `folder`, with the positives for the batch and queue of `base`."""
        if not (folder / CORPUS).is_file():
            raise FileNotFoundError(f"no results are stored in {folder}: run the command without --print-only first")
        stored, sizes = _read_card(folder / CORPUS), _sizes(base or Config())
        nothing = [None] * len(stored["label_names"])
        unknown = {kind: {"mean": nothing, "missing": nothing} for kind in _KINDS}
        found = next((found for found in stored["positives"] if sizes.items() <= found.items()), unknown)
        positives = {kind: found[kind] for kind in _KINDS}
        return cls(**stored | sizes | {"label_names": tuple(stored["label_names"]), "positives": positives})


def _sizes(base: Config) -> dict[str, int]:
    return {"batch_size": base.batch_size, "queue_size": base.queue_size}


def _read_card(path: Path) -> dict[str, Any]:
    """Return a stored card, with a list of the positives for each batch and queue."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if wrong := misfit(stored, CARD_SHAPE):
            raise InputError(wrong)
        if isinstance(stored["positives"], dict):
            stored["positives"] = [_ONE_SIZE | stored["positives"]]
        _check_card(stored)
    except (ValueError, TypeError, RecursionError) as error:
        reason = readable(str(error))
        raise InputError(f"{path} is damaged ({reason}): remove it, and run without --print-only") from None
    return {name: stored[name] for name in CARD_SHAPE}


def _check_card(stored: Mapping[str, Any]) -> None:
    """Raise unless every label has a frequency and positives, and the paper's corpora are the paper's."""
    by_label = [row for found in stored["positives"] for kind in _KINDS for row in found[kind].values()]
    labels = len(stored["label_names"])
    if any(len(row) != labels for row in [stored["statistics"]["frequencies"], *by_label]):
        raise InputError(f"not one value for each of the {labels} labels")
    if missing := {field.name for field in fields(CorpusStats)} - stored["statistics"].keys():
        raise InputError(f"it has no {', '.join(sorted(missing))}")
    if stored["published"] is not None and stored["published"] not in PUBLISHED.values():
        raise InputError(f"the paper has no corpus {stored['published']!r}")


def rounded(values: np.ndarray) -> list[float | None]:
    """Return numbers for JSON with six decimals; None for NaN."""
    return [None if np.isnan(value) else round(float(value), 6) for value in values]
