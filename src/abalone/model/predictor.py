"""A finished model: texts in, labels out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from abalone.config import Config
from abalone.data.scratch import array_of
from abalone.data.seen import SeenTexts
from abalone.data.tokens import PlainTokenizer, tokenize
from abalone.device import choose_device, reading_precision
from abalone.evaluation.blocks import EVERY, Scores
from abalone.evaluation.decision import Decision
from abalone.evaluation.knn import NearestNeighbours
from abalone.evaluation.lexical import LexicalModel
from abalone.model.encoder import TextEncoder, window
from abalone.model.feed import TokenFeed, embed, unlabelled
from abalone.model.heads import LinearHead
from abalone.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WINDOW = 2**16  # texts that are in memory as tokens at a time


@dataclass(eq=False)
class Predictor:
    """Everything between a text and its labels.

    Args:
        config: how it was made; says how texts are cut and on what device to compute.
        label_names: [L], the columns of every matrix.
        encoder, tokenizer, head: the neural classifier.
        decision: mixing, calibration, thresholds.
        lexical, neighbours: experts to mix in, if any.
        answers_in_names: whether `predict` gives label names; a 0/1 matrix otherwise, as it was trained on one.
        story: what the folder and the card tell: history, scores, statistics of the data.
        seen: the texts that it was trained and tuned on, if they are known.
        ranks: processes that all ask it the same, so that each encodes a share of the texts.
    """

    config: Config
    label_names: tuple[str, ...]
    encoder: TextEncoder
    tokenizer: "PreTrainedTokenizerBase"
    head: LinearHead
    decision: Decision
    lexical: LexicalModel | None = None
    neighbours: NearestNeighbours | None = None
    answers_in_names: bool = True
    story: dict[str, Any] = field(default_factory=dict)
    seen: SeenTexts | None = None
    ranks: Ranks = ALONE

    @cached_property
    def _plain_tokenizer(self) -> PlainTokenizer:
        return PlainTokenizer(self.tokenizer)

    @property
    def special_tokens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids before and after every text."""
        return self._plain_tokenizer.special_tokens

    @property
    def frequencies(self) -> Sequence[int]:
        """[L], training documents of each label."""
        found: Sequence[int] = self.story["statistics"]["frequencies"]
        return found

    @property
    def max_length(self) -> int:
        """Tokens of a text, or of each of its chunks, that are read."""
        return min(self.config.max_length, window(self.encoder, self.tokenizer))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[n, h], float32."""
        if not len(texts):
            return np.empty((0, self.encoder.hidden_size), np.float32)
        if len(texts) > WINDOW:
            embeddings = array_of((len(texts), self.encoder.hidden_size), np.float32)
            for start in range(0, len(texts), WINDOW):
                embeddings[start : start + WINDOW] = self.embed(texts[start : start + WINDOW])
            return embeddings
        feed = TokenFeed(
            tokenize(texts, self._plain_tokenizer, cache=None),
            unlabelled(len(texts)),
            self.max_length,
            self.config.max_chunks,
        )
        half = reading_precision(self.config.precision)
        return embed(self.encoder, feed, choose_device(self.config.device), half=half, ranks=self.ranks)

    def probabilities(self, texts: Sequence[str], embeddings: np.ndarray | None = None) -> np.ndarray:
        """[n, L]; `embeddings` of the texts are not computed again where they are given."""
        return self.scores(texts, embeddings)[EVERY, EVERY]

    def probabilities_and_embeddings(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """[n, L] and [n, h], each text read once."""
        embeddings = self.embed(texts)
        return self.probabilities(texts, embeddings), embeddings

    def scores(self, texts: Sequence[str], embeddings: np.ndarray | None = None) -> Scores:
        """The same, computed block by block where texts and labels are many."""
        if not len(texts):
            return np.empty((0, len(self.label_names)))
        if embeddings is None:
            embeddings = self.embed(texts)
        used = self.decision.mixture.used
        experts: dict[str, Scores] = {}
        if self.lexical is not None and "lexical" in used:
            experts["lexical"] = self.lexical.logits_in_blocks(texts)
        if self.neighbours is not None and "neighbours" in used:
            experts["neighbours"] = self.neighbours.logits_in_blocks(embeddings)
        return self.decision.scores(self.head.logits_in_blocks(embeddings), experts)

    def names(self, chosen: np.ndarray) -> list[list[str]]:
        """The label names of each row of a 0/1 matrix [n, L]."""
        return [[self.label_names[column] for column in np.flatnonzero(row)] for row in chosen]
