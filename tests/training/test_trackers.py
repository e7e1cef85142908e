"""Trackers: real runs, kept by the libraries themselves in local folders, and no network."""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tiny
from abalone import AbaloneClassifier
from abalone.config import Config
from abalone.errors import InputError
from abalone.training import trackers
from abalone.training.callbacks import Begun, Callback, Ended, Progress
from abalone.training.run import TRACKED, is_foreign
from patience import PATIENCE

pytestmark = [
    pytest.mark.usefixtures("one_split"),
    pytest.mark.filterwarnings("ignore:.*(does not beat tf-idf|adds nothing to words) alone"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),  # of the libraries
]
TRAIN, BATCH, EPOCHS = 64, 16, 3
STEPS = TRAIN // BATCH  # an epoch
NAMES = ("tensorboard", "wandb", "mlflow")
FILE_HEADER, RECORD_HEADER, BLOCK = 7, 7, 2**15  # of a .wandb file


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return tiny.save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def data():
    return tiny.corpus(TRAIN), tiny.corpus(30, seed=1)


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)


def classifier(encoder, **settings):
    small = {
        "recipe": "paper", "objective": "bce", "pooling": "mean", "max_length": 16, "epochs": EPOCHS, "folds": 0,
        "queue_size": 24, "projection_dim": 8, "batch_size": BATCH, "learning_rate": 2e-3, "warmup": 0.0,
        "schedule": "linear", "device": "cpu", "precision": "fp32", "tracker_folder": "kept",
    }  # fmt: skip
    return AbaloneClassifier(encoder=encoder, **{**small, **settings})


class Stops(Callback):
    """Stops after some steps, as whoever presses Ctrl-C."""

    def __init__(self, step):
        self.at = step

    def step(self, now):
        if now.step == self.at:
            raise KeyboardInterrupt


# What each of them has kept: curves as lists of (step, value) by name.


def kept_by_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "abalone"), size_guidance={"scalars": 0}).Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def kept_by_mlflow(folder, runs=1):
    with trackers._environment(MLFLOW_ALLOW_FILE_STORE="true"):
        from mlflow import MlflowClient

        client = MlflowClient(folder.resolve().as_uri())
    found = client.search_runs([client.get_experiment_by_name("abalone").experiment_id])
    assert len(found) == runs
    run = found[0]
    history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    return {name: [(metric.step, metric.value) for metric in metrics] for name, metrics in history.items()}, run


def wandb_records(folder):
    """Read the records of all runs in their order; the file is one of LevelDB's logs."""
    from wandb.proto.wandb_internal_pb2 import Record

    for path in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        content, at, parts = path.read_bytes(), FILE_HEADER, []
        while at + RECORD_HEADER <= len(content):
            if BLOCK - at % BLOCK < RECORD_HEADER:
                at += BLOCK - at % BLOCK
                continue
            _, length, kind = struct.unpack("<IHB", content[at : at + RECORD_HEADER])
            at += RECORD_HEADER
            if at + length > len(content):
                break  # it is being written
            parts.append(content[at : at + length])
            at += length
            if kind in (1, 4):  # whole, or the last part
                yield Record.FromString(b"".join(parts))
                parts = []


def values_of(items):
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def kept_by_wandb(folder):
    """Wait for the process that writes: it may not have closed a file when a run is finished."""
    until, runs = time.monotonic() + PATIENCE, len(list((folder / "wandb").glob("offline-run-*")))
    while [record.WhichOneof("record_type") for record in wandb_records(folder)].count("exit") < runs:
        assert time.monotonic() < until, "wandb has not finished its files"
        time.sleep(0.05)
    curves, ids, axes, summary = {}, [], {}, {}
    for record in wandb_records(folder):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            ids.append(record.run.run_id)
        elif kind == "metric" and record.metric.step_metric:
            axes[record.metric.name] = record.metric.step_metric
        elif kind == "summary":
            summary |= {
                item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.summary.update
            }
        elif kind == "history":
            row = values_of(record.history.item)
            for name in row.keys() & axes.keys():
                curves.setdefault(name, []).append((row[axes[name]], row[name]))
    return curves, ids, summary


def kept(name, folder):
    read = {"tensorboard": kept_by_tensorboard, "wandb": kept_by_wandb, "mlflow": kept_by_mlflow}[name](folder)
    return read if name == "tensorboard" else read[0]


@pytest.mark.parametrize("name", NAMES)
def test_tracker_keeps_every_step_and_epoch_of_a_run(name, encoder, data, tmp_path):
    model = classifier(encoder, tracker=name).fit(*data[0], data[1])
    curves, history = kept(name, tmp_path / "kept"), model.predictor_.story["history"]["training"]
    steps = list(range(1, EPOCHS * STEPS + 1))
    assert [step for step, _ in curves["loss"]] == [step for step, _ in curves["learning_rate"]] == steps
    np.testing.assert_allclose(
        [rate for _, rate in curves["learning_rate"]], 2e-3 * (1 - np.arange(12) / 12), rtol=1e-6
    )
    for measure, values in curves.items():
        if measure in history[0]:
            assert [step for step, _ in values] == [4, 8, 12], measure
            np.testing.assert_allclose([value for _, value in values], [entry[measure] for entry in history], rtol=1e-6)
    assert {"train_loss", "micro_f1", "macro_f1", "epoch", "seconds"} <= curves.keys()
    losses = np.reshape([loss for _, loss in curves["loss"]], (EPOCHS, STEPS)).mean(axis=1)
    np.testing.assert_allclose(losses, [entry["train_loss"] for entry in history], rtol=1e-5)
    score = model.predictor_.story["scores"]["validation"]["macro_f1"]
    if name == "wandb":
        assert kept_by_wandb(tmp_path / "kept")[2]["validation/macro_f1"] == pytest.approx(score)
    else:
        assert curves["validation/macro_f1"] == [(0, pytest.approx(score))]


def test_wandb_is_told_the_axis_of_each_curve_once():
    """Each time is one more record in its file, and each step logs."""
    told, logged = [], []
    tracker = trackers.WandB(None)
    tracker._known = set()
    tracker._run = SimpleNamespace(
        define_metric=lambda name, step_metric: told.append((name, step_metric)), log=logged.append
    )
    for step in (1, 2, 3):
        tracker.log("", {"loss": 0.5}, step)
        tracker.log("fold-1/", {"loss": 0.25}, step)
    assert told == [("loss", "step"), ("fold-1/loss", "fold-1/step")]
    assert logged[-2:] == [{"loss": 0.5, "step": 3}, {"fold-1/loss": 0.25, "fold-1/step": 3}]


@pytest.mark.parametrize("name", NAMES)
def test_folds_and_stages_have_curves_of_their_own(name, encoder, data, tmp_path):
    settings = {"objective": "msc", "classifier": "finetune", "finetune_epochs": 2, "folds": 2, "epochs": 1}
    classifier(encoder, **settings, tracker=name).fit(*data[0], data[1])
    curves = kept(name, tmp_path / "kept")
    for fold in ("", "fold-1/", "fold-2/"):
        assert len(curves[f"{fold}train_loss"]) == 1
        assert len(curves[f"{fold}finetuning/train_loss"]) == 2
        assert curves[f"{fold}finetuning/loss"][0][0] == 1  # each counts its own steps


@pytest.mark.parametrize("name", NAMES)
def test_resumed_run_goes_on_in_the_same_curves(name, encoder, data, tmp_path):
    model = classifier(encoder, tracker=name, checkpoint_seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data[0], data[1], callbacks=[Stops(6)], run_folder=tmp_path / "run")
    if name == "mlflow":
        assert kept_by_mlflow(tmp_path / "kept")[1].info.status == "KILLED"
    model.fit(*data[0], data[1], run_folder=tmp_path / "run", resume=True)
    curves = kept(name, tmp_path / "kept")
    assert [step for step, _ in curves["loss"]] == list(range(1, EPOCHS * STEPS + 1))  # the sixth was not yet told
    assert [step for step, _ in curves["train_loss"]] == [4, 8, 12]
    if name == "mlflow":
        assert kept_by_mlflow(tmp_path / "kept")[1].info.status == "FINISHED"
    if name == "wandb":
        first, second = kept_by_wandb(tmp_path / "kept")[1]
        assert first == second
    model.fit(*data[0], data[1], run_folder=tmp_path / "run")  # a new one has a new name
    if name == "mlflow":
        kept_by_mlflow(tmp_path / "kept", runs=2)
    if name == "wandb":
        assert len(set(kept_by_wandb(tmp_path / "kept")[1])) == 2


def test_settings_are_kept(encoder, data, tmp_path):
    classifier(encoder, tracker="mlflow", epochs=1).fit(*data[0], data[1])
    params = kept_by_mlflow(tmp_path / "kept")[1].data.params
    assert (params["objective"], params["epochs"], params["encoder"]) == ("bce", "1", encoder)


def test_active_run_of_the_program_is_used_and_left_open(encoder, data, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    mlflow.set_tracking_uri((tmp_path / "own").as_uri())
    try:
        with mlflow.start_run() as run:
            classifier(encoder, tracker="mlflow", tracker_folder=None, epochs=1).fit(*data[0], data[1])
            assert mlflow.active_run().info.status == "RUNNING"
        assert len(mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")) == STEPS
    finally:
        mlflow.set_tracking_uri(None)


def test_active_wandb_run_of_the_program_is_used_and_left_open(encoder, data, tmp_path):
    import wandb

    (tmp_path / "own").mkdir()
    run = wandb.init(project="of the program", dir=str(tmp_path / "own"))
    classifier(encoder, tracker="wandb", tracker_folder=None, epochs=1).fit(*data[0], data[1])
    assert wandb.run is run
    run.finish()
    curves, ids, _ = kept_by_wandb(tmp_path / "own")
    assert ids == [run.id]
    assert len(curves["loss"]) == STEPS


@pytest.mark.parametrize("name", NAMES)
def test_tracker_that_is_not_installed(name, encoder, data, monkeypatch, tmp_path):
    monkeypatch.setattr(trackers, "find_spec", lambda package: None)
    model = classifier(encoder, tracker=name)
    with pytest.raises(ImportError, match=rf"tracker='{name}' needs the package {name}: .*pip install '\.\[{name}\]'"):
        model.fit(*data[0], data[1], run_folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_mlflow_without_a_place_says_where_to_set_one(monkeypatch, tmp_path):
    find = trackers.find_spec
    monkeypatch.setattr(trackers, "find_spec", lambda package: None if package == "sqlalchemy" else find(package))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(ImportError, match="tracker_folder"):
        trackers.MLflow(None).begin(Begun({}, tmp_path, False))


class Failing(trackers.Tracker):
    """A tracker whose server is gone after a while."""

    name, package = "failing", "os"
    log_calls = 0

    def open(self, run):
        pass

    def log(self, prefix, values, step):
        self.log_calls += 1
        if step >= 2:
            raise ConnectionError("the server is gone")

    def close(self, run):
        raise ConnectionError("it still is")


def test_training_goes_on_without_a_tracker_that_fails():
    tracker = Failing(None)
    now = [Progress("training", None, 1, step, 0.5, 1e-3) for step in (1, 2, 3)]
    tracker.step(now[0])
    with pytest.warns(UserWarning, match="failing has failed, and training goes on without it: the server is gone"):
        tracker.step(now[1])
    tracker.step(now[2])
    tracker.epoch(now[2])
    assert tracker.log_calls == 2
    with pytest.warns(UserWarning, match="it still is"):
        tracker.end(Ended())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"wandb": 3}', b'{"mlflow": "a"}', b"\xff"])
def test_damaged_name_of_a_run_makes_a_new_one(content, tmp_path):
    (tmp_path / TRACKED).write_bytes(content)
    assert trackers.stored_id(Begun({}, tmp_path, True), "wandb") is None


def test_name_of_a_run_is_part_of_its_folder(tmp_path):
    begun = Begun({}, tmp_path, True)
    trackers.store_id(begun, "wandb", "abc")
    assert trackers.stored_id(begun, "wandb") == "abc"
    assert trackers.stored_id(Begun({}, tmp_path, False), "wandb") is None
    assert not is_foreign(tmp_path)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"tensorboard": None}, (None, None)),
        ({"tensorboard": "logs"}, ("tensorboard", "logs")),
        ({"tensorboard": "logs", "tracker": "mlflow", "tracker_folder": "runs"}, ("mlflow", "runs")),
    ],
)
def test_setting_of_earlier_versions_is_translated(stored, expected):
    config = Config.from_dict(stored)
    assert (config.tracker, config.tracker_folder) == expected


ONE_RUN = """
import sys
from abalone import AbaloneClassifier
import tiny

name, encoder = sys.argv[1:]
AbaloneClassifier(
    "paper", encoder=encoder, objective="bce", epochs=1, max_length=16, device="cpu", precision="fp32", tracker=name,
    tracker_folder="kept", folds=0,
).fit(*tiny.corpus(40), tiny.corpus(30, seed=1))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_tracker_asks_the_network(name, encoder, tmp_path):
    """All that would go out is sent to a proxy of ours, to which nobody comes."""
    came = []
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        threading.Thread(target=lambda: came.append(proxy.accept()), daemon=True).start()
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        proxies = {f"{kind}_proxy": address for kind in ("http", "https", "all")}
        # MLflow would ask nobody if it saw that it runs in a test.
        surroundings = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "MLFLOW", "CI"))
        }
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", ONE_RUN, name, encoder],
            env=surroundings | proxies | {key.upper(): value for key, value in proxies.items()}
            | {"PYTHONPATH": os.pathsep.join([*map(str, sys.path), str(Path(__file__).parents[1])])},
            cwd=tmp_path, check=True, timeout=PATIENCE,
        )  # fmt: skip
    assert kept(name, tmp_path / "kept")
    assert came == []


@pytest.mark.parametrize("kind", [trackers.WandB, trackers.MLflow])
def test_tracker_that_cannot_start_a_run_is_a_mistake_and_not_a_bug(kind, tmp_path, monkeypatch):
    class RefusedError(Exception):
        pass

    def refuse(self, run):
        raise RefusedError("no API key")

    monkeypatch.setattr(kind, "open", refuse)
    with pytest.raises(InputError, match=f"{kind.name} cannot start a run: no API key"):
        kind(str(tmp_path)).begin(Begun({}, tmp_path, resumed=False))
