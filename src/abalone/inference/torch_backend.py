"""The neural classifier of a model in torch, and its files in a model folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.torch import load_file, save_file

from abalone.config import Config
from abalone.data.tokens import PlainTokenizer, tokenize
from abalone.device import choose_device, reading_precision
from abalone.distributed import ALONE, Ranks
from abalone.encoder.feed import TokenFeed, embed, unlabelled
from abalone.encoder.heads import LinearHead
from abalone.encoder.load import load_encoder, load_without_transformers, quiet_transformers, window
from abalone.encoder.text_encoder import TextEncoder
from abalone.errors import InputError
from abalone.evaluation.matrices import Scores
from abalone.evaluation.neighbours import NearestNeighbours
from abalone.files.cache import array_of
from abalone.inference.huggingface import limit_tokenizer, save_encoder, save_sentence_transformer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from abalone.inference.predictor import Predictor

HEAD, NEIGHBOURS = "head.safetensors", "neighbours.safetensors"
WINDOW = 2**16  # texts that are in memory as tokens at a time


@dataclass(eq=False)
class TorchBackend:
    """Encoder, tokenizer and linear layer.

    Args:
        encoder, tokenizer, head: the neural classifier.
        config: settings, of which `max_length`, `max_chunks`, `device` and `precision` count here.
        ranks: processes that are all given the same texts, so that each encodes a share of them.
    """

    encoder: TextEncoder
    tokenizer: "PreTrainedTokenizerBase"
    head: LinearHead
    config: Config
    ranks: Ranks = ALONE

    @cached_property
    def _plain_tokenizer(self) -> PlainTokenizer:
        return PlainTokenizer(self.tokenizer)

    @property
    def special_tokens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ids before and after every text."""
        return self._plain_tokenizer.special_tokens

    @property
    def max_length(self) -> int:
        """Return the number of tokens of a text, or of each of its chunks, that are read."""
        return min(self.config.max_length, window(self.encoder, self.tokenizer))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return embeddings [n, h], float32."""
        if 0 < len(texts) <= WINDOW:
            return self._embed(texts)
        embeddings = array_of((len(texts), self.encoder.hidden_size), np.float32)
        for start in range(0, len(texts), WINDOW):
            embeddings[start : start + WINDOW] = self._embed(texts[start : start + WINDOW])
        return embeddings

    def read(self, texts: Sequence[str]) -> tuple[Scores, np.ndarray]:
        """Return logits [n, L], computed block by block where they are many, and embeddings [n, h]."""
        embeddings = self.embed(texts)
        return self.head.logits_in_blocks(embeddings), embeddings

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        length, chunks = self.max_length, self.config.max_chunks
        tokens = tokenize(texts, self._plain_tokenizer, cache=None, most=length * chunks)
        feed = TokenFeed(tokens, unlabelled(len(texts)), length, chunks)
        precision = reading_precision(self.config.precision)
        return embed(self.encoder, feed, choose_device(self.config.device), precision=precision, ranks=self.ranks)

    def refuse_misfits(self, labels: int) -> None:
        """Raise `ValueError` where encoder, tokenizer and linear layer are not those of one model."""
        weight, bias = tuple(self.head.weight.shape), tuple(self.head.bias.shape)
        hidden = self.encoder.hidden_size
        if weight != (*bias[:1], labels, hidden) or bias != (*weight[:1], labels):
            raise InputError(f"{HEAD} has the shapes {weight} and {bias} for {labels} labels and {hidden} features")
        if not all(weights.isfinite().all() for weights in (self.head.weight, self.head.bias)):
            raise InputError(f"{HEAD} holds NaN or infinite values")
        if self.max_length < 3 or self.special_tokens is None:
            raise InputError(f"it reads {self.max_length} tokens of a text")


def save_network(predictor: "Predictor", place: Path) -> None:
    """Write encoder, tokenizer, linear layer and neighbours."""
    network = predictor.network
    with quiet_transformers():
        save_encoder(predictor, place)
        network.tokenizer.save_pretrained(place)
    limit_tokenizer(place, network.max_length)
    save_sentence_transformer(predictor, place, network.max_length)
    save_file(network.head.state(), place / HEAD)
    if isinstance(predictor.neighbours, NearestNeighbours):
        save_file(predictor.neighbours.state(), place / NEIGHBOURS)


def read_network(folder: Path, about: dict[str, Any], config: Config, only_to_answer: bool) -> TorchBackend:
    """Read encoder, tokenizer and linear layer; `only_to_answer`: without `transformers`, where that can be."""
    bare = load_without_transformers(folder, config.pooling) if only_to_answer else None
    encoder, tokenizer = bare or load_encoder(str(folder), config.pooling, config.dropout)
    # The tokenizer in the folder stops where other tools should; a larger `max_length` may be asked of this one.
    tokenizer.model_max_length = about.get("tokenizer_max_length", tokenizer.model_max_length)
    tensors = load_file(folder / HEAD)
    head = LinearHead(tensors["weight"].float(), tensors["bias"].float())
    return TorchBackend(encoder.eval(), tokenizer, head, config)


def read_neighbours(folder: Path, config: Config, features: int) -> NearestNeighbours | None:
    """Read the neighbours, where the model has any; `features` of a document, as the encoder returns them."""
    file = folder / NEIGHBOURS
    if not file.is_file():
        return None
    state = load_file(file)
    shape = tuple(state["embeddings"].shape)
    if shape[1:] != (features,):
        raise InputError(f"{NEIGHBOURS} holds embeddings of the shape {shape} for {features} features")
    return NearestNeighbours.from_state(state, device=config.device)
