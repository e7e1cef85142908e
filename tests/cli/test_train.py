"""`abalone train` as people use it: a process of its own, that may be killed, stopped or told nonsense."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

import tiny
from abalone import AbaloneClassifier
from abalone.cli import app
from abalone.recipes import recipe

DOCUMENTS = {"train": 160, "val": 40, "test": 40}
BATCH = 8
STEPS_AN_EPOCH = DOCUMENTS["train"] // BATCH
EPOCHS = 5
SETTINGS = {
    "objective": "msc",
    "lexical": False,
    "pooling": "mean",
    "max_length": 16,
    "queue_size": 32,
    "projection_dim": 16,
    "epochs": EPOCHS,
    "batch_size": BATCH,
    "learning_rate": 2e-3,
    "head_learning_rate": 2e-3,
    "precision": "fp32",
    "device": "cpu",
    "checkpoint_seconds": 0,
}
WEIGHTS = ("model.safetensors", "head.safetensors")
PATIENCE = 120  # seconds that a slow machine may take to reach a step or to end


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A folder with a corpus, an encoder and a configuration."""
    return tiny.workshop(tmp_path_factory.mktemp("workshop"), DOCUMENTS, SETTINGS)


@pytest.fixture(autouse=True)
def cache(workshop, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(workshop / "cache"))


def command(workshop: Path, output: Path, *options: str) -> list[str]:
    return [
        "train",
        str(workshop / "papers.jsonl"),
        "-o",
        str(output),
        "--config",
        str(workshop / "config.yaml"),
        *options,
    ]


@pytest.fixture
def start():
    """Starts the command in a process of its own; none outlives its test."""
    with ExitStack() as processes:

        def started(arguments: list[str]) -> subprocess.Popen[str]:
            words = [sys.executable, "-m", "abalone", *arguments]
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            processes.enter_context(process)
            processes.callback(process.kill)
            return process

        yield started


def run(*arguments: object) -> Result:
    """The command in this process, which has paid for the imports already."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_train_end_to_end(start, workshop, tmp_path):
    output = tmp_path / "new" / "model"
    process = start(command(workshop, output, "--epochs", "2", "--no-calibrate", "--objective=bce", "--seed", "7"))
    printed, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    assert re.search(r"validation( +\d+\.\d){6}", printed)
    assert f"model folder: {output}" in printed
    assert f"next: abalone evaluate {output}" in told
    assert [path.name for path in output.parent.iterdir()] == ["model"]  # no checkpoints, no temporary names
    about = json.loads((output / "abalone.json").read_text())
    made_with = about["config"]
    assert (made_with["epochs"], made_with["calibrate"], made_with["objective"]) == (2, False, "bce")
    assert made_with["seed"] == 7
    assert made_with["max_length"] == SETTINGS["max_length"]  # from the file, since no option says otherwise
    assert len(about["story"]["history"]["training"]) == 2
    assert about["label_names"] == [f"topic {j}" for j in range(5)]


def standing(checkpoint: Path) -> dict[str, Any]:
    """How far a run was. The file is read at once, since it may be replaced at any time.

    It is whole under one of its two names at every moment.
    """
    before = checkpoint.with_name("resume-before.safetensors")
    content = (checkpoint if checkpoint.exists() else before).read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return json.loads(header["__metadata__"]["notes"])["standing"]


def reached(checkpoint: Path) -> int:
    try:
        return int(standing(checkpoint)["step"])
    except FileNotFoundError:  # nothing yet, or in the moment between its two names
        return 0


def wait_for_step(process: subprocess.Popen[str], checkpoint: Path, step: int) -> None:
    """Until the checkpoint of that step, or of a later one, is on the disk."""
    deadline = time.monotonic() + PATIENCE
    while reached(checkpoint) < step:
        assert process.poll() is None, f"it ended before step {step}: {process.communicate()}"
        assert time.monotonic() < deadline, f"no step {step} after {PATIENCE} s"
        time.sleep(0.002)


def assert_same_model(folder: Path, expected: Path) -> None:
    for name in WEIGHTS:
        assert (folder / name).read_bytes() == (expected / name).read_bytes(), name
    one, other = (json.loads((place / "abalone.json").read_text()) for place in (folder, expected))
    assert one["decision"] == other["decision"]


def history(folder: Path, stage: str) -> list[dict[str, float]]:
    return json.loads((folder / "abalone.json").read_text())["story"]["history"][stage]


def assert_went_on(before: list[dict[str, float]], after: list[dict[str, float]]) -> None:
    """Seconds are measured, so that equal ones are of the same epoch and not of one done again."""
    assert before
    assert before == after[: len(before)]
    assert len(after) == EPOCHS


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_killed_and_resumed_is_uninterrupted(start, workshop, tmp_path):
    output, whole, stage, step = tmp_path / "model", workshop / "whole", "training", 33
    arguments = command(workshop, output, "--objective", "bce")
    assert run(*command(workshop, whole, "--objective", "bce")).exit_code == 0
    checkpoint = tmp_path / "model.training" / stage / "resume.safetensors"

    process = start(arguments)
    wait_for_step(process, checkpoint, step)
    time.sleep(0.01)  # a moment that nothing is prepared for, in a step or in the middle of saving one
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert not output.exists()
    saved = standing(checkpoint)
    assert step - 1 <= saved["step"] < EPOCHS * STEPS_AN_EPOCH  # one less in the moment between its two names

    resumed = start([*arguments, "--resume"])
    _, told = resumed.communicate(timeout=PATIENCE)
    assert resumed.returncode == 0, told
    assert_went_on(saved["history"], history(output, stage))
    assert_same_model(output, whole)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_ctrl_c_outside_of_training_says_how_to_go_on_too(workshop, tmp_path, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(AbaloneClassifier, "save_pretrained", interrupted)
    result = run(*command(workshop, tmp_path / "model", "--epochs", "0"))
    assert result.exit_code == 130
    assert result.stderr.endswith("interrupted\n  Run the same command with --resume to go on.\n")


def assert_refused(result: Result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)  # no traceback
    told = " ".join(result.stderr.replace("│", " ").split())
    for word in words:
        assert word in told


@pytest.fixture
def no_training(monkeypatch):
    def fit_corpus(*_: object, **__: object) -> None:
        pytest.fail("it should have been refused before training")

    monkeypatch.setattr(AbaloneClassifier, "fit_corpus", fit_corpus)


@pytest.mark.usefixtures("no_training")
class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--epoch", "3"], ["No such option: --epoch", "--epochs"]),
            (["--epochs", "many"], ["'--epochs'", "valid integer"]),
            (["--epochs", "-1"], ["error: epochs must be at least 0, got -1"]),
            (["--epochs"], ["'--epochs' requires an argument"]),
            (["--dropout", "1.5"], ["error: dropout must be between 0 and 1, got 1.5"]),
            (["--pooling", "max"], ["'--pooling'", "'cls', 'mean'"]),
            (["one-more-file.csv"], ["unexpected extra argument"]),
            (["--config", "nowhere.yaml"], ["error: nowhere.yaml: No such file or directory"]),
            (["--output", "."], ["error: --output . is no name for a new folder"]),
        ],
    )
    def test_settings(self, options, words, workshop, tmp_path):
        assert_refused(run(*command(workshop, tmp_path / "model", *options)), *words)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ("epoch: 3", ["no setting is called 'epoch'; did you mean 'epochs'?"]),
            ("epochs: soon", ["epochs must be a whole number, got 'soon'"]),
            ("epochs: [", ["is not YAML"]),
            ("just words", ["must hold `setting: value` lines, found str"]),
        ],
    )
    def test_configuration_files(self, content, words, workshop, tmp_path):
        file = tmp_path / "settings.yaml"
        file.write_text(content)
        assert_refused(run(*command(workshop, tmp_path / "model", "--config", file)), f"error: {file}", *words)

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ('{"text": "a", "labels": ["x"]}\n{"text": 3, "labels": []}\n', [":2: ", "is no string but int"]),
            ('{"text": "a", "labels": ["x"]}\n{"text": \n', [":2: not JSON"]),
            ('{"title": "a", "labels": ["x"]}\n', ["no column for the text", "--text-column"]),
            ("", ["the file holds no rows"]),
            ('{"text": "a", "labels": []}\n{"text": "b", "labels": []}\n', ["no document has a label"]),
        ],
    )
    def test_data(self, content, words, tmp_path):
        file = tmp_path / "papers.jsonl"
        file.write_text(content)
        assert_refused(run("train", file, "-o", tmp_path / "model"), "error:", *words)
        assert [path.name for path in tmp_path.iterdir()] == ["papers.jsonl"]

    def test_data_that_is_not_there(self, workshop, tmp_path):
        missing = workshop / "paper.jsonl"
        assert_refused(run("train", missing, "-o", tmp_path / "model"), "Did you mean", "papers.jsonl")

    def test_a_folder_that_holds_something_else(self, workshop, tmp_path):
        (tmp_path / "thesis.txt").write_text("do not touch")
        assert_refused(run(*command(workshop, tmp_path)), f"error: {tmp_path} exists and is no model folder")
        assert (tmp_path / "thesis.txt").read_text() == "do not touch"

    def test_a_folder_of_checkpoints_that_is_somebody_elses(self, workshop, tmp_path):
        mine = tmp_path / "model.training"
        mine.mkdir()
        (mine / "notes.txt").write_text("do not touch")
        for options in ((), ("--resume",)):
            refused = run(*command(workshop, tmp_path / "model", *options))
            assert_refused(refused, f"error: {mine}, where checkpoints go, holds something else")
        assert (mine / "notes.txt").read_text() == "do not touch"


def test_options_may_stand_before_the_data(workshop, tmp_path):
    options = ["--epochs", "0", "--no-calibrate", "--config", str(workshop / "config.yaml"), "-o", str(tmp_path / "m")]
    result = run("train", *options, workshop / "papers.jsonl")
    assert result.exit_code == 0, result.output
    config = json.loads((tmp_path / "m" / "abalone.json").read_text())["config"]
    assert (config["epochs"], config["calibrate"], config["max_length"]) == (0, False, SETTINGS["max_length"])


def test_help_lists_every_setting_as_the_default_recipe_has_it():
    shown, default = run("train", "--help").stdout, recipe()
    assert re.search(rf"--queue-size +<int> +{default.queue_size}", shown)
    assert re.search(rf"--pooling +<cls\|mean> +{default.pooling}", shown)
    assert re.search(rf"--lexical +--no-lexical +<bool> +{default.lexical}", shown)


def test_a_recipe_then_the_file_then_options(workshop, tmp_path):
    result = run(*command(workshop, tmp_path / "m", "--recipe", "paper", "--epochs", "0", "--calibrate"))
    assert result.exit_code == 0, result.output
    config = json.loads((tmp_path / "m" / "abalone.json").read_text())["config"]
    said = SETTINGS | {"epochs": 0, "calibrate": True, "encoder": str(workshop / "encoder")}
    assert config == recipe("paper", **said).to_dict()


def test_a_slip_in_the_recipe_costs_nothing(workshop, tmp_path):
    assert_refused(run(*command(workshop, tmp_path / "m", "--recipe", "rar")), "did you mean 'rare'?")
    (tmp_path / "settings.yaml").write_text("recipe: papr\n")
    typo = run("train", workshop / "papers.jsonl", "-o", tmp_path / "m", "--config", tmp_path / "settings.yaml")
    assert_refused(typo, "settings.yaml: no recipe is called 'papr'; did you mean 'paper'?")


@pytest.fixture
def unfinished(workshop, tmp_path, monkeypatch):
    """The folder of a run that broke off after training, when the model was to be written."""

    def disk_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(AbaloneClassifier, "save_pretrained", disk_full)
        assert_refused(run(*command(workshop, tmp_path / "model", "--epochs", "1")), "error: No space left on device")
    return tmp_path / "model.training"


def test_going_on_takes_the_same_settings_under_any_name(unfinished, workshop, tmp_path):
    renamed = workshop / "config.yaml", tmp_path / "renamed.yaml"
    renamed[1].write_text(
        f"recipe: fast\n{yaml.safe_dump(recipe().to_dict() | yaml.safe_load(renamed[0].read_text()))}"
    )
    refused = run(*command(workshop, tmp_path / "model", "--resume", "--epochs", "1", "--recipe", "paper"))
    assert_refused(refused, f"error: cannot go on with the run in {unfinished}: ")
    options = ["--config", renamed[1], "--resume", "--epochs", "1", "--output", tmp_path / "model"]
    result = run("train", workshop / "papers.jsonl", *options)
    assert result.exit_code == 0, result.output


def test_going_on_takes_the_same_settings(unfinished, workshop, tmp_path):
    refused = run(*command(workshop, tmp_path / "model", "--resume", "--epochs", "3", "--device", "auto"))
    assert_refused(refused, f"error: cannot go on with the run in {unfinished}: epochs was 1 and is 3. ")
    result = run(*command(workshop, tmp_path / "model", "--resume", "--epochs", "1", "--device", "auto"))
    assert result.exit_code == 0, result.output
    assert not unfinished.exists()


def test_without_resume_it_starts_anew(unfinished, workshop, tmp_path):
    (unfinished / "pretraining" / "resume.safetensors").write_bytes(b"would be refused if it were read")
    result = run(*command(workshop, tmp_path / "model", "--epochs", "1"))
    assert result.exit_code == 0, result.output
    assert f"note: the unfinished run in {unfinished} is started anew" in result.stderr
    assert not unfinished.exists()


@pytest.mark.filterwarnings("always")
def test_a_damaged_checkpoint_is_told_and_the_one_before_used(unfinished, workshop, tmp_path):
    stage = unfinished / "pretraining"
    checkpoint = stage / "resume.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    result = run(*command(workshop, tmp_path / "model", "--epochs", "1", "--resume"))
    assert result.exit_code == 0, result.output
    before = stage / "resume-before.safetensors"
    assert f"warning: the checkpoint {checkpoint} is damaged (" in result.stderr
    assert f"; going on from the one before it, {before}" in result.stderr


def test_with_no_checkpoint_that_is_whole_it_says_what_to_do(unfinished, workshop, tmp_path):
    stage = unfinished / "pretraining"
    for checkpoint in stage.glob("resume*"):
        checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    result = run(*command(workshop, tmp_path / "model", "--epochs", "1", "--resume"))
    assert_refused(result, "error: the checkpoint", "is damaged", f"remove the folder {stage} to do this stage again")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"fingerprint": 3, "settings": {}}', "\0\0"])
def test_a_damaged_identity_is_told(content, unfinished, workshop, tmp_path):
    (unfinished / "run.json").write_text(content)
    result = run(*command(workshop, tmp_path / "model", "--epochs", "1", "--resume"))
    assert_refused(result, f"error: {unfinished / 'run.json'} is damaged", "start anew, without --resume")


@pytest.mark.filterwarnings("always")
def test_a_run_that_was_killed_while_it_started_anew_is_no_obstacle(unfinished, workshop, tmp_path):
    (unfinished / "run.json").unlink()  # the first thing to go
    (unfinished / ".run.json.0123.abalone-partial").write_text("{")
    result = run(*command(workshop, tmp_path / "model", "--epochs", "1", "--resume"))
    assert result.exit_code == 0, result.output
    assert "there is no run to go on with" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.filterwarnings("always")
def test_nothing_to_resume_is_said(workshop, tmp_path):
    result = run(*command(workshop, tmp_path / "model", "--epochs", "0", "--resume"))
    assert result.exit_code == 0, result.output
    assert f"warning: there is no run to go on with in {tmp_path / 'model.training'}: starting anew" in result.stderr


@pytest.mark.filterwarnings("always")
def test_what_the_notes_say_is_said_once(tmp_path, workshop):
    file = tmp_path / "papers.jsonl"
    rows = (workshop / "papers.jsonl").read_text()
    file.write_text(rows + "\n" + json.dumps({"text": "w1", "labels": ["unheard of"], "split": "test"}))
    result = run("train", file, "-o", tmp_path / "model", "--config", workshop / "config.yaml", "--epochs", "0")
    assert result.exit_code == 0, result.output
    note = "In no training document, so left out of training and scoring: unheard of."
    assert [line for line in result.stderr.splitlines() if note in line] == [f"note: {note}"]


@pytest.mark.filterwarnings("ignore:on validation the model")
def test_training_again_replaces_the_model_and_shows_tf_idf_beside_it(workshop, tmp_path):
    output = tmp_path / "model"
    assert run(*command(workshop, output, "--epochs", "0", "--seed", "1")).exit_code == 0
    result = run(*command(workshop, output, "--epochs", "0", "--seed", "2", "--lexical"))
    assert result.exit_code == 0, result.output
    assert json.loads((output / "abalone.json").read_text())["config"]["seed"] == 2
    assert re.search(r"tf-idf", result.stdout)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
