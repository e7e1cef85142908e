"""`abalone evaluate` of an ONNX file: the same as of the folder that it was exported from, without torch."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from exported import run_without_torch
from typer.testing import CliRunner, Result

import tiny
from abalone import AbaloneClassifier, load_corpus
from abalone.cli import app
from abalone.inference import onnx_model as backend
from abalone.inference.export import export
from abalone.inference.onnx_model import KEY, STORY, OnnxBackend, OnnxModel, with_checksum

NAMES = tiny.WORDS[:5]
TEXTS, LABELS = tiny.corpus(150, seed=3)


def lists(labels) -> list[list[str]]:
    return [[NAMES[j] for j in np.flatnonzero(row)] for row in labels.toarray()]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Data without splits, and a model trained on it as split with an unusual seed: a folder, and a file of it."""
    place = tmp_path_factory.mktemp("evaluate")
    tiny.write_jsonl(place / "papers.jsonl", TEXTS, lists(LABELS), [None] * len(TEXTS))
    with pytest.MonkeyPatch.context() as patch, tiny.every_expert_heard(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "on validation the model .* does not beat tf-idf")
        patch.setenv("ABALONE_CACHE", str(place / "cache"))
        encoder = tiny.save_encoder(place / "encoder")
        settings = {"max_length": 20, "epochs": 0, "folds": 0, "lexical": True, "neighbours": True, "device": "cpu"}
        corpus = load_corpus(place / "papers.jsonl", seed=7)
        model = AbaloneClassifier(encoder=encoder, pooling="mean", **settings).fit_corpus(corpus)
    model.save_pretrained(place / "model")
    export(model.predictor_, place / "model.onnx")
    return place


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


def told(output: str) -> dict[str, object]:
    return json.loads(output, parse_constant=pytest.fail)


def agree(file: dict, folder: dict) -> None:
    """Labels, and with them all counts, are the same; what looks at probabilities is, to rounding."""
    assert file.pop("labels") == folder.pop("labels")
    assert list(file) == list(folder)
    assert file == pytest.approx(folder, abs=1e-6)


def test_it_scores_as_the_folder_does_without_torch(made):
    """The held-out tenth of the data it was trained on, which the file must know."""
    folder = run(made / "model", made / "papers.jsonl", "--json")
    file = run_without_torch("evaluate", made / "model.onnx", made / "papers.jsonl", "--json")
    assert file.returncode == 0, file.stderr
    assert file.stderr == folder.stderr.replace(f"{made / 'model'} ", f"{made / 'model.onnx'} ")
    expected = told(folder.stdout)
    assert sum(label["support"] for label in expected["labels"]) < LABELS.sum() / 5
    assert {"macro_f1_head", "macro_f1_tail", "mean_average_precision"} <= set(expected)
    agree(told(file.stdout), expected)


@pytest.mark.parametrize("split", ["train", "all"])
def test_any_split(split, made):
    words = [made / "papers.jsonl", "--split", split, "--json"]
    agree(told(run(made / "model.onnx", *words).stdout), told(run(made / "model", *words).stdout))


def test_tables_for_people(made):
    words = [made / "papers.jsonl", "--split", "train"]
    file = run(made / "model.onnx", *words)
    assert file.exit_code == 0, file.stderr
    assert "The labels with the lowest F1" in file.stdout
    assert file.stdout == run(made / "model", *words).stdout


def test_of_a_table_that_has_grown_what_is_new_is_scored(made, tmp_path):
    """Folder and file know their training texts, so that scores on these do not flatter them."""
    more, labels = tiny.corpus(20, seed=4)
    tiny.write_jsonl(tmp_path / "grown.jsonl", [*TEXTS, *more], [*lists(LABELS), *lists(labels)], [None] * 170)
    held_out = len(load_corpus(made / "papers.jsonl", seed=7).test)
    folder, file = (run(made / model, tmp_path / "grown.jsonl", "--json") for model in ("model", "model.onnx"))
    for model, scored in (("model", folder), ("model.onnx", file)):
        told_of = (
            f"{150 - held_out} of 170 documents of grown are not scored: {made / model} was trained or tuned on them."
        )
        assert told_of in scored.stderr
    expected = told(folder.stdout)
    assert sum(label["support"] for label in expected["labels"]) < labels.sum() + LABELS.sum() / 5
    agree(told(file.stdout), expected)


def test_every_text_is_read_once_and_stays_in_its_place(made, monkeypatch):
    """However often the metrics look at the probabilities, and with more texts than are in memory at a time."""
    texts, read, outputs = TEXTS[:50], list[str](), OnnxBackend._read
    expected = OnnxModel.load(made / "model.onnx").probabilities(texts)
    monkeypatch.setattr(OnnxBackend, "_read", lambda self, some: read.extend(some) or outputs(self, some))
    monkeypatch.setattr(backend, "BLOCK", 7)
    monkeypatch.setattr("abalone.evaluation.matrices.AT_ONCE", 40)
    tiny.write_jsonl(made / "new.jsonl", texts, lists(LABELS[:50]), [None] * 50)
    words = [made / "new.jsonl", "--split", "all", "--json"]
    in_blocks = told(run(made / "model.onnx", *words).stdout)
    assert read[1:] == texts  # the first is that of `load`
    monkeypatch.undo()
    agree(in_blocks, told(run(made / "model", *words).stdout))
    monkeypatch.setattr(backend, "BLOCK", 7)
    np.testing.assert_allclose(OnnxModel.load(made / "model.onnx").probabilities(texts), expected, atol=1e-6)


def with_story(file: Path, target: Path, story: dict[str, object] | None) -> Path:
    model = onnx.load(file)
    stored = {entry.key: entry.value for entry in model.metadata_props if entry.key not in (STORY, KEY.decode())}
    onnx.helper.set_model_props(model, stored if story is None else {**stored, STORY: json.dumps(story)})
    target.write_bytes(with_checksum(model.SerializeToString()))
    return target


@pytest.mark.filterwarnings("always")
def test_a_file_of_before_says_that_it_does_not_know_its_data(made, tmp_path):
    with_story(made / "model.onnx", tmp_path / "old.onnx", None)
    done = run(tmp_path / "old.onnx", made / "papers.jsonl", "--json")
    assert f"warning: {tmp_path / 'old.onnx'} has no record of its training data, so" in done.stderr
    scores = told(done.stdout)
    assert "macro_f1_tail" not in scores
    assert {label["train_frequency"] for label in scores["labels"]} == {None}
    assert "None" not in run(tmp_path / "old.onnx", made / "papers.jsonl").stdout


def test_a_model_that_was_fitted_on_lists_is_no_file_of_before(made, tmp_path):
    """It has no file to name, and that is no reason to warn."""
    story = {"provenance": {}, "statistics": {"frequencies": [50, 40, 30, 20, 10]}}
    file = with_story(made / "model.onnx", tmp_path / "model.onnx", story)
    done = run(file, made / "papers.jsonl", "--json")  # an error if it warned
    assert done.exit_code == 0, done.stderr
    assert [label["train_frequency"] for label in told(done.stdout)["labels"]] == [50, 40, 30, 20, 10]


@pytest.mark.parametrize(
    "story", [[], {"statistics": {}}, {"statistics": {"frequencies": [1, 2]}}, {"statistics": {"frequencies": "12345"}}]
)
def test_a_story_that_does_not_fit_is_damage(story, made, tmp_path):
    done = run(with_story(made / "model.onnx", tmp_path / "bad.onnx", story), made / "papers.jsonl")
    assert done.exit_code == 2
    assert "bad.onnx is damaged: " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("text.onnx", "papers.jsonl"), "text.onnx is not an ONNX model"),
        (("model.onnx", "papers.jsonl", "--device", "cuda"), "an ONNX file runs on the processor, not on --device 'cu"),
        (("model.onnx", "nowhere.jsonl"), "'nowhere.jsonl' is neither a file or folder nor a benchmark"),
    ],
)
def test_mistakes_end_in_status_2(arguments, message, made, monkeypatch):
    monkeypatch.chdir(made)
    shutil.copy("papers.jsonl", "text.onnx")
    done = run(*arguments)
    assert done.exit_code == 2
    assert isinstance(done.exception, SystemExit)
    assert message in done.stderr


def test_several_processes_are_refused(made, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = run(made / "model.onnx", made / "papers.jsonl")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "error: an ONNX file runs in one process, but several were launched: give the model folder" in done.stderr
