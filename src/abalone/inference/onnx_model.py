"""A model in one ONNX file: metadata, checksum, and its network in onnxruntime. Torch is never imported.

At the end of the file is a checksum: a wrong bit in a weight would answer, and answer wrongly. It is one more entry of
the file's metadata, so that other programs open the file as ever. Protocol buffers allow an entry of a list anywhere in
a file. As the last one it has all other bytes before it, and they are checked without being understood: neither the
package `onnx` nor a parser of ours is needed where a file is only run.
"""

import hashlib
import io
import json
import mmap
import warnings
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from safetensors.numpy import load

from abalone.data.batches import token_budget_batches
from abalone.data.hashes import SEEN, SeenTexts
from abalone.data.tokens import TokenArray, encode_in_pieces
from abalone.errors import InputError, install_hint, readable
from abalone.evaluation.decision import Decision
from abalone.evaluation.lexical import SETTINGS, TENSORS, LexicalModel
from abalone.evaluation.matrices import Scores
from abalone.evaluation.neighbours_in_numpy import StoredNeighbours
from abalone.files.cache import array_of
from abalone.files.schema import NUMBER, misfit
from abalone.inference.predictor import TFIDF_DECISION, Predictor, refuse_other_labels
from abalone.progress import advance, track

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

FORMAT = "1"
FORMAT_OF_WORDS = "words-1"  # no network: the lexical expert is the classifier
# Names of the file's metadata. Label names and thresholds stand apart for tools that know no more.
MARK, LABEL_NAMES, THRESHOLDS, DECISION, READING = "abalone", "label_names", "thresholds", "decision", "reading"
STORY = "story"  # absent from files of earlier versions
SAME_EVERYWHERE = "same_on_every_processor"  # absent from 8-bit files of earlier versions, which are not
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
KEY, DIGITS = b"sha256", 64
# A string `value` (field 2) of so many bytes after the string `key` (field 1), as one of the `metadata_props` (field
# 14) of a `ModelProto`; the digits follow.
PAIR = b"\x0a" + bytes([len(KEY)]) + KEY + b"\x12" + bytes([DIGITS])
ENTRY = b"\x72" + bytes([len(PAIR) + DIGITS]) + PAIR
BYTES_AT_ONCE = 2**22  # of a file that is read
# Said once more among the other metadata: a bit that flips in the entry's own head must not make it look like a file of
# before, which had none.
PROMISE = {"checksum": f"the last {DIGITS} bytes: the SHA-256 of all bytes before, in hexadecimal digits"}
BLOCK = 1024  # texts that are in memory as tokens at a time
TOKEN_BUDGET = 1024  # tokens in a batch: on a processor small batches of like length, which fit its caches, are fastest
NEIGHBOURS = "neighbours.safetensors"  # key in the metadata: the name of the file in a model folder
# onnxruntime's name for: unsigned by unsigned 8-bit products where signed ones would be cut off. Slower, and exact.
EXACT_PRODUCTS = "session.x64quantprecision"
# A model with one `MatMulInteger`: "a" [1, 2] in, times (127, 127), "c" [1, 1] out. The package `onnx`, which would
# make it, is not there where files are only run.
PROBE = b64decode(
    "CAU6VgoYCgFhCgFiEgFjIg1NYXRNdWxJbnRlZ2VyEgFwKg0IAggBEANCAWJKAn9/"
    "WhMKAWESDgoMCAISCAoCCAEKAggCYhMKAWMSDgoMCAYSCAoCCAEKAggBQgQKABAK"
)


class OnnxModel(Predictor):
    """A model in one ONNX file, as `abalone export` writes it: a `Predictor` with `onnxruntime` and `tokenizers`."""

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
            raise InputError(f"{name} is damaged: {error}") from None
        if MARK not in stored:
            raise InputError(f"{name} was not made by `abalone export`: it does not say how its texts are read")
        if stored[MARK] not in (FORMAT, FORMAT_OF_WORDS):
            raise InputError(f"{name} has format {stored[MARK]}, and this version reads {FORMAT}: export it again")
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
                raise InputError(wrong)
            model = cls(
                tuple(told[LABEL_NAMES]),
                OnnxBackend(session, Reading(**told[READING])) if READING in told else None,
                Decision.from_dict(told[DECISION]),
                _stored_lexical(stored),
                _stored_neighbours(stored),
                story=told[STORY],
                seen=SeenTexts.from_bytes(b64decode(stored[SEEN], validate=True)) if SEEN in stored else None,
            )
            model.refuse_misfits()
            scores = model.probabilities(["a text"])  # whether the network fits shows when it is used
            refuse_other_labels(len(model.label_names), {"the network": model.decision.labels(scores).shape[1]})
        except Exception as error:  # of several libraries, each with kinds of its own for what does not fit
            raise InputError(f"{name} is damaged: {readable(str(error)) or type(error).__name__}") from error
        return model


@dataclass(frozen=True)
class Reading:
    """Tokenisation: texts to pieces of token ids.

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
        """Return the pieces of all texts in order, and the number of pieces of each text, [n]."""
        ids = encode_in_pieces(self._backend, texts, self.max_length * self.max_chunks)
        offsets = np.cumsum([0, *map(len, ids)])
        tokens = TokenArray(np.concatenate(ids), offsets, tuple(self.prefix), tuple(self.suffix))
        chunks = [tokens.chunks(row, self.max_length, self.max_chunks) for row in range(len(tokens))]
        return [piece for document in chunks for piece in document], np.array([len(document) for document in chunks])

    def padded(self, pieces: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return the network's input: `input_ids` and `attention_mask`, [B, T]."""
        lengths = np.array([len(piece) for piece in pieces])
        mask = np.arange(lengths.max()) < lengths[:, None]
        ids = np.full(mask.shape, self.pad_id, dtype=np.int64)
        ids[mask] = np.concatenate(pieces)  # a mask is filled row by row, so in order
        return {"input_ids": ids, "attention_mask": mask.astype(np.int64)}


@dataclass(frozen=True, eq=False)
class OnnxBackend:
    """A network in an ONNX session.

    Args:
        session: from `input_ids` and `attention_mask` to `logits` and `embeddings`.
        reading: from texts to ids.
    """

    session: "InferenceSession"
    reading: Reading

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return embeddings [n, h], float32."""
        return self.read(texts)[1]

    def read(self, texts: Sequence[str]) -> tuple[Scores, np.ndarray]:
        """Return logits [n, L] and embeddings [n, h], each in a file without a name where it is large."""
        starts = range(0, len(texts), BLOCK)
        read: list[np.ndarray] = []  # as wide as the network's outputs are, whatever the file says of them
        for start in starts if len(starts) < 2 else track(starts, "Predicting"):
            for place, values in enumerate(self._read(texts[start : start + BLOCK])):
                if start == 0:
                    read.append(array_of((len(texts), values.shape[1]), np.float32))
                read[place][start : start + BLOCK] = values
        logits, embeddings = read or (np.empty((0, out.shape[1]), np.float32) for out in self.session.get_outputs())
        return logits, embeddings

    def _read(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return logits and embeddings of some texts, for each the mean over its pieces."""
        pieces, counts = self.reading.pieces(texts)
        computed: list[Any] = [None] * len(pieces)
        for rows in token_budget_batches(np.array([len(piece) for piece in pieces]), TOKEN_BUDGET):
            inputs = self.reading.padded([pieces[row] for row in rows])
            for row, *values in zip(rows, *self._run(inputs), strict=True):
                computed[row] = values
            advance(len(rows) * len(counts) / len(pieces))
        # The head is linear: the mean of the pieces' logits is the logit of their mean embedding.
        firsts, divisor = np.cumsum(counts) - counts, counts[:, None].astype(np.float32)
        by_output = zip(*computed, strict=True)
        return [np.add.reduceat(np.stack(values), firsts) / divisor for values in by_output]

    def _run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        try:
            computed: list[np.ndarray] = self.session.run(["logits", "embeddings"], inputs)
        except Exception as error:  # onnxruntime's own classes, which have no common ancestor but this
            raise InputError(f"the network in the ONNX file fails on a text: {readable(str(error))}") from error
        return computed


def metadata(
    label_names: Sequence[str],
    reading: Reading | None,
    decision: Decision,
    files: Mapping[str, str],
    story: Mapping[str, Any],
) -> dict[str, str]:
    """Return the metadata that `OnnxModel.load` reads; `files` of a model folder are text, by name."""
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
    """Return the two files of the tf-idf model as text, by name."""
    contents = lexical.contents()
    return {SETTINGS: contents[SETTINGS].decode(), TENSORS: b64encode(contents[TENSORS]).decode()}


def _stored_lexical(stored: Mapping[str, str]) -> LexicalModel | None:
    if SETTINGS not in stored:
        return None
    return LexicalModel.from_contents(
        {SETTINGS: stored[SETTINGS].encode(), TENSORS: b64decode(stored[TENSORS], validate=True)}
    )


def _stored_neighbours(stored: Mapping[str, str]) -> StoredNeighbours | None:
    if NEIGHBOURS not in stored:
        return None
    return StoredNeighbours.from_state(load(b64decode(stored[NEIGHBOURS], validate=True)))


def with_checksum(content: bytes) -> bytes:
    """Return the content of a file with its checksum behind it."""
    content += ENTRY
    return content + hashlib.sha256(content).hexdigest().encode()


def has_checksum(source: str | Path | bytes, name: str) -> bool:
    """Tell whether a file, or its content, ends in a checksum; raises `ValueError` if that is another's.

    Args:
        source: the file.
        name: what the message calls it.
    """
    with io.BytesIO(source) if isinstance(source, bytes) else Path(source).open("rb") as file:
        before = file.seek(0, io.SEEK_END) - DIGITS
        if before < len(ENTRY):
            return False
        file.seek(before - len(ENTRY))
        if file.read(len(ENTRY)) != ENTRY:
            return False
        stored = file.read()
        if _sha256(file, before) != stored:
            raise _damaged(name)
    return True


def refuse_lost(stored: Mapping[str, str], name: str) -> None:
    """Raise if the metadata of a file that does not end in a checksum promises one."""
    if PROMISE.keys() <= stored.keys():
        raise _damaged(name)


def _sha256(file: BinaryIO, size: int) -> bytes:
    """Return that of the first bytes of a file, in digits."""
    digest = hashlib.sha256()
    file.seek(0)
    while size > 0 and (block := file.read(min(BYTES_AT_ONCE, size))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest().encode()


def _damaged(name: str) -> InputError:
    return InputError(f"{name} is damaged: it is not what was written. Copy it again, or export the model again")


def open_session(source: str | Path | bytes, name: str, threads: int = 0, *, exact: bool = False) -> "InferenceSession":
    """Open a file, or its content.

    Args:
        source: the file.
        name: what messages call it.
        threads: to compute with; 0 is one for each core.
        exact: whether 8-bit products are exact on a processor that would cut them off, at the cost of speed.
    """
    try:
        import onnxruntime
    except ImportError:
        raise ImportError(f"running an ONNX file needs onnxruntime: {install_hint('onnx')}") from None
    onnxruntime.disable_telemetry_events()  # some of its builds report what they run to their maker
    if not isinstance(source, bytes):
        with Path(source).open("rb"):  # a missing file or right is told as such
            pass
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors; the rest is about graph nodes
    options.add_session_config_entry(EXACT_PRODUCTS, str(int(exact)))
    content = source if isinstance(source, bytes) else str(source)
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own classes, which have no common ancestor but this
        raise InputError(f"{name} is not an ONNX model: {str(error).splitlines()[0]}") from None


def has_8_bit_products(source: str | Path | bytes) -> bool:
    """Tell by the names of its operators, which come before the weights."""
    if isinstance(source, bytes):
        return b"MatMulInteger" in source
    with Path(source).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"MatMulInteger") >= 0


@cache
def processor_saturates() -> bool:
    """Tell whether 8-bit products are cut off here, by a product: 255 · 127 + 255 · 127 needs 17 bits."""
    computed = open_session(PROBE, "the probe", 1).run(["c"], {"a": np.full((1, 2), 255, np.uint8)})[0]
    return int(computed.item()) != 2 * 255 * 127
