"""A model folder read only to answer: the same numbers, without `transformers`, and the same errors."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import architectures
import tiny
from abalone.config import Config
from abalone.encoder.architectures.bert import PREFIXES, BertSkeleton
from abalone.encoder.heads import LinearHead
from abalone.encoder.load import load_encoder, load_without_transformers
from abalone.evaluation.decision import Decision, Thresholds
from abalone.inference.folder import load, save
from abalone.inference.predictor import Predictor
from abalone.inference.torch_backend import TorchBackend

TEXTS = [*tiny.corpus(20)[0], " ".join(tiny.WORDS * 2), "[SEP] unknown [CLS]"]


@pytest.fixture(autouse=True)
def no_card(monkeypatch):
    """A card tells of the training, and there was none."""
    monkeypatch.setattr("abalone.inference.folder.model_card", lambda _: "")


def saved(folder, kind="bert", pooling="cls"):
    """A model folder with an encoder of architecture `kind`, as a classifier where `pooling` is "cls"."""
    encoder, tokenizer = load_encoder(architectures.save_encoder(folder / "encoder", kind), pooling)
    head = LinearHead(torch.randn(1, 5, 32, generator=torch.Generator().manual_seed(0)), torch.zeros(1, 5))
    config = Config(pooling=pooling, max_length=20, max_chunks=2, device="cpu")
    story = {"statistics": {"frequencies": [1] * 5}}
    names, decision = ("a", "b", "c", "d", "e"), Decision(Thresholds(np.full(5, 0.5)))
    save(
        Predictor(
            names, TorchBackend(encoder.eval(), tokenizer, head, config), decision, story=story, trained_with=config
        ),
        folder / "model",
    )
    (folder / "model" / "SHA256SUMS").unlink()
    return folder / "model"


@pytest.mark.parametrize("pooling", ["cls", "mean", "normalized_mean"])  # a classifier's weights, and bare ones
@pytest.mark.parametrize("kind", PREFIXES)
def test_probabilities_are_those_of_the_model_read_with_transformers(kind, pooling, tmp_path):
    folder = saved(tmp_path, kind, pooling)
    bare, whole = load(folder, only_to_answer=True), load(folder)
    assert isinstance(bare.network.encoder.model, BertSkeleton)
    assert not isinstance(whole.network.encoder.model, BertSkeleton)
    assert np.ptp(whole.probabilities(TEXTS), axis=0).max() > 0.05  # or anything would pass
    np.testing.assert_array_equal(bare.probabilities(TEXTS), whole.probabilities(TEXTS))
    assert bare.network.max_length == whole.network.max_length
    assert bare.network.special_tokens == whole.network.special_tokens


@pytest.mark.parametrize("kind", ["mpnet", "distilbert", "electra"])
def test_other_architectures_are_read_with_transformers(kind, tmp_path):
    folder = saved(tmp_path, kind, "mean")
    assert load_without_transformers(folder, "mean") is None
    assert load(folder, only_to_answer=True).probabilities(TEXTS).shape == (len(TEXTS), 5)


def test_weights_in_half_precision_are_computed_with_in_full(tmp_path):
    folder = saved(tmp_path)
    weights = folder / "model.safetensors"
    save_file({name: tensor.half() for name, tensor in load_file(weights).items()}, weights, {"format": "pt"})
    bare, whole = load(folder, only_to_answer=True), load(folder)
    assert isinstance(bare.network.encoder.model, BertSkeleton)
    np.testing.assert_array_equal(bare.probabilities(TEXTS), whole.probabilities(TEXTS))


@pytest.mark.parametrize("split", [True, False])
def test_special_tokens_in_a_text_are_read_as_the_folder_says(split, tmp_path):
    folder = saved(tmp_path)
    change(folder / "tokenizer_config.json", split_special_tokens=split)
    bare, whole = load(folder, only_to_answer=True), load(folder)
    assert bare.network._plain_tokenizer.fingerprint == whole.network._plain_tokenizer.fingerprint
    np.testing.assert_array_equal(bare.probabilities(TEXTS), whole.probabilities(TEXTS))


def change(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | values), encoding="utf-8")


@pytest.mark.parametrize(
    "values",
    [
        {"model_type": "unheard-of"},
        {"hidden_size": 10**12},
        {"hidden_size": 31},
        {"intermediate_size": 10**14},
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": 3},
        {"num_attention_heads": 0},
        {"num_attention_heads": 5},
        {"vocab_size": 7},
        {"max_position_embeddings": "many"},
        {"pad_token_id": 10**6},
        {"hidden_act": "relu"},
        {"is_decoder": True},
        {"hidden_dropout_prob": None},
        {"attention_probs_dropout_prob": "none"},
    ],
)
def test_a_configuration_that_does_not_fit_is_left_to_transformers(values, tmp_path):
    folder = saved(tmp_path)
    change(folder / "config.json", **values)
    assert load_without_transformers(folder, "cls") is None


def test_weights_that_are_not_all_there_get_the_usual_error(tmp_path):
    folder = saved(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    del tensors["bert.encoder.layer.1.output.dense.bias"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"its weights lack 1 of the model's.*layer\.1\.output\.dense\.bias"):
        load(folder, only_to_answer=True)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json", "model.safetensors"])
def test_a_damaged_file_is_left_to_transformers(name, tmp_path):
    folder = saved(tmp_path)
    (folder / name).write_bytes(b"{")
    assert load_without_transformers(folder, "cls") is None


def test_a_tokenizer_with_more_tokens_than_vectors_gets_the_usual_error(tmp_path):
    folder = saved(tmp_path)
    state = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    state["model"]["vocab"]["w999"] = 999
    (folder / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(ValueError, match="its tokenizer counts tokens up to 999"):
        load(folder, only_to_answer=True)
