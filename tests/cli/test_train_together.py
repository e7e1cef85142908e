"""`abalone train` in several processes, as people launch it: one model, the same as one process makes."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

import tiny
import train_command
from abalone import AbaloneClassifier
from patience import PATIENCE
from together import environment, free_port
from train_command import command, run, starter

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="signals")]

SETTINGS = train_command.SETTINGS | {
    "epochs": 4,  # of 7 steps, the last with 4 documents
    "batch_size": 16,
    "dropout": 0.0,  # which is drawn otherwise in each process
}
TORCHRUN = ("torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}")
ACCELERATE = (
    *("accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1", "--mixed_precision=no"),
    *("--dynamo_backend=no", f"--main_process_port={free_port()}"),
)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A folder with a corpus, an encoder, a configuration, and a model that one process has made."""
    folder = tiny.workshop(tmp_path_factory.mktemp("workshop"), {"train": 100, "val": 40}, SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABALONE_CACHE", str(folder / "cache"))
        result = run(*command(folder, folder / "alone"))
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def start(workshop, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(workshop / "cache"))
    with starter() as start:
        yield start


def assert_same_answers(alone: Path, output: Path) -> None:
    for name in ("model.safetensors", "head.safetensors"):
        expected, found = load_file(alone / name), load_file(output / name)
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, atol=1e-3, err_msg=key)
    texts, _ = tiny.corpus(30, seed=9)
    one, several = (AbaloneClassifier.from_pretrained(folder) for folder in (alone, output))
    np.testing.assert_allclose(several.predict_proba(texts), one.predict_proba(texts), atol=2e-3)
    assert [path.name for path in output.parent.iterdir()] == [output.name]  # no checkpoints, no temporary names


def assert_told_once(told: str, printed: str, output: Path) -> None:
    assert printed.count(f"model folder: {output}") == 1
    assert printed.count("micro-F1") == 1
    assert told.count("note: Documents without labels") == 1
    assert "Traceback" not in told
    assert "warning" not in told


def test_accelerate_makes_the_model_that_one_process_makes(start, workshop, tmp_path):
    output = tmp_path / "model"
    process = start(*ACCELERATE, arguments=command(workshop, output))
    printed, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    assert_told_once(told, printed, output)
    assert_same_answers(workshop / "alone", output)


def test_one_killed_ends_all_and_torchrun_goes_on_to_the_same_model(start, workshop, tmp_path):
    output = tmp_path / "model"
    folder = tmp_path / "model.training"
    port = free_port()
    survivor, _ = (
        start(arguments=command(workshop, output), killed_at=killed_at, **environment(index, 2, port))
        for index, killed_at in enumerate((None, 12))
    )  # without a launcher, which would end the survivor
    _, told = survivor.communicate(timeout=PATIENCE)
    assert survivor.returncode == 2
    assert "error: another of the 2 processes has ended or cannot be reached" in told
    assert "imed out" not in told  # noticed, not waited for in vain
    assert f"it can go on from {folder}\n  To continue, run the same command with --resume." in told
    assert "Traceback" not in told
    assert not output.exists()

    process = start(*TORCHRUN, arguments=command(workshop, output, "--resume"))
    printed, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    assert_told_once(told, printed, output)
    assert_same_answers(workshop / "alone", output)

    port = free_port()
    again = [start(arguments=command(workshop, output, "--resume"), **environment(index, 2, port)) for index in (0, 1)]
    for process, said in zip(again, (True, False), strict=True):
        printed, told = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, told
        assert ("is finished already" in told) == said
        assert not printed


def test_torchrun_cross_fits_the_model_that_one_process_cross_fits(start, workshop, tmp_path):
    alone, output = tmp_path / "alone", tmp_path / "together" / "model"
    options = ("--objective", "msc+0.3*zlpr", "--folds", "2", "--neighbours", "--learn-names")
    assert run(*command(workshop, alone, *options)).exit_code == 0
    process = start(*TORCHRUN, arguments=command(workshop, output, *options))
    printed, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    assert_told_once(told, printed, output)
    assert_same_answers(alone, output)
    one, several = (load_file(folder / "out_of_fold.safetensors") for folder in (alone, output))
    assert one.keys() == several.keys()
    for name in one:
        np.testing.assert_allclose(several[name], one[name], atol=2e-2, err_msg=name)


def test_torchrun_predicts_what_one_process_predicts(start, workshop, tmp_path):
    texts, _ = tiny.corpus(53, seed=9)
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")

    def predict(output: Path, *options: str) -> list[str]:
        place = [str(workshop / "alone"), str(tmp_path / "texts.txt"), "--output", str(output)]
        return ["predict", *place, "--part-size", "20", "--probabilities", "--device", "cpu", *options]

    def answers(output: Path) -> list[dict[str, float]]:
        lines = [line for part in sorted(output.glob("part-*")) for line in part.read_text().splitlines()]
        return [json.loads(line)["probabilities"] for line in lines]

    assert run(*predict(tmp_path / "one")).exit_code == 0
    process = start(*TORCHRUN, arguments=predict(tmp_path / "two"))
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    assert told.count("53 texts answered") == 1
    (tmp_path / "two" / "part-00001.jsonl").unlink()  # it, and what follows, is made again
    process = start(*TORCHRUN, arguments=predict(tmp_path / "two", "--resume"))
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    one, two = answers(tmp_path / "one"), answers(tmp_path / "two")
    assert len(one) == len(two) == 53
    for mine, theirs in zip(one, two, strict=True):
        assert mine.keys() == theirs.keys()
        np.testing.assert_allclose(list(mine.values()), list(theirs.values()), atol=1e-5)
