"""What a corpus and an encoder are, whatever they are called and wherever they lie: fingerprints of their content."""

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from abalone.data.corpus import Corpus
from abalone.files.checksums import add_texts

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def corpus_fingerprint(corpus: Corpus) -> str:
    """The same for the same documents and labels in all three splits, and for nothing else."""
    digest = hashlib.sha256(json.dumps(corpus.label_names).encode())
    for _, split in corpus.splits():
        digest.update(split.labels.indptr.astype(np.int64).tobytes() + split.labels.indices.astype(np.int64).tobytes())
        add_texts(digest, split.texts)
    return digest.hexdigest()[:16]


def encoder_fingerprint(encoder: str) -> str:
    """The same for the same weights, architecture and tokenizer, from whatever files they are read.

    Args:
        encoder: a folder or a hub name.
    """
    from abalone.data.tokens import PROBES
    from abalone.encoder.load import load_encoder, window

    loaded, tokenizer = load_encoder(encoder)
    # What the tokenizer does, and not how it is written: versions of its library write it differently.
    tokens = [sorted(tokenizer.get_vocab().items()), tokenizer(list(PROBES), verbose=False)["input_ids"]]
    about = [type(loaded.model).__name__, _architecture(loaded.model.config), window(loaded, tokenizer), tokens]
    digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
    for name, tensor in sorted(loaded.model.state_dict().items()):
        digest.update(f"{name} {list(tensor.shape)}".encode())
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()[:16]


def _architecture(config: "PretrainedConfig") -> dict[str, Any]:
    """Settings of its own kind that are not that kind's defaults, to which a newer version may add others."""
    from transformers import PretrainedConfig

    given, common = config.to_dict(), PretrainedConfig().to_dict()
    own = {name: value for name, value in type(config)().to_dict().items() if name not in common}
    return {name: given[name] for name, value in own.items() if name in given and given[name] != value}
