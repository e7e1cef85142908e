"""Fingerprints: the identity of runs, corpora and encoders, wherever their files are and whatever they are called."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from abalone.config import OF_THE_MACHINE, Config
from abalone.data.corpus import Corpus
from abalone.data.hashes import add_texts
from abalone.files.schema import LARGEST

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def short_hash(values: Any) -> str:
    """Return a name for plain values that no others have."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def run_key(config: Mapping[str, Any], starts_from: Mapping[str, Any] | None, corpus: str) -> str:
    """Return the key of a run: the same for the same settings, pre-training and corpus.

    Args:
        config, starts_from: settings as they are stored. Results outlive the versions that made them: settings that
            an older version did not have are today's defaults, those that no longer exist are left out.
        corpus: its fingerprint.
    """
    return short_hash([_settings(config), None if starts_from is None else _settings(starts_from), corpus])


def differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which two runs differ, as `stored` and as `wanted` has them."""
    before, now = _settings(stored), _settings(wanted)
    return {name: (before[name], now[name]) for name in now if before[name] != now[name]}


def _settings(stored: Mapping[str, Any]) -> dict[str, Any]:
    default = Config().to_dict()
    settings = {name: stored.get(name, value) for name, value in default.items() if name not in OF_THE_MACHINE}
    for name, value in settings.items():
        if isinstance(default[name], float) and isinstance(value, int) and abs(value) < LARGEST:
            settings[name] = float(value)  # 0 and 0.0 are the same setting
    return settings


def portable(config: Config) -> dict[str, Any]:
    """Return settings as they are stored: without the folders of this machine."""
    return config.to_dict() | {"encoder": encoder_name(config.encoder)}


def encoder_name(encoder: str) -> str:
    """Return the name of an encoder on every machine: a hub name as it is, a folder by its last part."""
    place = Path(encoder)
    if not (place.is_absolute() or encoder.startswith((".", "~")) or _is_folder(place)):
        return encoder
    return place.resolve().name if place.name in ("", "..") else place.name


def _is_folder(place: Path) -> bool:
    try:
        return place.is_dir()
    except OSError:  # no folder can have that name
        return False


def corpus_fingerprint(corpus: Corpus) -> str:
    """Return a hash of the documents and labels of all three splits."""
    digest = hashlib.sha256(json.dumps(corpus.label_names).encode())
    for _, split in corpus.splits():
        digest.update(split.labels.indptr.astype(np.int64).tobytes() + split.labels.indices.astype(np.int64).tobytes())
        add_texts(digest, split.texts)
    return digest.hexdigest()[:16]


def encoder_fingerprint(encoder: str) -> str:
    """Return a hash of weights, architecture and tokenizer, whatever files they are read from.

    Args:
        encoder: a folder or a hub name.
    """
    from abalone.data.tokens import PROBES
    from abalone.encoder.load import load_encoder, window

    loaded, tokenizer = load_encoder(encoder)
    # The tokenizer's output, not its file: versions of its library write the file differently.
    tokens = [sorted(tokenizer.get_vocab().items()), tokenizer(list(PROBES), verbose=False)["input_ids"]]
    about = [type(loaded.model).__name__, _architecture(loaded.model.config), window(loaded, tokenizer), tokens]
    digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
    for name, tensor in sorted(loaded.model.state_dict().items()):
        digest.update(f"{name} {list(tensor.shape)}".encode())
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()[:16]


def _architecture(config: "PretrainedConfig") -> dict[str, Any]:
    """Return the settings of its kind that differ from that kind's defaults: a newer version may add others."""
    from transformers import PretrainedConfig

    given, common = config.to_dict(), PretrainedConfig().to_dict()
    own = {name: value for name, value in type(config)().to_dict().items() if name not in common}
    return {name: given[name] for name, value in own.items() if name in given and given[name] != value}
