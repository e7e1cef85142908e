"""A training run: its settings, documents and machine, and the identity of its folder."""

import hashlib
import json
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from abalone.config import OF_THE_MACHINE, Config
from abalone.data.corpus import Corpus
from abalone.data.hashes import add_texts
from abalone.distributed import Ranks
from abalone.encoder.feed import Feed
from abalone.errors import InputError, spelled
from abalone.files.atomic import LOCK, PARTIAL, remove_abandoned, remove_folder, sync, written_whole
from abalone.inference.folder import made_by
from abalone.training.callbacks import NONE, Callbacks
from abalone.training.checkpoint import Checkpoints, has_checkpoint, holds_something_else
from abalone.training.loop import Plan, Standing
from abalone.training.objectives import Objective
from abalone.training.runtime import Runtime

History = list[dict[str, float]]  # one entry an epoch

STAGES = ("pretraining", "training", "finetuning")
FOLD = "fold-{}"  # the folder of the stages of a fold's model; with this ending, what the finished model said
ANSWERS = ".safetensors"
IDENTITY = "run.json"
TRACKED = "tracker.json"  # what trackers call the run


@dataclass(frozen=True)
class TrainingRun:
    """Settings, documents, machine and folder of a run.

    Args:
        config: the settings.
        train: the documents to train on.
        validation: those that choose between epochs; without them the last epoch is kept.
        runtime: device, precision, and the processes that train together.
        folder: where checkpoints go, a folder for each stage.
        resume: go on from what lies in `folder`.
        fold: the number of the fold whose model is trained, from 1; its epochs are not logged.
        callbacks: told of every stage, on the main process.
    """

    config: Config
    train: Feed
    validation: Feed | None
    runtime: Runtime
    folder: Path
    resume: bool = False
    fold: int | None = None
    callbacks: Callbacks = NONE

    @property
    def ranks(self) -> Ranks:
        """Return the processes that train together."""
        return self.runtime.ranks

    def title(self, stage: str) -> str:
        """Return the name of a stage in the bar and the log."""
        return stage.capitalize() if self.fold is None else f"{self.fold_name}, {stage}"

    @property
    def fold_name(self) -> str:
        """Return the name of the fold in the bar and the log."""
        return f"Fold {self.fold} of {self.config.folds}"

    def stage(self, name: str) -> Path:
        """Return the folder of one stage."""
        return self.folder / name

    def kept(self, stage: str, epoch: int) -> dict[str, Tensor]:
        """Return the weights that a stage has kept of an epoch."""
        return self.ranks.tensors_from_main(lambda: (Checkpoints(self.stage(stage)).epoch(epoch), None))[0]

    def plan(self, objective: Objective, **changes: Any) -> Plan:
        """Return the settings as the loop takes them, some of them changed."""
        config = self.config
        plan = Plan(
            epochs=cast(int, config.epochs),  # settled when the documents were counted
            batch_size=config.batch_size,
            learning_rate=cast(float, config.learning_rate),  # settled when the encoder was loaded
            head_learning_rate=config.head_learning_rate,
            schedule=config.schedule or ("linear" if objective.spec.takes == "logits" else "cosine"),
            accumulation=config.accumulation,
            weight_decay=config.weight_decay,
            warmup=config.warmup,
            clip=config.clip,
            patience=config.patience,
            seed=config.seed,
            checkpoint_seconds=config.checkpoint_seconds,
        )
        return replace(plan, **changes)


def fingerprint(config: Config, corpus: Corpus) -> str:
    """Return a hash of data and settings, without those that change no result."""
    settings = {name: value for name, value in config.to_dict().items() if name not in OF_THE_MACHINE}
    digest = hashlib.sha256(json.dumps([settings, corpus.label_names], sort_keys=True).encode())
    for split in (corpus.train, corpus.validation):
        digest.update(split.labels.indptr.tobytes() + split.labels.indices.tobytes())
        add_texts(digest, split.texts)
    return digest.hexdigest()


def refuse_other_documents(ranks: Ranks, config: Config, corpus: Corpus) -> None:
    """Refuse a process that was given other documents, another order or other settings than the main one."""
    if ranks.count > 1:
        own = fingerprint(config, corpus)
        if own != ranks.from_main(lambda: own):
            raise InputError(
                f"process {ranks.index} was given other documents, labels or settings than the main one: "
                "start all with the same command, on the same data"
            )


def enter_folder(
    folder: Path, config: Config, corpus: Corpus, *, resume: bool, chosen: Mapping[str, Any] | None = None
) -> tuple[str, dict[str, Any]]:
    """Make `folder` this run's: start it anew, or go on with the very same data and settings.

    Args:
        folder: where checkpoints go.
        config: the settings as they were given.
        corpus: the documents as they were given.
        resume: go on with what lies there.
        chosen: values of settings that were left open. A run that goes on, perhaps on another machine, keeps the ones
            that it began with.

    Returns:
        The run's fingerprint, and the chosen values that hold.
    """
    own, chosen = fingerprint(config, corpus), dict(chosen or {})
    identity = {"fingerprint": own, "settings": config.to_dict(), "chosen": chosen}
    file = folder / IDENTITY
    for place in (folder, *_stage_folders(folder)):
        remove_abandoned(place)
    if resume and file.is_file():
        stored = _stored_identity(file)
        _refuse_another_run(folder, stored, identity)
        return own, {**chosen, **stored["chosen"]}
    for stage in _stage_folders(folder):
        if holds_something_else(stage):
            raise FileExistsError(
                f"{stage}, where checkpoints go, holds something else, which would be lost: "
                "give another run_folder (with the command, another --output)"
            )
    if resume:
        warnings.warn(f"there is no run to resume in {folder}: starting from the beginning", stacklevel=6)
    # First the name, then what it stood for, then the new name: killed on the way, it is nobody's.
    file.unlink(missing_ok=True)
    (folder / TRACKED).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    sync(folder)
    for stage in _stage_folders(folder):
        remove_folder(stage)
    for answers in folder.glob(FOLD.format("*") + ANSWERS):
        answers.unlink()
    with written_whole(file) as stream:
        stream.write(json.dumps(identity).encode())
    return own, chosen


def _stage_folders(folder: Path) -> list[Path]:
    """Return the folders with checkpoints: of the stages of the model, and of the folds that were begun."""
    models = [folder, *(path for path in sorted(folder.glob(FOLD.format("*"))) if path.suffix != ANSWERS)]
    return [model / stage for model in models for stage in STAGES]


def holds_run(folder: Path, config: Config, corpus: Corpus) -> bool:
    """Return whether an earlier attempt at this very run lies in its folder."""
    try:
        stored = _stored_identity(folder / IDENTITY)
    except (OSError, ValueError):
        return False
    return bool(stored["fingerprint"] == fingerprint(config, corpus))


def is_finished(output: Path, run_folder: Path, settings: Config, corpus: Corpus) -> bool:
    """Return whether this run has written the model folder `output`, and none was begun there since."""
    if (run_folder / IDENTITY).exists():
        return False
    made = made_by(output)
    return made is not None and made == fingerprint(settings, corpus)


def seconds_trained(folder: Path) -> float:
    """Return how long the epochs of a run have taken so far, according to the checkpoints in its folder."""
    seconds = 0.0
    for stage in _stage_folders(folder):
        if has_checkpoint(stage):
            with suppress(ValueError):  # damaged: told when the run goes on
                standing = Standing(**Checkpoints(stage).read()[1]["standing"])
                seconds += standing.seconds + sum(epoch["seconds"] for epoch in standing.history)
    return seconds


def is_foreign(folder: Path) -> bool:
    """Return whether something other than a run is at that name."""
    if not folder.is_dir():
        return folder.exists()
    entries = [path.name for path in folder.iterdir() if not path.name.endswith(PARTIAL)]
    ours = {*STAGES, LOCK, TRACKED, *(name for name in entries if fnmatch(name, FOLD.format("*")))}
    return IDENTITY not in entries and not {*entries} <= ours


def how_to_go_on(folder: Path) -> str:
    """Return the part of a message that says whether the run in `folder` can be resumed."""
    saved = any(map(has_checkpoint, _stage_folders(folder))) or any(folder.glob(FOLD.format("*") + ANSWERS))
    return f"it can go on from {folder}" if saved else "nothing was saved yet"


def _stored_identity(file: Path) -> dict[str, Any]:
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        kinds = {"fingerprint": str, "settings": dict, "chosen": dict}
        if all(isinstance(stored[name], kind) for name, kind in kinds.items()):
            return dict(stored)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise InputError(
        f"{file} is damaged, so the run cannot be identified: start again without {spelled('resume', True)}"
    )


def _refuse_another_run(folder: Path, stored: dict[str, Any], identity: dict[str, Any]) -> None:
    if stored["fingerprint"] == identity["fingerprint"]:
        return
    before, now = stored["settings"], identity["settings"]
    changed = [
        f"{name} was {before.get(name)!r} and is {now[name]!r}"
        for name in now
        if before.get(name) != now[name] and name not in OF_THE_MACHINE
    ]
    what = "; ".join(changed) or "the documents or labels are others"
    raise InputError(
        f"cannot resume the run in {folder}: {what}. Use the settings and data it began with, or "
        f"start again without {spelled('resume', True)}."
    )
