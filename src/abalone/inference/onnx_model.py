"""A model in one ONNX file: texts in, labels out, with `onnxruntime` and `tokenizers`. Torch is never imported."""

import json
import warnings
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from abalone.data.batches import token_budget_batches
from abalone.data.in_memory import read_texts
from abalone.data.seen import SEEN, SeenTexts
from abalone.data.tokens import TokenArray, encode_in_pieces
from abalone.evaluation.decision import Decision
from abalone.evaluation.lexical import SETTINGS, TENSORS, LexicalModel
from abalone.evaluation.matrices import Computed, Index, Scores, held
from abalone.evaluation.scored_model import TFIDF_DECISION
from abalone.files.cache import array_of
from abalone.files.errors import readable
from abalone.files.schema import NUMBER, misfit
from abalone.inference.onnx_checksum import PROMISE, has_checksum, refuse_lost
from abalone.inference.onnx_neighbours import StoredNeighbours
from abalone.inference.onnx_session import has_8_bit_products, open_session, processor_saturates
from abalone.inference.predictor import NO_NETWORK
from abalone.progress import advance, track

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

FORMAT = "1"
FORMAT_OF_WORDS = "words-1"  # no network: the lexical expert is the classifier
# Names of the file's metadata. Label names and thresholds stand apart for tools that know no more.
MARK, LABEL_NAMES, THRESHOLDS, DECISION, READING = "abalone", "label_names", "thresholds", "decision", "reading"
STORY = "story"  # which files of before do not have
SAME_EVERYWHERE = "same_on_every_processor"  # which 8-bit files of before do not have, and are not
SHAPES = {
    LABEL_NAMES: [str],
    READING: {
        "tokenizer": str,
        "split_special_tokens": bool,
        "prefix": [int],
        "suffix": [int],
        "pad_id": int,
        "max_length": int,
        "max_chunks": int,
    },
    DECISION: {"thresholds": {"values": [NUMBER]}, "calibration": (dict, None), "mixture": {}, "at_least_one": bool},
    STORY: {
        "statistics?": {"frequencies": [int], "validation?": int},
        "provenance?": dict,
        "label_f1?": [(NUMBER, None)],
        f"{TFIDF_DECISION}?": dict,
    },
}
BLOCK = 1024  # texts that are in memory as tokens at a time
TOKEN_BUDGET = 1024  # tokens in a batch: on a processor small batches of like length, which fit its caches, are fastest


@dataclass(frozen=True)
class Reading:
    """How texts become pieces of token ids.

    Args:
        tokenizer: as JSON, without truncation, padding or special tokens.
        split_special_tokens: whether a special token that stands in a text is read as its letters.
        prefix, suffix: ids around every piece.
        pad_id: fills the shorter pieces of a batch.
        max_length: tokens of a piece, special tokens included.
        max_chunks: pieces of a text; 1 is truncation.
    """

    tokenizer: str
    split_special_tokens: bool
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    pad_id: int
    max_length: int
    max_chunks: int

    @cached_property
    def _backend(self) -> "Tokenizer":
        from tokenizers import Tokenizer

        backend = Tokenizer.from_str(self.tokenizer)
        backend.encode_special_tokens = self.split_special_tokens
        return backend

    def pieces(self, texts: Sequence[str]) -> tuple[list[np.ndarray], np.ndarray]:
        """The pieces of all texts in order, and how many each text has, [n]."""
        ids = encode_in_pieces(self._backend, texts, self.max_length * self.max_chunks)
        offsets = np.cumsum([0, *map(len, ids)])
        tokens = TokenArray(np.concatenate(ids), offsets, tuple(self.prefix), tuple(self.suffix))
        chunks = [tokens.chunks(row, self.max_length, self.max_chunks) for row in range(len(tokens))]
        return [piece for document in chunks for piece in document], np.array([len(document) for document in chunks])

    def padded(self, pieces: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """The network's input: `input_ids` and `attention_mask`, [B, T]."""
        lengths = np.array([len(piece) for piece in pieces])
        mask = np.arange(lengths.max()) < lengths[:, None]
        ids = np.full(mask.shape, self.pad_id, dtype=np.int64)
        ids[mask] = np.concatenate(pieces)  # a mask is filled row by row, so in order
        return {"input_ids": ids, "attention_mask": mask.astype(np.int64)}


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """What `abalone export` wrote.

    Args:
        session: the network, from `input_ids` and `attention_mask` to `logits` and `embeddings`; in a model of words
            alone it is never run.
        label_names: [L], the columns of every matrix.
        reading: from texts to ids; `None` in a model of words alone, where `lexical` is the classifier.
        decision: from logits to labels.
        lexical, neighbours: the experts that are mixed in, if any.
        story: of its training data `provenance`, in `statistics` the `frequencies` of the labels, and their `label_f1`
            on validation; as in the model folder, without the rest that it tells. Empty for a file of before.
        seen: the texts that it was trained and tuned on, if they are known.
    """

    session: "InferenceSession"
    label_names: tuple[str, ...]
    reading: Reading | None
    decision: Decision
    lexical: LexicalModel | None = None
    neighbours: StoredNeighbours | None = None
    story: Mapping[str, Any] = field(default_factory=dict)
    seen: SeenTexts | None = None

    @classmethod
    def load(cls, source: str | Path | bytes, *, threads: int = 0) -> "OnnxModel":
        """Read a file, or its content.

        Args:
            source: the file.
            threads: to compute with; 0 is one for each core.
        """
        name = "the ONNX model" if isinstance(source, bytes) else str(source)
        whole = has_checksum(source, name)
        session = open_session(source, name, threads)
        try:
            stored = {STORY: "{}", **session.get_modelmeta().custom_metadata_map}
        except UnicodeDecodeError as error:
            raise ValueError(f"{name} is damaged: {error}") from None
        if MARK not in stored:
            raise ValueError(f"{name} was not made by `abalone export`: it does not say how its texts are read")
        if stored[MARK] not in (FORMAT, FORMAT_OF_WORDS):
            raise ValueError(f"{name} has format {stored[MARK]}, and this version reads {FORMAT}: export it again")
        if not whole:
            refuse_lost(stored, name)
            warnings.warn(
                f"{name} was exported by an earlier version, without a checksum, so that damage to it can go "
                "unnoticed: export it again",
                stacklevel=2,
            )
        if SAME_EVERYWHERE not in stored and has_8_bit_products(source) and processor_saturates():
            session = open_session(source, name, threads, exact=True)
            warnings.warn(
                f"{name} was exported by an earlier version, and this processor cannot compute its 8-bit products at "
                "full speed without cutting off large ones. They are computed exactly, which is slower: export it "
                "again with --int8",
                stacklevel=2,
            )
        parts = [part for part in SHAPES if part != READING or stored[MARK] == FORMAT]
        try:
            told = {part: json.loads(stored[part]) for part in parts}
            if wrong := next(filter(None, (misfit(told[part], SHAPES[part], part) for part in parts)), None):
                raise ValueError(wrong)
            model = cls(
                session,
                tuple(told[LABEL_NAMES]),
                Reading(**told[READING]) if READING in told else None,
                Decision.from_dict(told[DECISION]),
                _stored_lexical(stored),
                StoredNeighbours.found_in(stored),
                told[STORY],
                SeenTexts.from_bytes(b64decode(stored[SEEN], validate=True)) if SEEN in stored else None,
            )
            scores = model.probabilities(["a text"])  # whether the parts fit each other shows when they are used
            if model.decision.labels(scores).shape[1] != len(model.label_names):
                raise ValueError(f"it has {len(model.label_names)} label names for {scores.shape[1]} labels")
            _refuse_misfits(model)
        except Exception as error:  # of several libraries, each with kinds of its own for what does not fit
            raise ValueError(f"{name} is damaged: {readable(str(error)) or type(error).__name__}") from error
        return model

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """[n, L]."""
        if self.reading is None and len(texts):
            return self.decision.probabilities(self._words.scores(texts), {})
        return self.probabilities_and_vectors(texts)[0]

    def probabilities_and_vectors(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray | csr_array]:
        """[n, L] and `vectors`, each text encoded once."""
        if not len(texts):
            return np.empty((0, len(self.label_names))), self.vectors(texts)
        if self.reading is None:
            return self.probabilities(texts), self.vectors(texts)
        logits, embeddings = self._outputs(texts)
        experts = {} if self.lexical is None else {"lexical": self.lexical.scores(texts)}
        if self.neighbours is not None:
            experts["neighbours"] = self.neighbours.logits(embeddings)
        return self.decision.probabilities(logits, experts), embeddings

    def scores(self, texts: Sequence[str]) -> Scores:
        """The probabilities, computed block by block where texts and labels are many."""
        shape = len(texts), len(self.label_names)
        return held(Computed(shape, lambda rows, columns: self.probabilities(_some(texts, rows))[:, columns]))

    def kept_scores(self, texts: Sequence[str]) -> np.ndarray:
        """The probabilities [n, L], in a file without a name where they are many.

        For whoever looks at them again and again: with `scores` every look is another run of the network.
        """
        probabilities = array_of((len(texts), len(self.label_names)), np.float64)
        for start in track(range(0, len(texts), BLOCK), "Predicting"):
            probabilities[start : start + BLOCK] = self.probabilities(texts[start : start + BLOCK])
        return probabilities

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[n, h], float32; raises `ValueError` where there is no encoder."""
        if self.reading is None:
            raise ValueError(NO_NETWORK)
        if not len(texts):
            return np.empty((0, self.session.get_outputs()[1].shape[1]), np.float32)
        return self._outputs(texts)[1]

    def vectors(self, texts: Sequence[str]) -> np.ndarray | csr_array:
        """Return what texts are compared by: embeddings [n, h], or tf-idf rows [n, F] where there is no encoder."""
        return self._words.rows(texts) if self.reading is None else self.embed(texts)

    @property
    def _words(self) -> LexicalModel:
        if self.lexical is None:
            raise ValueError("it has neither a network nor words")
        return self.lexical

    def names(self, chosen: np.ndarray) -> list[list[str]]:
        """The label names of each row of a 0/1 matrix [n, L]."""
        return [[self.label_names[column] for column in np.flatnonzero(row)] for row in chosen]

    def predict(self, texts: Sequence[str]) -> list[list[str]]:
        """Label names for each text, of which none may be empty."""
        return self.names(self.decision.labels(self.probabilities(read_texts(texts))))

    def _outputs(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Logits [n, L] and embeddings [n, h], for each text the mean over its pieces."""
        if self.reading is None:
            raise ValueError(NO_NETWORK)
        blocks = []
        for start in range(0, len(texts), BLOCK):
            pieces, counts = self.reading.pieces(texts[start : start + BLOCK])
            computed: list[Any] = [None] * len(pieces)
            for rows in token_budget_batches(np.array([len(piece) for piece in pieces]), TOKEN_BUDGET):
                inputs = self.reading.padded([pieces[row] for row in rows])
                for row, *values in zip(rows, *self._run(inputs), strict=True):
                    computed[row] = values
                advance(len(rows) * len(counts) / len(pieces))
            # The head is linear: the mean of the pieces' logits is the logit of their mean embedding.
            firsts, divisor = np.cumsum(counts) - counts, counts[:, None].astype(np.float32)
            by_output = zip(*computed, strict=True)
            blocks.append([np.add.reduceat(np.stack(values), firsts) / divisor for values in by_output])
        logits, embeddings = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        return logits, embeddings

    def _run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        try:
            computed: list[np.ndarray] = self.session.run(["logits", "embeddings"], inputs)
        except Exception as error:  # onnxruntime's own classes, which have no common ancestor but this
            raise ValueError(f"the network in the ONNX file fails on a text: {readable(str(error))}") from error
        return computed


def _refuse_misfits(model: OnnxModel) -> None:
    """Raise where the story does not speak of as many labels as there are."""
    story = model.story
    by_label = {"frequencies": len(story.get("statistics", {}).get("frequencies", model.label_names))}
    if "label_f1" in story:
        by_label["label_f1"] = len(story["label_f1"])
    if TFIDF_DECISION in story:
        by_label[TFIDF_DECISION] = len(Decision.from_dict(story[TFIDF_DECISION]).thresholds.values)
    for name, found in by_label.items():
        if found != len(model.label_names):
            raise ValueError(f"it has {len(model.label_names)} label names, and {name} for {found}")


def _some(texts: Sequence[str], rows: Index) -> Sequence[str]:
    return texts[rows] if isinstance(rows, slice) else [texts[row] for row in rows]


def metadata(
    label_names: Sequence[str],
    reading: Reading | None,
    decision: Decision,
    files: Mapping[str, str],
    story: Mapping[str, Any],
) -> dict[str, str]:
    """What `OnnxModel.load` finds in a file beside the network; `files` of a model folder as text, by name."""
    values = {
        LABEL_NAMES: list(label_names),
        THRESHOLDS: decision.thresholds.values.tolist(),
        DECISION: decision.to_dict(),
        **({} if reading is None else {READING: asdict(reading)}),
        STORY: story,
    }
    told = {name: json.dumps(value, ensure_ascii=False) for name, value in values.items()}
    mark = FORMAT_OF_WORDS if reading is None else FORMAT
    return {MARK: mark, SAME_EVERYWHERE: "true", **PROMISE, **told, **files}


def lexical_as_text(lexical: LexicalModel) -> dict[str, str]:
    """Its two files by name, as metadata can hold them."""
    contents = lexical.contents()
    return {SETTINGS: contents[SETTINGS].decode(), TENSORS: b64encode(contents[TENSORS]).decode()}


def _stored_lexical(stored: Mapping[str, str]) -> LexicalModel | None:
    if SETTINGS not in stored:
        return None
    return LexicalModel.from_contents(
        {SETTINGS: stored[SETTINGS].encode(), TENSORS: b64decode(stored[TENSORS], validate=True)}
    )
