"""An encoder is what it computes, not what its folder is called."""

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoModel

import tiny
from abalone.reproduce.fingerprints import encoder_fingerprint


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


def test_other_files_with_the_same_content_are_the_same(encoder, fingerprint, tmp_path):
    shutil.copytree(encoder, tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").unlink()
    AutoModel.from_pretrained(encoder, add_pooling_layer=False).save_pretrained(
        tmp_path / "other", max_shard_size="20KB"
    )
    assert len(list((tmp_path / "other").glob("*.safetensors"))) > 1
    changes = {"architectures": ["BertForMaskedLM"], "transformers_version": "4.0", "hidden_dropout_prob": 0.3}
    assert edited(tmp_path / "other", "config.json", **changes) == fingerprint


def test_other_weights_are_another(fingerprint, tmp_path):
    assert encoder_fingerprint(tiny.save_encoder(tmp_path / "encoder", seed=1)) != fingerprint


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"hidden_act": "relu"}),
        ("config.json", {"num_attention_heads": 4}),
        ("tokenizer_config.json", {"model_max_length": 32}),
    ],
)
def test_so_are_the_same_weights_used_otherwise(encoder, fingerprint, tmp_path, file, change):
    shutil.copytree(encoder, tmp_path / "other")
    assert edited(tmp_path / "other", file, **change) != fingerprint


def test_and_the_same_weights_with_other_words(encoder, fingerprint, tmp_path):
    shutil.copytree(encoder, tmp_path / "other")
    file = tmp_path / "other" / "tokenizer.json"
    file.write_text(file.read_text().replace('"w7"', '"another"'))
    assert encoder_fingerprint(str(tmp_path / "other")) != fingerprint
