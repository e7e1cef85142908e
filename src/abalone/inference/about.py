"""What makes a folder a model folder; known without the libraries that read one, which take seconds to import."""

from pathlib import Path

ABOUT = "abalone.json"  # label names, settings, decision, history: what Hugging Face has no file for


def require_model_folder(folder: Path) -> None:
    """Raise unless a model is in `folder`."""
    if not (folder / ABOUT).is_file():
        missing = f"it has no {ABOUT}" if folder.exists() else "nothing is there"
        raise FileNotFoundError(f"{folder} is not a model folder: {missing}")
