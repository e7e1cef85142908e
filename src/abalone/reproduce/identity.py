"""What makes two runs the same: corpus, settings, and the pre-training they start from."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from abalone.config import OF_THE_MACHINE, Config
from abalone.files.schema import LARGEST


def run_key(config: Mapping[str, Any], starts_from: Mapping[str, Any] | None, corpus: str) -> str:
    """A name for what a run comes to.

    Args:
        config, starts_from: settings as they are stored. Those that an older version did not have are taken for
            today's defaults, those that are gone are left out: results outlive the versions that made them.
        corpus: its fingerprint.
    """
    return short_name([_settings(config), None if starts_from is None else _settings(starts_from), corpus])


def short_name(values: Any) -> str:
    """A name for plain values that no others have."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings that make two runs different ones, as `stored` and as `wanted` has them."""
    before, now = _settings(stored), _settings(wanted)
    return {name: (before[name], now[name]) for name in now if before[name] != now[name]}


def _settings(stored: Mapping[str, Any]) -> dict[str, Any]:
    default = Config().to_dict()
    settings = {name: stored.get(name, value) for name, value in default.items() if name not in OF_THE_MACHINE}
    for name, value in settings.items():
        if isinstance(default[name], float) and isinstance(value, int) and abs(value) < LARGEST:
            settings[name] = float(value)  # who writes 0 means 0.0
    return settings


def portable(config: Config) -> dict[str, Any]:
    """Settings as they are stored: without the folders of this machine."""
    return config.to_dict() | {"encoder": encoder_name(config.encoder)}


def encoder_name(encoder: str) -> str:
    """What an encoder is called everywhere: a hub name as it is, a folder by its last part."""
    place = Path(encoder)
    if not (place.is_absolute() or encoder.startswith((".", "~")) or _is_folder(place)):
        return encoder
    return place.resolve().name if place.name in ("", "..") else place.name


def _is_folder(place: Path) -> bool:
    try:
        return place.is_dir()
    except OSError:  # no folder can have that name
        return False
