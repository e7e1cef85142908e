"""Tiny random encoders of several architectures, with the tokenizer of `tiny`."""

import json
from pathlib import Path

import torch
from transformers import (
    BertConfig,
    BertModel,
    CamembertConfig,
    CamembertModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    MPNetConfig,
    MPNetModel,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

import tiny

SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
DISTIL_SHAPE = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
KINDS = {
    "bert": (BertConfig, BertModel, SHAPE),
    "roberta": (RobertaConfig, RobertaModel, SHAPE),
    "xlm-roberta": (XLMRobertaConfig, XLMRobertaModel, SHAPE),
    "camembert": (CamembertConfig, CamembertModel, SHAPE),
    "mpnet": (MPNetConfig, MPNetModel, SHAPE),
    "distilbert": (DistilBertConfig, DistilBertModel, DISTIL_SHAPE),
    "electra": (ElectraConfig, ElectraModel, SHAPE | {"embedding_size": 32}),
}
WITH_CLASSIFIER = ("bert", "roberta", "xlm-roberta", "camembert", "mpnet", "distilbert")


def save_encoder(folder: Path, kind: str, seed: int = 0) -> str:
    """An encoder of architecture `kind` in `folder`, with weights large enough that its outputs differ."""
    tiny.save_encoder(folder)
    _pad_with_token_1(folder)
    torch.manual_seed(seed)
    config_class, model_class, shape = KINDS[kind]
    # These architectures count positions from the number of the padding token.
    config = config_class(
        vocab_size=len(tiny.SPECIAL + tiny.WORDS),
        max_position_embeddings=66,
        pad_token_id=1,
        initializer_range=0.1,
        **shape,
    )
    model_class(config).save_pretrained(folder)
    return str(folder)


def _pad_with_token_1(folder: Path) -> None:
    """As RoBERTa and MPNet do, the latter whatever its configuration says."""
    path = folder / "tokenizer.json"
    state = json.loads(path.read_text())
    swapped = {"[PAD]": 1, "[UNK]": 0}
    state["model"]["vocab"] |= swapped
    for token in state["added_tokens"]:
        token["id"] = swapped.get(token["content"], token["id"])
    state["added_tokens"].sort(key=lambda token: token["id"])
    path.write_text(json.dumps(state))
