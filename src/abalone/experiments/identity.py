"""What makes two runs the same: corpus, settings, and the pre-training they start from."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from abalone.config import Config
from abalone.data.cache import written_whole
from abalone.data.corpus import Corpus, CorpusStats
from abalone.data.errors import readable
from abalone.data.shapes import NUMBER, misfit
from abalone.evaluation.diagnostics import positives_in_epoch
from abalone.experiments.paper import PUBLISHED

CORPUS = "corpus.json"
_STATISTICS = {field.name for field in fields(CorpusStats)}
_POSITIVES = {"mean": [(NUMBER, None)], "missing": [(NUMBER, None)]}
SHAPE = {
    "name": str,
    "fingerprint": str,
    "published": (str, None),
    "label_names": [str],
    "statistics": {"frequencies": [int], "*": NUMBER},
    "positives": {"base": _POSITIVES, "msc": _POSITIVES},
}
UNIMPORTANT = ("device", "checkpoint_seconds", "tensorboard")  # they do not change what a run comes to


def run_key(config: Mapping[str, Any], starts_from: Mapping[str, Any] | None, corpus: str) -> str:
    """A name for what a run comes to.

    Args:
        config, starts_from: settings as plain values. Those that an older version did not have are taken for today's
            defaults, those that are gone are left out: results outlive the versions that made them.
        corpus: its fingerprint.
    """
    settings = [_settings(config), None if starts_from is None else _settings(starts_from), corpus]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _settings(stored: Mapping[str, Any]) -> dict[str, Any]:
    default = Config().to_dict()
    settings = {name: stored.get(name, value) for name, value in default.items() if name not in UNIMPORTANT}
    return settings | {"encoder": encoder_name(settings["encoder"])}


def portable(config: Config) -> dict[str, Any]:
    """Settings as they are stored: without the folders of this machine."""
    return config.to_dict() | {"encoder": encoder_name(config.encoder)}


def encoder_name(encoder: str) -> str:
    """What an encoder is called everywhere: a hub name as it is, a folder by its last part."""
    place = Path(encoder)
    return place.name if place.is_absolute() or encoder.startswith((".", "~")) or _is_folder(place) else encoder


def _is_folder(place: Path) -> bool:
    try:
        return place.is_dir()
    except OSError:  # no folder can have that name
        return False


def corpus_fingerprint(corpus: Corpus) -> str:
    """The same for the same documents and labels in all three splits, and for nothing else."""
    digest = hashlib.sha256(json.dumps(corpus.label_names).encode())
    for _, split in corpus.splits():
        digest.update(split.labels.indptr.astype(np.int64).tobytes() + split.labels.indices.astype(np.int64).tobytes())
        for text in split.texts:
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class CorpusCard:
    """What tables need to know of a corpus, so that they can be printed again without it.

    Args:
        name: of the corpus.
        fingerprint: of its documents.
        published: its name in the paper, if it is one of the paper's.
        label_names, statistics: as in `Corpus` and `CorpusStats`.
        positives: for each label the mean number of positives an anchor finds, and the share of anchors that find
            none; "base" in the batch alone, "msc" with the queue and the prototypes.
    """

    name: str
    fingerprint: str
    published: str | None
    label_names: tuple[str, ...]
    statistics: Mapping[str, Any]
    positives: Mapping[str, Mapping[str, list[float | None]]]

    @classmethod
    def of(cls, corpus: Corpus, base: Config, published: str | None = None) -> "CorpusCard":
        """Describe `corpus`, with the batch and queue of `base`."""
        found = positives_in_epoch(corpus.train.labels, batch_size=base.batch_size, queue_size=base.queue_size)
        kinds = {"base": {"queue": False, "prototypes": False}, "msc": {"queue": True, "prototypes": True}}
        positives = {
            name: {"mean": plain(found.mean(**given)), "missing": plain(found.missing(**given))}
            for name, given in kinds.items()
        }
        statistics = corpus.stats().as_dict()
        return cls(corpus.name, corpus_fingerprint(corpus), published, corpus.label_names, statistics, positives)

    def save(self, folder: Path) -> None:
        """Write it to `folder`; refuse a folder that holds another corpus."""
        if (folder / CORPUS).is_file():
            before = CorpusCard.load(folder)
            if before.fingerprint != self.fingerprint:
                raise ValueError(
                    f"{folder} holds results of other documents ({before.name}, {before.statistics['train']:,} to "
                    f"train on): give another --output for {self.name}"
                )
        with written_whole(folder / CORPUS) as file:
            file.write(json.dumps(asdict(self), indent=1, ensure_ascii=False).encode())

    @classmethod
    def load(cls, folder: Path) -> "CorpusCard":
        """Read what `save` wrote."""
        path = folder / CORPUS
        if not path.is_file():
            raise FileNotFoundError(f"no results are stored in {folder}: run the command without --print-only first")
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            if wrong := misfit(stored, SHAPE):
                raise ValueError(wrong)
            card = cls(**{**stored, "label_names": tuple(stored["label_names"])})
            card._check_lengths()
        except (ValueError, TypeError, RecursionError) as error:
            reason = readable(str(error))
            raise ValueError(f"{path} is damaged ({reason}): remove it, and run without --print-only") from None
        return card

    def _check_lengths(self) -> None:
        """Every label has a frequency and positives, and the paper's corpora are the paper's."""
        by_label = [self.statistics["frequencies"], *(row for kind in self.positives.values() for row in kind.values())]
        if any(len(row) != len(self.label_names) for row in by_label):
            raise ValueError(f"not one value for each of the {len(self.label_names)} labels")
        if missing := _STATISTICS - self.statistics.keys():
            raise ValueError(f"it has no {', '.join(sorted(missing))}")
        if self.published is not None and self.published not in PUBLISHED.values():
            raise ValueError(f"the paper has no corpus {self.published!r}")


def plain(values: np.ndarray) -> list[float | None]:
    """Numbers for JSON, rounded to what matters; None where there is none."""
    return [None if np.isnan(value) else round(float(value), 6) for value in values]
