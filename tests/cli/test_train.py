"""`abalone train` as people use it: what it makes of data, settings and recipes, and what it says to nonsense."""

import json
import re
import shlex
import subprocess
import sys

import pytest

import tiny
from abalone import AbaloneClassifier
from abalone.config import ABOUT
from abalone.recipes import ABOUT_RECIPES, RECIPES, recipe
from patience import PATIENCE
from train_command import DOCUMENTS, SETTINGS, assert_refused, command, run


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A folder with a corpus, an encoder and a configuration."""
    return tiny.workshop(tmp_path_factory.mktemp("workshop"), DOCUMENTS, SETTINGS)


@pytest.fixture(autouse=True)
def cache(workshop, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(workshop / "cache"))


def test_train_end_to_end(workshop, tmp_path):
    output = tmp_path / "new" / "model"
    reading = ("--text-column", "text", "--skip-bad-rows")
    options = ("--epochs", "2", "--folds", "1", "--no-calibrate", "--objective=bce", "--seed", "7")
    words = command(workshop, output, *options, *reading)
    ended = subprocess.run(
        [sys.executable, "-m", "abalone", *words], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"out of fold( +\d+\.\d){6}", ended.stdout)
    assert f"model folder: {output}" in ended.stdout
    rest = r"(?:, about .+ left)?"  # which a busy machine adds
    told = re.findall(rf"^Training (\d)/2: train loss \d\.\d{{4}}; \d+ s{rest}$", ended.stderr, re.M)
    assert told == ["1", "2"]  # an epoch a line, also where no bar can be shown
    assert re.search(r"^Fold 1 of 1 is done", ended.stderr, re.M)
    (following,) = re.findall("next: abalone (.+)", ended.stderr)
    evaluate, model, *rest = shlex.split(following)
    assert (evaluate, model, *rest[1:]) == ("evaluate", str(output), "--skip-bad-rows")  # it knows its columns
    assert [path.name for path in output.parent.iterdir()] == ["model"]  # no checkpoints, no temporary names
    about = json.loads((output / "abalone.json").read_text())
    made_with = about["config"]
    assert (made_with["epochs"], made_with["calibrate"], made_with["objective"]) == (2, False, "bce")
    assert made_with["seed"] == 7
    assert made_with["max_length"] == SETTINGS["max_length"]  # from the file, since no option says otherwise
    assert len(about["story"]["history"]["training"]) == 2
    assert about["label_names"] == [f"topic {j}" for j in range(5)]


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
            (["--output", "."], ["error: --output . is not a name for a new folder"]),
        ],
    )
    def test_settings(self, options, words, workshop, tmp_path):
        assert_refused(run(*command(workshop, tmp_path / "model", *options)), *words)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        ("option", "words"),
        [("--objective=mcs", "no loss is called 'mcs'"), ("--device=gpu", "no device is called 'gpu'")],
    )
    def test_names_before_the_data_are_read(self, option, words, tmp_path):
        assert_refused(run("train", tmp_path / "nothing.csv", "-o", tmp_path / "model", option), words)

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
            ('{"text": "a", "labels": ["x"]}\n{"text": 3, "labels": []}\n', [":2: ", "is not a string but int"]),
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
        assert_refused(run(*command(workshop, tmp_path)), f"error: {tmp_path} exists and is not a model folder")
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


def test_help_says_what_every_setting_and_recipe_is_and_shows_the_defaults_of_the_default_recipe():
    shown, default = " ".join(run("train", "--help").stdout.replace("│", " ").split()), recipe()
    assert f"--queue-size N {ABOUT['queue_size']}. [default: {default.queue_size}]" in shown
    assert f"--pooling NAME {ABOUT['pooling']} (cls, mean, normalized_mean). [default: {default.pooling}]" in shown
    assert f"--lexical --no-lexical {ABOUT['lexical']}. [default: on]" in shown
    assert f"--learning-rate X {ABOUT['learning_rate']}. --head-learning-rate" in shown  # the recipe leaves it open
    assert [name for name, about in ABOUT.items() if about not in shown] == []
    assert "None" not in shown
    assert set(ABOUT_RECIPES) == set(RECIPES)
    assert all(f"{told}." in shown for told in ABOUT_RECIPES.values())


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


@pytest.mark.filterwarnings("always")
def test_what_the_notes_say_is_said_once(tmp_path, workshop):
    file = tmp_path / "papers.jsonl"
    rows = (workshop / "papers.jsonl").read_text()
    file.write_text(rows + "\n" + json.dumps({"text": "w1", "labels": ["unheard of"], "split": "test"}))
    result = run("train", file, "-o", tmp_path / "model", "--config", workshop / "config.yaml", "--epochs", "0")
    assert result.exit_code == 0, result.output
    note = "Labels without a training document, left out of training and scoring: unheard of."
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
