"""Experiment trackers by name: TensorBoard, Weights & Biases, MLflow."""

import json
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from abalone.config import Config
from abalone.errors import InputError, install_hint, spelled
from abalone.files.atomic import written_whole
from abalone.training.callbacks import Begun, Callback, Ended, Progress
from abalone.training.run import TRACKED

PROJECT = "abalone"  # the project, experiment or subfolder, unless the tool's own environment variable names one
PAUSE = 5.0  # seconds between requests to MLflow, which answers each of them


class Tracker(Callback, ABC):
    """A tool that keeps the curves of a run: names of numbers, their values, and steps.

    Numbers of the model of all documents have plain names (`loss`, `train_loss`), others the prefix of their fold or
    stage (`fold-1/loss`, `finetuning/loss`), since each of these counts its own steps.

    Args:
        folder: where the tool writes; None for its own default.
    """

    name = ""
    package = ""  # to import

    def __init__(self, folder: str | None) -> None:
        if find_spec(self.package) is None:
            setting = spelled("tracker", self.name)
            raise ImportError(f"{setting} needs the package {self.package}: {install_hint(self.name)}")
        self.folder = folder
        self._failed = False

    def begin(self, run: Begun) -> None:
        """Start or continue a run of the tool; where that fails, there is time to mend it before hours of training."""
        try:
            self.open(run)
        except (InputError, ImportError, OSError):
            raise
        except Exception as error:  # of the tool's own kinds: no key, no server
            raise InputError(f"{self.name} cannot start a run: {error}") from error

    def step(self, now: Progress) -> None:
        """Log loss and learning rate."""
        if not self._failed:
            with self._surviving():
                self.log(_prefix(now), {"loss": now.loss, "learning_rate": now.learning_rate}, now.step)

    def epoch(self, now: Progress) -> None:
        """Log the measures."""
        if not self._failed:
            with self._surviving():
                self.log(_prefix(now), {"epoch": now.epoch, **now.measures}, now.step)
                self.flush()

    def end(self, run: Ended) -> None:
        """Log the scores of the model, and finish."""
        with self._surviving():
            self.close(run)

    @abstractmethod
    def open(self, run: Begun) -> None:
        """Start or continue a run of the tool."""

    @abstractmethod
    def log(self, prefix: str, values: Mapping[str, float], step: int) -> None:
        """Log numbers at a step of the curves that share the prefix."""

    def flush(self) -> None:
        """Send what was logged, where the tool waits for more."""

    @abstractmethod
    def close(self, run: Ended) -> None:
        """Log the scores of the model, and finish."""

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        """Go on without the tracker where it fails: hours of training do not hang on a connection."""
        try:
            yield
        except Exception as error:
            self._failed = True
            warnings.warn(f"{self.name} has failed, and training goes on without it: {error}", stacklevel=4)


class TensorBoard(Tracker):
    """Writes event files to FOLDER/abalone, by default runs/abalone; a resumed run adds a file to them."""

    name = package = "tensorboard"

    def open(self, run: Begun) -> None:
        """Open an event file."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(Path(self.folder or "runs") / PROJECT))

    def log(self, prefix: str, values: Mapping[str, float], step: int) -> None:
        """Log numbers at a step."""
        for name, value in values.items():
            self._writer.add_scalar(prefix + name, value, global_step=step)

    def flush(self) -> None:
        """Write what waits in memory."""
        self._writer.flush()

    def close(self, run: Ended) -> None:
        """Write the scores, and close the event file."""
        for name, value in run.scores.items():
            self._writer.add_scalar(name, value)
        self._writer.close()


class WandB(Tracker):
    """Logs to the active run of Weights & Biases, or to one of its own, which a resumed training continues.

    Whether it talks to a server is up to WANDB_MODE and `wandb login`, as everywhere.
    """

    name = package = "wandb"

    def open(self, run: Begun) -> None:
        """Start or continue a run."""
        import wandb

        self._own = wandb.run is None
        if self._own:
            wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                dir=_made(self.folder),
                config=dict(run.settings),
                id=stored_id(run, self.name),
                resume="allow" if run.resumed else None,
            )
        assert wandb.run is not None
        self._run = wandb.run
        self._known: set[str] = set()
        if self._own:
            store_id(run, self.name, self._run.id)

    def log(self, prefix: str, values: Mapping[str, float], step: int) -> None:
        """Log numbers at a step, which is an axis of its own for each prefix."""
        axis = f"{prefix}step"
        named = {prefix + name: value for name, value in values.items()}
        for name in named.keys() - self._known:
            self._run.define_metric(name, step_metric=axis)
        self._known |= named.keys()
        self._run.log({**named, axis: step})

    def close(self, run: Ended) -> None:
        """Add the scores to the summary, and finish the run if it is our own."""
        self._run.summary.update(dict(run.scores))
        if self._own:
            self._run.finish(exit_code=0 if run.error is None else 1)


class MLflow(Tracker):
    """Logs to the active run of MLflow, or to one of its own, which a resumed training continues.

    Without a folder it goes where MLFLOW_TRACKING_URI says.
    """

    name = package = "mlflow"

    def open(self, run: Begun) -> None:
        """Start or continue a run."""
        with _environment(MLFLOW_DISABLE_TELEMETRY="true"):  # it would look up a server on the internet when imported
            import mlflow
        uri = None if self.folder is None else Path(self.folder).resolve().as_uri()
        if (uri or mlflow.get_tracking_uri()).startswith("sqlite") and find_spec("sqlalchemy") is None:
            raise ImportError(
                f"{spelled('tracker', self.name)} without the full mlflow needs {spelled('tracker_folder')} or "
                "MLFLOW_TRACKING_URI"
            )
        # Nothing but files works with mlflow-skinny alone. MLflow wants to be told that this is meant.
        with _environment(MLFLOW_ALLOW_FILE_STORE="true"):
            self._client = mlflow.MlflowClient(tracking_uri=uri)
        active = mlflow.active_run() if uri is None else None
        self._own = active is None
        self._id = self._own_run(run, stored_id(run, self.name)) if active is None else active.info.run_id
        self._waiting: list[Any] = []
        self._sent = time.monotonic()

    def _own_run(self, run: Begun, earlier: str | None) -> str:
        from mlflow.entities import Param
        from mlflow.exceptions import MlflowException

        if earlier is not None:
            with suppress(MlflowException):  # it may have been deleted
                self._client.update_run(earlier, status="RUNNING")
                return earlier
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self._client.get_experiment_by_name(title)
        place = self._client.create_experiment(title) if experiment is None else experiment.experiment_id
        made: str = self._client.create_run(place).info.run_id
        self._client.log_batch(made, params=[Param(name, str(value)) for name, value in run.settings.items()])
        store_id(run, self.name, made)
        return made

    def log(self, prefix: str, values: Mapping[str, float], step: int) -> None:
        """Log numbers at a step, with others that come soon."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._waiting += [Metric(prefix + name, value, now, step) for name, value in values.items()]
        if time.monotonic() - self._sent > PAUSE:
            self.flush()

    def flush(self) -> None:
        """Send the numbers that wait."""
        while self._waiting:
            self._client.log_batch(self._id, metrics=self._waiting[:1000])  # the most that it takes at a time
            del self._waiting[:1000]
        self._sent = time.monotonic()

    def close(self, run: Ended) -> None:
        """Log the scores, and end the run if it is our own."""
        self.log("", dict(run.scores), 0)
        self.flush()
        if self._own:
            stopped = "FAILED" if isinstance(run.error, Exception) else "KILLED"
            self._client.set_terminated(self._id, "FINISHED" if run.error is None else stopped)


TRACKERS: dict[str, type[Tracker]] = {tracker.name: tracker for tracker in (TensorBoard, WandB, MLflow)}


def trackers_of(config: Config) -> list[Callback]:
    """Return the tracker that the settings name, if any; an error where its package is missing."""
    return [] if config.tracker is None else [TRACKERS[config.tracker](config.tracker_folder)]


def _prefix(now: Progress) -> str:
    fold = "" if now.fold is None else f"fold-{now.fold}/"
    return f"{fold}finetuning/" if now.stage == "finetuning" else fold


def stored_id(run: Begun, tracker: str) -> str | None:
    """Return what the tracker called this run before it was interrupted."""
    if not run.resumed:
        return None
    try:
        stored = json.loads((run.folder / TRACKED).read_text(encoding="utf-8"))[tracker]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None  # then it is a new one there
    return stored if isinstance(stored, str) else None


def store_id(run: Begun, tracker: str, name: str) -> None:
    """Remember what the tracker calls this run, beside its checkpoints."""
    with written_whole(run.folder / TRACKED) as stream:
        stream.write(json.dumps({tracker: name}).encode())


def _made(folder: str | None) -> str | None:
    """Make the folder; its absolute path, since the process of wandb that writes there works elsewhere."""
    if folder is None:
        return None
    Path(folder).mkdir(parents=True, exist_ok=True)
    return str(Path(folder).resolve())


@contextmanager
def _environment(**defaults: str) -> Iterator[None]:
    """Set environment variables that are not set, and unset them at the end."""
    unset = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(unset)
    try:
        yield
    finally:
        for name in unset:
            os.environ.pop(name, None)
