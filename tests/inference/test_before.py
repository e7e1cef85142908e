"""Models and interrupted runs of the version before: opened with equal answers, or refused with the reason.

`before/make_before.py` has made them, with that version.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import tiny
from abalone import AbaloneClassifier, load_corpus
from abalone.cli import app
from abalone.config import Config
from abalone.inference.folder import load, save
from abalone.inference.onnx_model import OnnxModel
from abalone.training.run import IDENTITY, fingerprint

BEFORE = Path(__file__).parent / "before"
TOLD = json.loads((BEFORE / "answers.json").read_text(encoding="utf-8"))
TEXTS, ANSWERS = TOLD["texts"], TOLD["answers"]
ROUNDING = 1e-5  # of products in fp32, which another machine adds up in another order


def assert_same(name, probabilities, labels):
    np.testing.assert_allclose(probabilities, ANSWERS[name]["probabilities"], rtol=0, atol=ROUNDING)
    assert labels == ANSWERS[name]["labels"]


@pytest.mark.parametrize("name", ["model", "words"])
def test_folder_of_the_version_before_gives_equal_answers(name):
    model = AbaloneClassifier.from_pretrained(BEFORE / name)
    assert_same(name, model.predict_proba(TEXTS), model.predict(TEXTS))
    assert model.evaluate_out_of_fold()[0]["micro_f1"] > 0


@pytest.mark.parametrize("name", ["model", "words"])
def test_folder_of_the_version_before_read_only_to_answer_gives_equal_answers(name):
    model = load(BEFORE / name, only_to_answer=True, device="cpu")
    probabilities = model.probabilities(TEXTS)
    assert_same(name, probabilities, model.names(model.decision.labels(probabilities)))


@pytest.mark.parametrize("name", ["model", "words"])
def test_folder_of_the_version_before_is_saved_again_with_equal_answers(name, tmp_path):
    save(load(BEFORE / name, device="cpu"), tmp_path / "again")
    model = AbaloneClassifier.from_pretrained(tmp_path / "again")
    assert_same(name, model.predict_proba(TEXTS), model.predict(TEXTS))


@pytest.mark.parametrize("name", ["model.onnx", "words.onnx"])
def test_onnx_file_of_the_version_before_gives_equal_answers(name):
    model = OnnxModel.load(BEFORE / name)
    assert_same(name, model.probabilities(TEXTS), model.predict(TEXTS))
    assert model.story["statistics"]["frequencies"]
    assert model.seen is not None


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """The folder of the version before, to write to; settings name the encoder by a path relative to it."""
    place = tmp_path / "before"
    shutil.copytree(BEFORE, place)
    monkeypatch.chdir(place)
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    return place / "interrupted.training"


def go_on():
    """Continue the run as a person does who has updated ABALONE."""
    options = ["--config", "config.yaml", "--checkpoint-seconds", "300", "--resume"]
    with tiny.every_expert_heard():  # as in the run
        return CliRunner().invoke(app, ["train", "papers.jsonl", "--output", "interrupted", *options])


def test_interrupted_run_of_the_version_before_is_refused_with_the_setting_that_is_new(interrupted):
    kept = {path: path.read_bytes() for path in interrupted.rglob("*") if path.is_file()}
    refused = go_on()
    assert refused.exit_code == 2
    assert "error: cannot resume the run in interrupted.training: learn_names was None and is True" in refused.output
    assert all(path.read_bytes() == content for path, content in kept.items())


def test_checkpoints_of_the_version_before_go_on_to_the_same_model(interrupted):
    file = interrupted / IDENTITY
    stored = json.loads(file.read_text())
    config = Config.from_dict(stored["settings"])  # new settings as their defaults, which leave training as it was
    own = fingerprint(config, load_corpus("papers.jsonl"))
    file.write_text(json.dumps({**stored, "settings": config.to_dict(), "fingerprint": own}))
    Path("config.yaml").write_text(yaml.safe_dump(config.to_dict()))
    ended = go_on()
    assert ended.exit_code == 0, ended.output
    model = AbaloneClassifier.from_pretrained("interrupted")
    assert_same("model", model.predict_proba(TEXTS), model.predict(TEXTS))
