"""What is kept of a corpus beside the results on it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from abalone.config import Config
from abalone.data.corpus import Corpus, CorpusStats
from abalone.errors import InputError
from abalone.evaluation.diagnostics import positives_in_epoch
from abalone.files.atomic import written_whole
from abalone.files.errors import readable
from abalone.files.schema import NUMBER, misfit
from abalone.reproduce.fingerprints import corpus_fingerprint
from abalone.reproduce.paper import PUBLISHED

CORPUS = "corpus.json"
_STATISTICS = {field.name for field in fields(CorpusStats)}
_POSITIVES = {"mean": [(NUMBER, None)], "missing": [(NUMBER, None)]}
_FOUND = {"base": _POSITIVES, "msc": _POSITIVES}
_ONCE = {"batch_size": 32, "queue_size": 512}  # older versions kept the positives of one batch and queue, mostly these
SHAPE = {
    "name": str,
    "fingerprint": str,
    "published": (str, None),
    "label_names": [str],
    "statistics": {"frequencies": [int], "*": NUMBER},
    "positives": ([{"batch_size": int, "queue_size": int, **_FOUND}], _FOUND),
}


@dataclass(frozen=True)
class CorpusCard:
    """What tables need to know of a corpus, so that they can be printed again without it.

    Args:
        name: of the corpus.
        fingerprint: of its documents.
        published: its name in the paper, if it is one of the paper's.
        label_names, statistics: as in `Corpus` and `CorpusStats`.
        batch_size, queue_size: what the positives were counted with.
        positives: for each label the mean number of positives an anchor finds, and the share of anchors that find
            none; "base" in the batch alone, "msc" with the queue and the prototypes. None where nothing is known.
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
        counted = {"batch_size": base.batch_size, "queue_size": base.queue_size}
        found = positives_in_epoch(corpus.train.labels, **counted)
        kinds = {"base": {"queue": False, "prototypes": False}, "msc": {"queue": True, "prototypes": True}}
        positives = {
            name: {"mean": plain(found.mean(**given)), "missing": plain(found.missing(**given))}
            for name, given in kinds.items()
        }
        statistics = corpus.stats().as_dict()
        fingerprint = corpus_fingerprint(corpus)
        return cls(corpus.name, fingerprint, published, corpus.label_names, statistics, **counted, positives=positives)

    def save(self, folder: Path) -> None:
        """Write it to `folder`, beside positives of other batches and queues; refuse the folder of another corpus."""
        before = _read(folder / CORPUS) if (folder / CORPUS).is_file() else None
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
        """Read what `save` wrote, with the positives that the batch and queue of `base` find."""
        if not (folder / CORPUS).is_file():
            raise FileNotFoundError(f"no results are stored in {folder}: run the command without --print-only first")
        stored, base = _read(folder / CORPUS), base or Config()
        counted = {"batch_size": base.batch_size, "queue_size": base.queue_size}
        nothing = [None] * len(stored["label_names"])
        unknown = {kind: {"mean": nothing, "missing": nothing} for kind in _FOUND}
        found = next((found for found in stored["positives"] if counted.items() <= found.items()), unknown)
        positives = {kind: found[kind] for kind in _FOUND}
        return cls(**stored | counted | {"label_names": tuple(stored["label_names"]), "positives": positives})


def _read(path: Path) -> dict[str, Any]:
    """A stored card, with positives as a list of those for each batch and queue."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if wrong := misfit(stored, SHAPE):
            raise InputError(wrong)
        if isinstance(stored["positives"], dict):
            stored["positives"] = [_ONCE | stored["positives"]]
        _check(stored)
    except (ValueError, TypeError, RecursionError) as error:
        reason = readable(str(error))
        raise InputError(f"{path} is damaged ({reason}): remove it, and run without --print-only") from None
    return {name: stored[name] for name in SHAPE}


def _check(stored: Mapping[str, Any]) -> None:
    """Every label has a frequency and positives, and the paper's corpora are the paper's."""
    by_label = [row for found in stored["positives"] for kind in _FOUND for row in found[kind].values()]
    labels = len(stored["label_names"])
    if any(len(row) != labels for row in [stored["statistics"]["frequencies"], *by_label]):
        raise InputError(f"not one value for each of the {labels} labels")
    if missing := _STATISTICS - stored["statistics"].keys():
        raise InputError(f"it has no {', '.join(sorted(missing))}")
    if stored["published"] is not None and stored["published"] not in PUBLISHED.values():
        raise InputError(f"the paper has no corpus {stored['published']!r}")


def plain(values: np.ndarray) -> list[float | None]:
    """Numbers for JSON, rounded to what matters; None where there is none."""
    return [None if np.isnan(value) else round(float(value), 6) for value in values]
