"""A tiny random encoder with a real tokenizer, and a corpus in which words decide labels. Made in a second."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from scipy.sparse import csr_array
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from abalone.encoder.fast.optimizer import FusedAdamW
from abalone.evaluation import mixing
from abalone.evaluation.decision import Mixture

WORDS = [f"w{i}" for i in range(60)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def save_encoder(folder: Path, *, seed: int = 0, layers: int = 2) -> str:
    """A BERT of two layers in `folder`; returns its path as text."""
    vocabulary = {word: number for number, word in enumerate(SPECIAL + WORDS)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=64,
    )  # fmt: skip
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def corpus(documents: int, *, labels: int = 5, seed: int = 0) -> tuple[list[str], csr_array]:
    """Texts of random words; label j is on a text that holds word j, and the first labels are the frequent ones."""
    rng = np.random.default_rng(seed)
    matrix = (rng.random((documents, labels)) < np.linspace(0.6, 0.1, labels)).astype(np.int32)
    texts = []
    for row in matrix:
        filler = rng.choice(np.arange(labels, len(WORDS)), size=rng.integers(4, 12))
        words = [WORDS[i] for i in rng.permutation(np.concatenate([filler, np.flatnonzero(row)]))]
        texts.append(" ".join(words))
    return texts, csr_array(matrix)


@contextmanager
def after_each_update(notice: Callable[[], object]) -> Iterator[None]:
    """Call `notice` whenever the weights have been updated."""
    step = FusedAdamW.step

    def noticed(optimizer: FusedAdamW) -> None:
        step(optimizer)
        notice()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FusedAdamW, "step", noticed)
        yield


@contextmanager
def every_expert_heard() -> Iterator[None]:
    """Models keep all experts that they are trained with; else only those that validation gives a weight."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixing, "choose_weights", lambda _, experts, *__: Mixture(dict.fromkeys(experts, 0.3)))
        yield


def write_jsonl(
    file: Path, texts: Sequence[str], labels: Sequence[Sequence[str]], splits: Sequence[str | None]
) -> None:
    """A corpus as people have it: one JSON object a line, with a split where there is one."""
    rows = [
        {"text": text, "labels": list(carried), **({"split": split} if split else {})}
        for text, carried, split in zip(texts, labels, splits, strict=True)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def workshop(folder: Path, documents: Mapping[str, int], settings: Mapping[str, object]) -> Path:
    """A folder with `papers.jsonl`, an encoder, and a `config.yaml` that names it.

    Args:
        documents: how many each split has.
        settings: what else is in the configuration.
    """
    texts, labels = corpus(sum(documents.values()))
    names = [[f"topic {j}" for j in np.flatnonzero(row)] for row in labels.toarray()]
    write_jsonl(folder / "papers.jsonl", texts, names, [split for split, n in documents.items() for _ in range(n)])
    encoder = save_encoder(folder / "encoder")
    (folder / "config.yaml").write_text(yaml.safe_dump({"encoder": encoder, **settings}))
    return folder
