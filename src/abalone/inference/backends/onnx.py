"""The neural classifier of an exported model in onnxruntime, and its neighbours in numpy. Torch is never imported."""

import mmap
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load
from scipy.sparse import csr_array

from abalone.data.batches import token_budget_batches
from abalone.data.tokens import TokenArray, encode_in_pieces
from abalone.errors import InputError, install_hint, readable
from abalone.evaluation.matrices import Scores
from abalone.evaluation.mixing import label_shares, vote_logits_in_blocks
from abalone.files.cache import array_of
from abalone.progress import advance, track

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

BLOCK = 1024  # texts that are in memory as tokens at a time
TOKEN_BUDGET = 1024  # tokens in a batch: on a processor small batches of like length, which fit its caches, are fastest
QUERIES = 256  # documents compared at a time; with 100,000 training documents their cosines take 100 MB
NEIGHBOURS = "neighbours.safetensors"  # key in the metadata: the name of the file in a model folder
# onnxruntime's name for: unsigned by unsigned 8-bit products where signed ones would be cut off. Slower, and exact.
EXACT_PRODUCTS = "session.x64quantprecision"
# A model with one `MatMulInteger`: "a" [1, 2] in, times (127, 127), "c" [1, 1] out. The package `onnx`, which would
# make it, is not there where files are only run.
PROBE = b64decode(
    "CAU6VgoYCgFhCgFiEgFjIg1NYXRNdWxJbnRlZ2VyEgFwKg0IAggBEANCAWJKAn9/"
    "WhMKAWESDgoMCAISCAoCCAEKAggCYhMKAWMSDgoMCAYSCAoCCAEKAggBQgQKABAK"
)


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


@dataclass(frozen=True, eq=False)
class StoredNeighbours:
    """`NearestNeighbours` as stored in an ONNX file, in numpy.

    Args:
        embeddings: of the training documents, [N, d], rows of length 1.
        labels: of the same, [N, L].
        k: neighbours that are asked.
        temperature: τ of their weights.
    """

    embeddings: np.ndarray
    labels: csr_array
    k: int
    temperature: float

    @classmethod
    def found_in(cls, stored: Mapping[str, str]) -> "StoredNeighbours | None":
        """Return the neighbours in a file's metadata, if there are any."""
        if NEIGHBOURS not in stored:
            return None
        tensors = load(b64decode(stored[NEIGHBOURS], validate=True))
        embeddings, indices = tensors["embeddings"].astype(np.float32), tensors["labels.indices"]
        labels = csr_array(
            (np.ones(len(indices), dtype=np.int64), indices, tensors["labels.indptr"]),
            shape=(len(embeddings), int(tensors["labels.columns"])),
        )
        labels.check_format(full_check=True)  # products follow the indices wherever they point
        return cls(embeddings, labels, int(tensors["k"]), float(tensors["temperature"]))

    @property
    def num_labels(self) -> int:
        """Return L."""
        return int(self.labels.shape[1])

    def logits_in_blocks(self, embeddings: np.ndarray) -> Scores:
        """Return logits [n, L] of embeddings [n, d], computed block by block where they are many."""
        length = np.linalg.norm(embeddings, axis=1, keepdims=True)
        queries = embeddings / np.where(length > 0, length, 1)
        k = min(self.k, len(self.embeddings))
        rows, near = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        for start in range(0, len(queries), QUERIES):
            block = slice(start, start + QUERIES)
            cosines = queries[block] @ self.embeddings.T  # [Q, N]
            rows[block] = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
            near[block] = np.take_along_axis(cosines, rows[block], axis=1)
        return vote_logits_in_blocks(label_shares(rows, near, self.labels, self.temperature), self.k)


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
