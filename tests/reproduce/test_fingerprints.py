"""Keys of runs, names of encoders, and fingerprints of their content."""

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoModel

import tiny
from abalone.config import Config
from abalone.reproduce.fingerprints import encoder_fingerprint, encoder_name, portable, run_key


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    return Path(tiny.save_encoder(tmp_path_factory.mktemp("first") / "encoder"))


@pytest.fixture(scope="module")
def fingerprint(encoder) -> str:
    return encoder_fingerprint(str(encoder))


def edited(folder: Path, file: str, **changes: object) -> str:
    settings = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**settings, **changes}))
    return encoder_fingerprint(str(folder))


def test_encoder_fingerprint_ignores_how_files_are_written(encoder, fingerprint, tmp_path):
    shutil.copytree(encoder, tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").unlink()
    AutoModel.from_pretrained(encoder, add_pooling_layer=False).save_pretrained(
        tmp_path / "other", max_shard_size="20KB"
    )
    assert len(list((tmp_path / "other").glob("*.safetensors"))) > 1
    changes = {"architectures": ["BertForMaskedLM"], "transformers_version": "4.0", "hidden_dropout_prob": 0.3}
    assert edited(tmp_path / "other", "config.json", **changes) == fingerprint


def test_encoder_fingerprint_depends_on_weights(fingerprint, tmp_path):
    assert encoder_fingerprint(tiny.save_encoder(tmp_path / "encoder", seed=1)) != fingerprint


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"hidden_act": "relu"}),
        ("config.json", {"num_attention_heads": 4}),
        ("tokenizer_config.json", {"model_max_length": 32}),
    ],
)
def test_encoder_fingerprint_depends_on_architecture_and_window(encoder, fingerprint, tmp_path, file, change):
    shutil.copytree(encoder, tmp_path / "other")
    assert edited(tmp_path / "other", file, **change) != fingerprint


def test_encoder_fingerprint_depends_on_vocabulary(encoder, fingerprint, tmp_path):
    shutil.copytree(encoder, tmp_path / "other")
    file = tmp_path / "other" / "tokenizer.json"
    file.write_text(file.read_text().replace('"w7"', '"another"'))
    assert encoder_fingerprint(str(tmp_path / "other")) != fingerprint


def test_encoder_name_is_last_part_of_a_folder_or_the_hub_name(tmp_path, monkeypatch):
    (tmp_path / "models" / "bert").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert encoder_name("models/bert") == encoder_name("./models/bert/") == encoder_name("/gone/bert") == "bert"
    assert encoder_name("user/bert") == "user/bert"
    monkeypatch.chdir(tmp_path / "models" / "bert")
    assert encoder_name(".") == "bert"
    assert encoder_name("..") == "models"


def test_encoder_name_of_a_link_is_its_own(tmp_path):
    (tmp_path / "version-3").mkdir()
    (tmp_path / "bert").symlink_to(tmp_path / "version-3")
    assert encoder_name(str(tmp_path / "bert")) == "bert"


def test_run_key_of_stored_settings_does_not_depend_on_working_folder(tmp_path, monkeypatch):
    before = run_key(portable(Config(encoder="user/bert")), None, "corpus")
    stored = portable(Config(encoder="user/bert"))
    (tmp_path / "user" / "bert").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert run_key(stored, None, "corpus") == before


def test_run_key_is_equal_for_int_and_float():
    def key(**settings: object) -> str:
        return run_key(portable(Config.from_dict(settings)), None, "corpus")

    assert key(dropout=0) == key(dropout=0.0) != key()
    assert key(clip=1) == key(clip=1.0) == key()
    damaged = portable(Config()) | {"dropout": 10**400}
    assert run_key(damaged, None, "corpus") != key()
