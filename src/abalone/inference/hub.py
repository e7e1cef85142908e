"""Upload and download of model folders on the Hugging Face hub; files that could run are not downloaded."""

import re
import tempfile
from pathlib import Path

from abalone.errors import InputError
from abalone.inference.folder import ABOUT, CARD, READ_FILES, SUMS, save
from abalone.inference.predictor import Predictor

SAFE_FILES = (*READ_FILES, CARD, SUMS)  # a pickle in the repository is never even fetched
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def push(predictor: Predictor, name: str, *, private: bool | None = None, token: str | None = None) -> str:
    """Write the model folder to the repository `name`, which is made if it is not there; returns its address.

    Args:
        predictor: the model.
        name: "user/model".
        private: whether a new repository is; by default what the account says.
        token: to write with; by default the one that `hf auth login` has stored.
    """
    from huggingface_hub import HfApi

    if not HUB_NAME.fullmatch(name):
        raise InputError(f"a name on the hub has the form user/model, got {name!r}")
    api = HfApi(token=token)
    with tempfile.TemporaryDirectory() as place:
        save(predictor, Path(place) / "model")  # before the repository is made: what fails here leaves nothing there
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=Path(place) / "model", commit_message="Upload with abalone")
    return str(address)


def find(name: str | Path, revision: str | None = None) -> Path:
    """Return the model folder of that name on this machine, or else download it from the hub into its cache."""
    if Path(name).exists() or isinstance(name, Path) or not HUB_NAME.fullmatch(name):
        return Path(name)
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=list(SAFE_FILES)))
    except OSError as error:  # what the hub raises without a network, a right, or a model of that name
        reason = str(error).strip().splitlines()[0]
        raise FileNotFoundError(f"{name} is neither a folder nor a model on the hub: {reason}") from error
    if not (folder / ABOUT).is_file():
        raise FileNotFoundError(f"{name} on the model hub was not made by ABALONE: it has no {ABOUT}")
    return folder
