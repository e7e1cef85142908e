"""A tiny encoder, beside which everything else is measured, and documents of a few words."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_array
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = [f"w{number}" for number in range(5_000)]
MAX_LENGTH = 64


def save_encoder(folder: Path, *, width: int = 32, layers: int = 1) -> str:
    """Save a BERT of one layer with a tokenizer of whole words, and return its path."""
    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=MAX_LENGTH,
    ).save_pretrained(folder)  # fmt: skip
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * width,
        max_position_embeddings=MAX_LENGTH,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return str(folder)


def short_texts(documents: int, *, words: int = 6, seed: int = 0, at_once: int = 10_000) -> Iterator[str]:
    """Yield texts of about `words` words."""
    random = np.random.default_rng(seed)
    vocabulary = np.array(WORDS, dtype=object)
    for start in range(0, documents, at_once):
        lengths = 1 + random.poisson(words - 1, min(at_once, documents - start))
        drawn = vocabulary[random.integers(len(WORDS), size=lengths.sum())]
        yield from (" ".join(text) for text in np.split(drawn, np.cumsum(lengths)[:-1]))


def long_tailed_labels(documents: int, labels: int, *, each: int = 5, seed: int = 0) -> csr_array:
    """Return 0/1 [n, L], up to `each` labels per document, frequent ones first; with enough documents, all occur."""
    random = np.random.default_rng(seed)
    columns = np.minimum(random.zipf(1.2, (documents, each)), labels) - 1
    columns[:, 0] = np.arange(documents) % labels
    rows = np.repeat(np.arange(documents), each)
    matrix = csr_array((np.ones(rows.size, np.int32), (rows, columns.ravel())), shape=(documents, labels))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix
