"""A finished model: texts in, labels out. Without an encoder it needs no torch, and imports none."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from abalone.config import Config
from abalone.data.seen import SeenTexts
from abalone.data.tokens import PlainTokenizer, tokenize
from abalone.evaluation.blocks import EVERY, Scores
from abalone.evaluation.decision import Decision
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.metrics import LabelScore
from abalone.evaluation.out_of_fold import OutOfFold
from abalone.files.scratch import array_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from abalone.distributed import Ranks
    from abalone.encoder.heads import LinearHead
    from abalone.encoder.text_encoder import TextEncoder
    from abalone.evaluation.neighbours import NearestNeighbours

WINDOW = 2**16  # texts that are in memory as tokens at a time
NO_NETWORK = "this model is tf-idf + SVM without an encoder, so it has no embeddings; train one with another recipe"
NOT_JUDGED = (
    "this model has no out-of-fold scores, as it was trained with folds=0 or by an earlier version: give labelled "
    "documents (DATA) to score it on, or train it again with folds=1 or more"
)


@dataclass(eq=False)
class Predictor:
    """Everything between a text and its labels.

    Args:
        config: how it was made; says how texts are cut and on what device to compute.
        label_names: [L], the columns of every matrix.
        encoder, tokenizer, head: the neural classifier. All are `None` in a model of words alone, where `lexical` is
            the classifier, and nothing is mixed.
        decision: mixing, calibration, thresholds.
        lexical, neighbours: experts to mix in, if any.
        answers_in_names: whether `predict` gives label names; a 0/1 matrix otherwise, as it was trained on one.
        story: what the folder and the card tell: history, scores, statistics of the data.
        seen: the texts that it was trained and tuned on, if they are known.
        ranks: processes that all ask it the same, so that each encodes a share of the texts.
        out_of_fold: what was said of each training document by a model that had not seen it, if it was cross-fitted.
    """

    config: Config
    label_names: tuple[str, ...]
    encoder: "TextEncoder | None"
    tokenizer: "PreTrainedTokenizerBase | None"
    head: "LinearHead | None"
    decision: Decision
    lexical: LexicalModel | None = None
    neighbours: "NearestNeighbours | None" = None
    answers_in_names: bool = True
    story: dict[str, Any] = field(default_factory=dict)
    seen: SeenTexts | None = None
    ranks: "Ranks | None" = None
    out_of_fold: OutOfFold | None = None

    @property
    def network(self) -> "tuple[TextEncoder, PreTrainedTokenizerBase, LinearHead]":
        """The neural classifier; raises `ValueError` where words alone decide."""
        if self.encoder is None or self.tokenizer is None or self.head is None:
            raise ValueError(NO_NETWORK)
        return self.encoder, self.tokenizer, self.head

    @property
    def words(self) -> LexicalModel | None:
        """The classifier where words alone decide; `None` where there is an encoder."""
        return self.lexical if self.encoder is None else None

    @cached_property
    def _plain_tokenizer(self) -> PlainTokenizer:
        return PlainTokenizer(self.network[1])

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
        from abalone.encoder.text_encoder import window

        encoder, tokenizer, _ = self.network
        return min(self.config.max_length, window(encoder, tokenizer))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[n, h], float32; raises `ValueError` where there is no encoder."""
        encoder, _, _ = self.network
        from abalone.device import choose_device, reading_precision
        from abalone.distributed import ALONE
        from abalone.encoder.feed import TokenFeed, embed, unlabelled

        if not len(texts):
            return np.empty((0, encoder.hidden_size), np.float32)
        if len(texts) > WINDOW:
            embeddings = array_of((len(texts), encoder.hidden_size), np.float32)
            for start in range(0, len(texts), WINDOW):
                embeddings[start : start + WINDOW] = self.embed(texts[start : start + WINDOW])
            return embeddings
        length, chunks = self.max_length, self.config.max_chunks
        tokens = tokenize(texts, self._plain_tokenizer, cache=None, most=length * chunks)
        feed = TokenFeed(tokens, unlabelled(len(texts)), length, chunks)
        half = reading_precision(self.config.precision)
        return embed(encoder, feed, choose_device(self.config.device), half=half, ranks=self.ranks or ALONE)

    def vectors(self, texts: Sequence[str]) -> np.ndarray | csr_array:
        """Return what texts are compared by: embeddings [n, h], or tf-idf rows [n, F] where there is no encoder."""
        return self.embed(texts) if self.words is None else self.words.rows(texts)

    def probabilities(self, texts: Sequence[str], embeddings: np.ndarray | None = None) -> np.ndarray:
        """[n, L]; `embeddings` of the texts are not computed again where they are given."""
        return self.scores(texts, embeddings)[EVERY, EVERY]

    def probabilities_and_vectors(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray | csr_array]:
        """[n, L] and `vectors`, each text encoded once."""
        vectors = self.vectors(texts)
        return self.probabilities(texts, vectors if isinstance(vectors, np.ndarray) else None), vectors

    def scores(self, texts: Sequence[str], embeddings: np.ndarray | None = None) -> Scores:
        """The same, computed block by block where texts and labels are many."""
        if not len(texts):
            return np.empty((0, len(self.label_names)))
        if self.words is not None:
            return self.decision.scores(self.words.logits_in_blocks(texts), {})
        _, _, head = self.network
        if embeddings is None:
            embeddings = self.embed(texts)
        used = self.decision.mixture.used
        experts: dict[str, Scores] = {}
        if self.lexical is not None and "lexical" in used:
            experts["lexical"] = self.lexical.logits_in_blocks(texts)
        if self.neighbours is not None and "neighbours" in used:
            experts["neighbours"] = self.neighbours.logits_in_blocks(embeddings)
        return self.decision.scores(head.logits_in_blocks(embeddings), experts)

    def judged(self) -> tuple[dict[str, float], list[LabelScore]]:
        """Return the out-of-fold scores, overall and label by label; raises `ValueError` where there are none."""
        if self.out_of_fold is None:
            raise ValueError(NOT_JUDGED)
        by_label = self.out_of_fold.by_label(self.label_names, self.frequencies, self.decision.thresholds.values)
        return self.out_of_fold.scores(self.frequencies), by_label

    def names(self, chosen: np.ndarray) -> list[list[str]]:
        """The label names of each row of a 0/1 matrix [n, L]."""
        return [[self.label_names[column] for column in np.flatnonzero(row)] for row in chosen]
