"""The model folder: what it gives back, what it refuses, and that an old one is never lost."""

import io
import json
import os
import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from typer.testing import CliRunner

import tiny
from abalone import AbaloneClassifier, __version__
from abalone.cli import app
from abalone.cli.app import RIGHTS
from abalone.errors import InputError
from abalone.files import atomic
from abalone.inference.folder import SUMS, load, refuse_foreign, save, whole_folder

NAMES = ["Größe", "b/c", "[d]", "e", "f"]
TEXTS, LABELS = tiny.corpus(120)


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    encoder = tiny.save_encoder(folder / "encoder")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), tiny.every_expert_heard():
        warnings.filterwarnings("ignore", "on validation the model .* does not beat tf-idf")
        patch.setenv("ABALONE_CACHE", str(folder / "cache"))
        classifier = AbaloneClassifier(
            encoder=encoder,
            pooling="mean",
            max_length=20,
            epochs=0,
            folds=0,
            lexical=True,
            neighbours=True,
            device="cpu",
        )
        classifier.fit(TEXTS, LABELS, label_names=NAMES)
    shutil.rmtree(encoder)  # the model folder needs nothing but itself
    return classifier.predictor_


@pytest.fixture
def folder(predictor, tmp_path):
    save(predictor, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def unsummed(folder):
    """As one that a person has changed."""
    (folder / "SHA256SUMS").unlink()
    return folder


def test_it_is_all_there(predictor, folder):
    again = load(folder)
    np.testing.assert_array_equal(again.probabilities(TEXTS), predictor.probabilities(TEXTS))
    assert again.label_names == tuple(NAMES)
    assert again.config == predictor.config
    assert json.dumps(again.story) == json.dumps(predictor.story)
    about = json.loads((folder / "abalone.json").read_text(encoding="utf-8"))
    assert about["version"] == __version__
    assert "Größe" in (folder / "abalone.json").read_text(encoding="utf-8")  # for people to read


def test_it_may_be_moved(predictor, folder, tmp_path):
    shutil.move(folder, tmp_path / "elsewhere")
    np.testing.assert_array_equal(load(tmp_path / "elsewhere").probabilities(TEXTS), predictor.probabilities(TEXTS))


def test_saved_again_it_is_the_same_to_the_byte(folder, tmp_path):
    save(load(folder), tmp_path / "again")
    files = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    assert files == {path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*") if path.is_file()}
    for file in files:
        assert (folder / file).read_bytes() == (tmp_path / "again" / file).read_bytes(), file


def test_settings_may_be_replaced(predictor, folder):
    shorter = load(folder, max_length=4)
    assert shorter.config == predictor.config.replace(max_length=4)
    assert not np.array_equal(shorter.embed(TEXTS), predictor.embed(TEXTS))
    assert not np.array_equal(load(folder, pooling="cls").embed(TEXTS), predictor.embed(TEXTS))
    with pytest.raises(ValueError, match="no setting is called 'devise'; did you mean 'device'"):
        load(folder, devise="cpu")
    with pytest.raises(ValueError, match="max_length must be at least 3, got 1"):
        load(folder, max_length=1)


def test_labels_may_be_a_matrix(predictor, folder, tmp_path):
    assert load(folder).answers_in_names
    predictor.answers_in_names = False
    try:
        save(predictor, tmp_path / "matrix")
    finally:
        predictor.answers_in_names = True
    assert not load(tmp_path / "matrix").answers_in_names


@pytest.mark.parametrize(
    "damage", ["", "{", '{"label_names": ', "\0" * 20, "[]", '{"config": {}}', "[" * 5000, "9" * 5000]
)
def test_a_damaged_description_is_named(damage, unsummed):
    (unsummed / "abalone.json").write_text(damage)
    with pytest.raises(ValueError, match=rf"{unsummed / 'abalone.json'} is damaged"):
        load(unsummed)


@pytest.mark.parametrize("name", ["abalone.json", "head.safetensors", "model.safetensors", "tokenizer.json"])
def test_a_file_that_is_missing_is_no_half_model(name, folder):
    (folder / name).unlink()
    with pytest.raises((FileNotFoundError, ValueError), match=name.split(".")[0]):
        load(folder)


def test_any_file_that_is_not_what_was_written_is_named(folder):
    """A wrong digit in a threshold or a weight would answer, and answer wrongly."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("README.md", "SHA256SUMS")]
    assert len(files) > 8
    for file in files:
        whole = file.read_bytes()
        for damaged in (whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:], whole[:-5], b""):
            file.write_bytes(damaged)
            with pytest.raises(ValueError, match=rf"{file} is damaged: it is not what was written"):
                load(folder)
        file.write_bytes(whole)
    load(folder)
    (folder / "README.md").write_text("my own words")
    load(folder)


def test_sums_are_those_of_other_tools_and_may_be_removed(folder):
    assert subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder).returncode == 0
    about = (folder / "abalone.json").read_text(encoding="utf-8")
    (folder / "abalone.json").write_text(about.replace("Größe", "Länge"), encoding="utf-8")  # a person's own change
    with pytest.raises(ValueError, match=f"if you changed the file yourself, remove {folder / 'SHA256SUMS'}"):
        load(folder)
    (folder / "SHA256SUMS").unlink()
    assert "Länge" in load(folder).label_names


@pytest.mark.parametrize("line", ["", "no sum", "0" * 64 + "  ../../etc/passwd", "0" * 64 + "  /etc/passwd", "\0\xff"])
def test_sums_that_are_damaged_or_made_up(line, folder):
    with (folder / "SHA256SUMS").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(ValueError, match="is damaged"):
        load(folder)


def test_a_folder_that_a_kill_has_left_aside_comes_back(predictor, folder, tmp_path):
    folder.rename(tmp_path / f".model.0123{atomic.ASIDE}")

    def fail():
        with whole_folder(folder):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        fail()
    assert load(folder).label_names == tuple(NAMES)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"label_names": ["a"]}, "has the shapes"),
        ({"label_names": 3}, r"it\['label_names'\] is int"),
        ({"config": {"clip": "x"}}, "clip must be a number"),
        ({"config": {"no_such_setting": 1}}, "no setting is called 'no_such_setting'"),
        ({"decision": {}}, "calibration"),
        ({"story": {}}, "has no 'statistics'"),
        ({"story": {"statistics": {"frequencies": [1]}}}, "5 label names, and frequencies for 1"),
        (
            {"story": {"statistics": {"frequencies": [1] * 5}, "label_f1": [0.5]}},
            "5 label names, and label_f1 for 1",
        ),
        ({"story": {"statistics": {"frequencies": [1] * 5}, "tfidf_decision": {}}}, "calibration"),
        ({"tokenizer_max_length": 0}, "it reads 0 tokens of a text"),
        ({"answers_in_names": "yes"}, r"it\['answers_in_names'\] is str"),
    ],
)
def test_a_description_that_does_not_fit_is_told(change, told, unsummed):
    about = json.loads((unsummed / "abalone.json").read_text(encoding="utf-8"))
    (unsummed / "abalone.json").write_text(json.dumps(about | change), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"{unsummed}.* is damaged: .*{told}"):
        load(unsummed)


def test_parts_of_other_models_are_refused(unsummed):
    decision = json.loads((unsummed / "abalone.json").read_text(encoding="utf-8"))["decision"]
    assert any(decision["mixture"].values())
    shutil.rmtree(unsummed / "lexical")
    (unsummed / "neighbours.safetensors").unlink()
    with pytest.raises(ValueError, match="is mixed in, but its file is missing"):
        load(unsummed)


def test_indices_that_point_out_of_a_matrix_are_not_followed(unsummed):
    tensors = load_file(unsummed / "neighbours.safetensors")
    tensors["labels.indices"][3] = 10**9
    save_file(tensors, unsummed / "neighbours.safetensors")
    with pytest.raises(ValueError, match=rf"{unsummed} is damaged"):
        load(unsummed)


@pytest.mark.parametrize("shape", [(7,), (), (4, 4)])
def test_neighbours_of_another_width_are_refused(shape, unsummed):
    tensors = load_file(unsummed / "neighbours.safetensors")
    tensors["embeddings"] = torch.ones(len(tensors["embeddings"]), *shape)
    save_file(tensors, unsummed / "neighbours.safetensors")
    with pytest.raises(InputError, match=rf"{unsummed} is damaged: neighbours.safetensors holds embeddings of the"):
        load(unsummed).probabilities(TEXTS[:2])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"link": {"offset": {}}}, r"it\['link'\]\['offset'\] is dict"),
        ({"link": {}}, r"it\['link'\] has no 'offset'"),
        ({"documents": "120"}, r"it\['documents'\] is str"),
        ({"terms": {}}, r"it\['terms'\] is dict"),
    ],
)
def test_settings_of_words_that_do_not_fit_are_told(change, told, unsummed):
    file = unsummed / "lexical" / "lexical.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(stored | change), encoding="utf-8")
    with pytest.raises(InputError, match=rf"{unsummed} is damaged: .*not the settings of a lexical model \({told}"):
        load(unsummed).probabilities(TEXTS[:2])


def test_an_error_of_a_library_is_damage_whether_or_not_it_names_the_folder(unsummed, monkeypatch):
    config = json.loads((unsummed / "config.json").read_text())
    (unsummed / "config.json").write_text(json.dumps({**config, "model_type": "no such type"}))
    with pytest.raises(ValueError, match=rf"{unsummed} is damaged: "):
        load(unsummed)
    (unsummed / "config.json").write_text(json.dumps(config))

    def broken(*_):
        raise OSError("cannot make sense of it")

    monkeypatch.setattr("abalone.inference.folder.LexicalModel.load", broken)
    with pytest.raises(ValueError, match=rf"{unsummed} is damaged: cannot make sense of it"):
        load(unsummed)


def test_a_device_that_is_none_is_no_damage(folder):
    with pytest.raises(ValueError, match=r"^no device is called 'toaster'"):
        load(folder, device="toaster")


def test_what_is_no_model_folder(tmp_path):
    for place, missing in ((tmp_path, "it has no abalone.json"), (tmp_path / "nowhere", "nothing is there")):
        with pytest.raises(FileNotFoundError, match=rf"{place} is not a model folder: {missing}"):
            load(place)


def test_what_may_be_written_over(folder, tmp_path):
    refuse_foreign(folder)
    refuse_foreign(tmp_path / "new")
    (tmp_path / "empty").mkdir()
    refuse_foreign(tmp_path / "empty")
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(FileExistsError, match=f"{place} exists and is not a model folder"):
            refuse_foreign(place)


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_error_while_writing_leaves_the_old_one(folder, tmp_path):
    before = content(folder)

    def fail():
        with whole_folder(folder) as place:
            (place / "abalone.json").write_text("half of it")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        fail()
    assert content(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_error_while_taking_its_place_leaves_the_old_one(folder, tmp_path, monkeypatch):
    before = content(folder)
    rename = type(folder).rename
    monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)

    def refused(self, target):
        if self.suffix == atomic.PARTIAL:
            raise PermissionError(13, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(type(folder), "rename", refused)

    def fail():
        with whole_folder(folder) as place:
            (place / "abalone.json").write_text("the new one")

    with pytest.raises(PermissionError):
        fail()
    assert content(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_folders_above_it_are_made_and_nothing_is_left_beside_it(predictor, tmp_path):
    save(predictor, tmp_path / "a" / "b" / "model")
    save(predictor, tmp_path / "a" / "b" / "model")
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["model"]


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "../outside", ""])
def test_sums_of_files_that_cannot_be(name, folder):
    (folder / SUMS).write_text(f"{'0' * 64}  {name}\n")
    with pytest.raises(ValueError, match=r"is damaged: it is not what was written") as caught:
        load(folder)
    assert len(str(caught.value)) < 1500


@pytest.mark.skipif(os.name != "posix", reason="rights")
def test_model_can_be_read_by_whom_the_umask_lets(predictor, tmp_path):
    """safetensors makes its files readable to the owner alone."""
    before = os.umask(0o027)
    try:
        save(predictor, tmp_path / "model")
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in [tmp_path / "model", *(tmp_path / "model").rglob("*")]}
    assert {path.name for path, mode in modes.items() if mode != (0o750 if path.is_dir() else 0o640)} == set()


@pytest.mark.parametrize("sums", [True, False])
@pytest.mark.parametrize("name", ["abalone.json", "model.safetensors", "head.safetensors", "tokenizer.json", SUMS])
def test_file_that_may_not_be_read_is_not_called_damaged(name, sums, folder, monkeypatch):
    """Also where the tests run as root, who may read everything."""
    if not sums:
        (folder / SUMS).unlink()
        if name == SUMS:
            return
    opened = io.open

    def refused(file, *arguments, **options):
        if Path(os.fspath(file)) == folder / name:
            raise PermissionError(13, "Permission denied", str(file))
        return opened(file, *arguments, **options)

    monkeypatch.setattr(io, "open", refused)
    for only_to_answer in (True, False):
        with pytest.raises(PermissionError) as caught:
            load(folder, only_to_answer=only_to_answer)
        assert caught.value.filename == str(folder / name)
    told = CliRunner().invoke(app, ["predict", str(folder), "-"], input="w1\n")
    assert told.exit_code == 2
    assert told.stderr == f"error: {folder / name}: Permission denied. {RIGHTS}\n"


@pytest.mark.parametrize("kept", [0, 1, -1])
def test_sums_that_leave_a_file_out_are_refused(kept, folder):
    """An emptied list would turn the check off."""
    lines = (folder / SUMS).read_text().splitlines(keepends=True)
    (folder / SUMS).write_text("".join(lines[:kept]))
    missing = sorted(line.split()[1] for line in lines[kept:])[0]
    with pytest.raises(
        ValueError, match=rf"{folder / SUMS} is damaged: it has no checksum of {missing}\. Copy or make"
    ):
        load(folder)


def test_own_files_beside_a_model_need_no_checksum(folder):
    (folder / "scores.json").write_text("{}")
    load(folder)
    (folder / "adapter_config.json").write_text("{}")  # which `transformers` would look for
    with pytest.raises(ValueError, match=r"it has no checksum of adapter_config\.json"):
        load(folder)


def test_token_cache_that_is_warm_gives_the_same_folder(tmp_path, monkeypatch):
    """A warm one meant padding to 128 in `tokenizer.json`, which came with the encoder; a cold one, none."""
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    encoder = Path(tiny.save_encoder(tmp_path / "encoder"))
    stored = Tokenizer.from_file(str(encoder / "tokenizer.json"))
    stored.enable_padding(length=64, pad_token="[PAD]")
    stored.enable_truncation(64)
    stored.save(str(encoder / "tokenizer.json"))
    for folder in ("cold", "warm"):
        settings = {"max_length": 20, "epochs": 0, "folds": 0, "lexical": False, "neighbours": False, "device": "cpu"}
        classifier = AbaloneClassifier(encoder=str(encoder), **settings)
        classifier.fit(TEXTS[:40], LABELS[:40]).save_pretrained(tmp_path / folder)
    assert content(tmp_path / "cold") == content(tmp_path / "warm")


def test_tokenizer_is_saved_without_what_was_last_asked_of_it(predictor, folder, tmp_path):
    """Padding came with it, or stayed from a call before: with a warm token cache nobody makes one."""
    backend = predictor.network.tokenizer.backend_tokenizer
    backend.enable_padding(length=64)
    backend.enable_truncation(7)
    try:
        save(predictor, tmp_path / "padding")
    finally:
        backend.no_padding()
        backend.no_truncation()
    assert content(tmp_path / "padding") == content(folder)
    plain = Tokenizer.from_file(str(tmp_path / "padding" / "tokenizer.json"))
    assert len(plain.encode("w1 " * 20).ids) == 22
    assert len(plain.encode("w1").ids) == 3
