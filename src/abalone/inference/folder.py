"""The model folder: standard files, written to a temporary name and moved into place; on the hub too.

Torch is imported for a model with an encoder, and not for one of words alone.
"""

import hashlib
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from abalone import __version__
from abalone.config import NO_ENCODER, Config
from abalone.data.hashes import SEEN, SeenTexts
from abalone.errors import InputError, readable
from abalone.evaluation.decision import Decision
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.out_of_fold import OUT_OF_FOLD, OutOfFold
from abalone.files.atomic import named_if_full, partial_folder, put_back, take_place
from abalone.files.schema import NUMBER, misfit
from abalone.inference.card import model_card
from abalone.inference.predictor import NOT_JUDGED, TFIDF_DECISION, Predictor

ABOUT = "abalone.json"  # label names, settings, decision, history: what Hugging Face has no file for
SUMS = "SHA256SUMS"  # of the files that are read; `sha256sum --check` reads it too
CARD = "README.md"
# What else a tokenizer writes, a template for chats or its vocabulary once more, is in its JSON or of no use here.
READ_FILES = ("*.json", "*.safetensors")
# Of these, what we and the libraries that open the folder look for; other names may be those of a person's own files.
OURS = ("*.safetensors", "*config.json", ABOUT, "modules.json", "tokenizer.json", "lexical/*.json")
SHAPE = {
    "label_names": [str],
    "config": dict,
    "decision": dict,
    "answers_in_names": bool,
    "tokenizer_max_length?": int,
    "story": {
        "statistics": {"frequencies": [int]},
        "provenance?": dict,
        "history?": {"*": [dict]},
        "scores?": {"*": dict},
        "fingerprint?": str,
        "label_f1?": [(NUMBER, None)],  # on validation
        f"{TFIDF_DECISION}?": dict,
    },
}
LEXICAL = "lexical"
HUB_FILES = (*READ_FILES, CARD, SUMS)  # what could run, a pickle in the repository say, is never even fetched
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def require_model_folder(folder: Path) -> None:
    """Raise `FileNotFoundError` unless a model is in `folder`."""
    if not (folder / ABOUT).is_file():
        missing = f"it has no {ABOUT}" if folder.exists() else "nothing is there"
        raise FileNotFoundError(f"{folder} is not a model folder: {missing}")


def save(predictor: Predictor, folder: str | Path) -> None:
    """Write a model folder; what was at that name before stays whole until the new one is complete."""
    with whole_folder(Path(folder)) as place:
        if predictor.words is None:
            from abalone.inference.torch_backend import save_network

            save_network(predictor, place)
        if predictor.lexical is not None:
            predictor.lexical.save(place / LEXICAL)
        if predictor.seen is not None:
            (place / SEEN).write_bytes(predictor.seen.to_bytes())
        if predictor.out_of_fold is not None:
            (place / OUT_OF_FOLD).write_bytes(predictor.out_of_fold.to_bytes())
        about: dict[str, Any] = {
            "version": __version__,
            "label_names": predictor.label_names,
            "config": predictor.config.to_dict(),
            "decision": predictor.decision.to_dict(),
            "answers_in_names": predictor.answers_in_names,
        }
        if predictor.words is None:
            about["tokenizer_max_length"] = predictor.network.tokenizer.model_max_length
        about["story"] = predictor.story
        (place / ABOUT).write_text(json.dumps(about, indent=1, ensure_ascii=False), encoding="utf-8")
        (place / CARD).write_text(model_card(predictor), encoding="utf-8")
        _write_sums(place)


def load(folder: str | Path, *, only_to_answer: bool = False, **settings: Any) -> Predictor:
    """Read a model folder; `settings` such as `device` replace those it was made with.

    With `only_to_answer` it is read without `transformers` where that can be, in half the time, and without the
    out-of-fold answers; what is read so can be asked, and neither saved nor exported.
    """
    folder = Path(folder)
    about, config = _read_about(folder)
    has_encoder = config.encoder != NO_ENCODER
    config = config.replace(**settings)  # what is wrong with these is no damage
    if has_encoder != (config.encoder != NO_ENCODER):
        raise InputError(f"{folder} is a finished model: its encoder cannot be changed to {config.encoder!r}")
    if has_encoder:
        from abalone.device import choose_device

        choose_device(config.device)
    with _damage_told(folder):
        predictor = _read(folder, about, config, only_to_answer)
        if has_encoder:
            predictor.network.refuse_misfits(len(predictor.label_names))
        predictor.refuse_misfits()
    return predictor


def load_judged(folder: str | Path) -> Predictor:
    """Read a model folder for its out-of-fold answers alone, without network and experts, so that it answers no text.

    Raises `ValueError` if there are none.
    """
    folder = Path(folder)
    about, _ = _read_about(folder)
    if not (folder / OUT_OF_FOLD).is_file():
        raise InputError(f"{folder}: {NOT_JUDGED}")
    with _damage_told(folder):
        answers = OutOfFold.from_bytes((folder / OUT_OF_FOLD).read_bytes())
        decision = Decision.from_dict(about["decision"])
        judged = Predictor(tuple(about["label_names"]), None, decision, story=about["story"], out_of_fold=answers)
        judged.refuse_other_labels()
    return judged


def _read_about(folder: Path) -> tuple[dict[str, Any], Config]:
    """Return the metadata and the settings of a model folder, once its checksums are right."""
    require_model_folder(folder)
    _check_sums(folder)
    with _damage_told(folder / ABOUT):
        about: dict[str, Any] = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        if wrong := misfit(about, SHAPE):
            raise InputError(wrong)
        return about, Config.from_dict(about["config"])


def made_by(folder: Path) -> str | None:
    """Return the fingerprint of the run that made a model folder; `None` if it is damaged or has none."""
    try:
        _check_sums(folder)
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return None if misfit(about, SHAPE) else about["story"].get("fingerprint")


@contextmanager
def _damage_told(place: Path) -> Iterator[None]:
    """Turn errors of any kind into one that names the folder: half a dozen libraries read parts of it."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and str(place) in str(error):
            raise  # a file is missing or may not be read
        raise InputError(f"{place} is damaged: {readable(str(error)) or type(error).__name__}") from error


def _read(folder: Path, about: dict[str, Any], config: Config, only_to_answer: bool) -> Predictor:
    backend = neighbours = None
    if config.encoder != NO_ENCODER:
        from abalone.inference.torch_backend import read_neighbours, read_network

        backend = read_network(folder, about, config, only_to_answer)
        neighbours = read_neighbours(folder, config, backend.encoder.hidden_size)
    out_of_fold = folder / OUT_OF_FOLD
    return Predictor(
        tuple(about["label_names"]),
        backend,
        Decision.from_dict(about["decision"]),
        LexicalModel.load(folder / LEXICAL) if (folder / LEXICAL).is_dir() else None,
        neighbours,
        about["answers_in_names"],
        about["story"],
        SeenTexts.from_bytes((folder / SEEN).read_bytes()) if (folder / SEEN).is_file() else None,
        OutOfFold.from_bytes(out_of_fold.read_bytes()) if out_of_fold.is_file() and not only_to_answer else None,
        config,
    )


def refuse_foreign(folder: Path) -> None:
    """Raise if something else than a model is at that name."""
    if folder.exists() and not (folder / ABOUT).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is not a model folder: give another name, or remove it first")


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Open a temporary folder that takes the name `folder` once it is complete."""
    put_back(folder)
    refuse_foreign(folder)
    with named_if_full(folder), partial_folder(folder) as place:
        yield place
        take_place(place, folder)


def _read_files(place: Path) -> list[PurePosixPath]:
    """Return the files of a folder that loading could read."""
    files = (path.relative_to(place) for pattern in READ_FILES for path in place.rglob(pattern) if path.is_file())
    return sorted(map(PurePosixPath, files))


def _write_sums(place: Path) -> None:
    lines = [f"{_sum(place / file)}  {file}\n" for file in _read_files(place)]
    (place / SUMS).write_text("".join(lines), encoding="utf-8")


def _check_sums(folder: Path) -> None:
    """Raise if a file is not what was written, which could be a number in the middle of the weights.

    A list that says nothing of a file would let it be anything, so one that is empty or cut short is refused too.
    """
    unlisted = {file for file in _read_files(folder) if any(map(file.match, OURS))}
    if not (folder / SUMS).is_file():
        for file in unlisted:  # a right that is missing is told as such, and not by a library as damage
            (folder / file).open("rb").close()
        return
    advice = f"Copy or make the model folder again; if you changed the file yourself, remove {folder / SUMS}"
    for line in (folder / SUMS).read_text(encoding="utf-8", errors="replace").splitlines():
        expected, _, name = line.partition("  ")
        file = PurePosixPath(name)
        sound = False
        try:
            within = not file.is_absolute() and ".." not in file.parts
            sound = within and (folder / file).is_file() and _sum(folder / file) == expected
        except PermissionError:
            raise
        except (OSError, ValueError):  # a name that no file can have
            pass
        if not sound:
            raise InputError(f"{folder / readable(name)} is damaged: it is not what was written. {advice}")
        unlisted.discard(file)
    if unlisted:
        raise InputError(f"{folder / SUMS} is damaged: it has no checksum of {min(unlisted)}. {advice}")


def _sum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


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
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=list(HUB_FILES)))
    except OSError as error:  # what the hub raises without a network, a right, or a model of that name
        reason = str(error).strip().splitlines()[0]
        raise FileNotFoundError(f"{name} is neither a folder nor a model on the hub: {reason}") from error
    if not (folder / ABOUT).is_file():
        raise FileNotFoundError(f"{name} on the model hub was not made by ABALONE: it has no {ABOUT}")
    return folder
