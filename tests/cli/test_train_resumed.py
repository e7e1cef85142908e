"""`abalone train` that was killed, interrupted or out of space: what stays, and how it goes on."""

import json
import os
import shutil
import signal
import warnings
from pathlib import Path

import pytest
import yaml

import tiny
from abalone import AbaloneClassifier
from abalone.recipes import recipe
from patience import PATIENCE
from train_command import (
    DOCUMENTS,
    EPOCHS,
    SETTINGS,
    assert_refused,
    command,
    run,
    standing,
    starter,
)

GIVEN = ("--epochs", "0", "--max-length", "200")  # more than the encoder reads: the folder has another number
WEIGHTS = ("model.safetensors", "head.safetensors")


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A folder with a corpus, an encoder and a configuration."""
    return tiny.workshop(tmp_path_factory.mktemp("workshop"), DOCUMENTS, SETTINGS)


@pytest.fixture(autouse=True)
def cache(workshop, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(workshop / "cache"))


@pytest.fixture
def start():
    with starter() as start:
        yield start


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


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_killed_and_resumed_is_uninterrupted(start, workshop, tmp_path):
    output, whole, stage, step = tmp_path / "model", workshop / "whole", "training", 33
    arguments = command(workshop, output, "--objective", "bce")
    assert run(*command(workshop, whole, "--objective", "bce")).exit_code == 0
    checkpoint = tmp_path / "model.training" / stage / "resume.safetensors"

    process = start(arguments=arguments, killed_at=step)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert not output.exists()
    saved = standing(checkpoint)
    assert saved["step"] == step

    resumed = start(arguments=[*arguments, "--resume"])
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
    assert result.stderr.endswith("interrupted\n  To continue, run the same command with --resume.\n")


@pytest.fixture(scope="module")
def broken_off(workshop):
    """The folder of a run that broke off after training, when the model was to be written; tests work on a copy."""

    def disk_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABALONE_CACHE", str(workshop / "cache"))
        patch.setattr("abalone.evaluation.mixing.SPLITS", 1)  # of five: weighing experts is not the subject
        patch.setattr(AbaloneClassifier, "save_pretrained", disk_full)
        result = run(*command(workshop, workshop / "broken", "--epochs", "1"))
    assert_refused(result, "error: No space left on device")
    return workshop / "broken.training"


@pytest.fixture
def unfinished(broken_off, tmp_path, monkeypatch):
    monkeypatch.setattr("abalone.evaluation.mixing.SPLITS", 1)
    return shutil.copytree(broken_off, tmp_path / "model.training")


def test_going_on_takes_the_same_settings_under_any_name(unfinished, workshop, tmp_path):
    renamed = workshop / "config.yaml", tmp_path / "renamed.yaml"
    renamed[1].write_text(
        f"recipe: fast\n{yaml.safe_dump(recipe().to_dict() | yaml.safe_load(renamed[0].read_text()))}"
    )
    refused = run(*command(workshop, tmp_path / "model", "--resume", "--epochs", "1", "--recipe", "paper"))
    assert_refused(refused, f"error: cannot resume the run in {unfinished}: ")
    options = ["--config", renamed[1], "--resume", "--epochs", "1", "--output", tmp_path / "model"]
    result = run("train", workshop / "papers.jsonl", *options)
    assert result.exit_code == 0, result.output


def test_going_on_takes_the_same_settings(unfinished, workshop, tmp_path):
    refused = run(*command(workshop, tmp_path / "model", "--resume", "--epochs", "3", "--device", "auto"))
    assert_refused(refused, f"error: cannot resume the run in {unfinished}: epochs was 1 and is 3. ")
    result = run(*command(workshop, tmp_path / "model", "--resume", "--epochs", "1", "--device", "auto"))
    assert result.exit_code == 0, result.output
    assert not unfinished.exists()


def test_without_resume_it_starts_anew(unfinished, workshop, tmp_path):
    (unfinished / "pretraining" / "resume.safetensors").write_bytes(b"would be refused if it were read")
    result = run(*command(workshop, tmp_path / "model", "--epochs", "1"))
    assert result.exit_code == 0, result.output
    assert f"note: the unfinished run in {unfinished} is discarded" in result.stderr
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
    assert_refused(result, f"error: {unfinished / 'run.json'} is damaged", "start again without --resume")


@pytest.mark.filterwarnings("always")
def test_a_run_that_was_killed_while_it_started_anew_is_no_obstacle(unfinished, workshop, tmp_path):
    (unfinished / "run.json").unlink()  # the first thing to go
    (unfinished / ".run.json.0123.abalone-partial").write_text("{")
    result = run(*command(workshop, tmp_path / "model", "--epochs", "1", "--resume"))
    assert result.exit_code == 0, result.output
    assert "there is no run to resume" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.filterwarnings("always")
def test_nothing_to_resume_is_said(workshop, tmp_path):
    result = run(*command(workshop, tmp_path / "model", "--epochs", "0", "--resume"))
    assert result.exit_code == 0, result.output
    assert f"warning: there is no run to resume in {tmp_path / 'model.training'}: starting from" in result.stderr


@pytest.fixture(scope="module")
def made(workshop):
    """A finished model folder; tests work on a copy of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABALONE_CACHE", str(workshop / "cache"))
        with warnings.catch_warnings(action="always"):
            result = run(*command(workshop, workshop / "made", *GIVEN))
        assert result.exit_code == 0, result.output
        assert "max_length=200 becomes 64" in result.stderr
    return workshop / "made"


@pytest.fixture
def finished(made, tmp_path, monkeypatch):
    """The same, where training again fails."""

    def trained(*_: object, **__: object) -> None:
        raise OSError("it is trained again")

    monkeypatch.setattr(AbaloneClassifier, "fit_corpus", trained)
    return shutil.copytree(made, tmp_path / "model")


def state(folder: Path) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "options",
    [(), ("--device", "auto", "--checkpoint-seconds", "60", "--tracker", "tensorboard", "--tracker-folder", "logs")],
)
def test_a_finished_run_is_not_done_again(options, finished, workshop, tmp_path):
    before = state(finished)
    result = run(*command(workshop, finished, *GIVEN, "--resume", *options))
    assert result.exit_code == 0, result.output
    assert (
        f"note: {finished} is finished already, with the same settings and documents: nothing to do. "
        "Leave out --resume to train it again.\n"
    ) in result.stderr
    assert state(finished) == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_finished_run_leaves_nothing_of_an_attempt_that_was_killed_before_it_began(finished, workshop, tmp_path):
    begun = tmp_path / "model.training"
    begun.mkdir()
    (begun / ".run.json.0123.abalone-partial").write_text("{")
    result = run(*command(workshop, finished, *GIVEN, "--resume"))
    assert result.exit_code == 0, result.output
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def with_another_text(rows: list[dict[str, object]]) -> None:
    rows[0]["text"] = "w1 w2 w3"


def with_another_label(rows: list[dict[str, object]]) -> None:
    rows[-50]["labels"] = ["topic 4"]  # of validation


@pytest.mark.parametrize("change", [with_another_text, with_another_label])
def test_other_documents_are_trained_on(change, finished, workshop, tmp_path):
    rows = [json.loads(line) for line in (workshop / "papers.jsonl").read_text().splitlines()]
    assert rows[-50]["split"] == "val"
    assert rows[-50]["labels"] != ["topic 4"]
    data = tmp_path / "papers.jsonl"
    for changed in (False, True):
        if changed:
            change(rows)
        data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        result = run("train", data, *command(workshop, finished, *GIVEN, "--resume")[2:])
        assert ("is finished already" in result.stderr, result.exit_code) == ((False, 2) if changed else (True, 0))


def test_other_settings_are_trained_with(finished, workshop):
    for options in (["--seed", "1"], ["--max-length", "64"]):
        result = run(*command(workshop, finished, *GIVEN, "--resume", *options))
        assert_refused(result, "it is trained again")
        assert (
            f"the model in {finished} was trained with other settings or documents, and will be replaced"
            in result.stderr
        )


def test_without_resume_a_finished_run_is_done_again(finished, workshop):
    assert_refused(run(*command(workshop, finished, *GIVEN)), "it is trained again")


def test_an_unfinished_run_goes_before_the_model_of_an_earlier_one(finished, workshop, tmp_path):
    (tmp_path / "model.training").mkdir()
    (tmp_path / "model.training" / "run.json").write_text("{}")
    assert_refused(run(*command(workshop, finished, *GIVEN, "--resume")), "it is trained again")


def forget_fingerprint(folder: Path) -> None:
    about = json.loads((folder / "abalone.json").read_text())
    del about["story"]["fingerprint"]
    (folder / "abalone.json").write_text(json.dumps(about))
    (folder / "SHA256SUMS").unlink()


def damage(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


@pytest.mark.parametrize("change", [forget_fingerprint, damage])
def test_a_model_folder_that_is_old_or_damaged_is_made_again(change, finished, workshop):
    change(finished)
    assert_refused(run(*command(workshop, finished, *GIVEN, "--resume")), "it is trained again")
