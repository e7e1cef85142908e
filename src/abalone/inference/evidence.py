"""Evidence for a prediction: the training documents nearest to the text."""

import hashlib
import io
import textwrap
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from abalone.data.corpus import Corpus
from abalone.data.hashes import add_texts
from abalone.data.in_memory import label_lists
from abalone.errors import InputError
from abalone.evaluation.neighbours_in_numpy import nearest, unit_rows
from abalone.files.atomic import written_whole
from abalone.files.cache import cache_entry, source_key
from abalone.inference.predictor import Vectors

FORMAT = "abalone-evidence-2"  # part of the key: another layout never meets an old file
CHECKSUM_BYTES = 4  # at the end of the file
SHOWN = 600  # characters of a document: enough to see what it is about

Embed = Callable[[Sequence[str]], Vectors]


def as_trained_on(corpus: Corpus, story: Mapping[str, Any]) -> Corpus:
    """Return a corpus with all documents in its training split that a model was trained on.

    With folds, validation documents are training documents too. A model tells by having had none for validation alone;
    an ONNX file of an earlier version does not tell.

    Args:
        corpus: the data, as it was split.
        story: of the model.
    """
    with_folds = story.get("statistics", {}).get("validation") == 0
    return corpus.with_validation_in_train() if with_folds and len(corpus.validation) else corpus


@dataclass(frozen=True)
class Document:
    """A training document near a text."""

    text: str
    labels: list[str]
    similarity: float


class Evidence:
    """Index of the training documents, searched by the cosine of the model's vectors.

    Args:
        texts: the training documents.
        labels: the names of each one's labels.
        vectors: [n, h].
    """

    def __init__(self, texts: Sequence[str], labels: list[list[str]], vectors: Vectors) -> None:
        self._texts, self._labels = texts, labels
        if isinstance(vectors, np.ndarray) and not np.isfinite(vectors).all():
            raise InputError("embeddings hold NaN or infinite values")
        # By feature, [h, N]; of words so that a query looks at its own words only.
        self._by_feature = unit_rows(vectors).T if isinstance(vectors, np.ndarray) else vectors.T.tocsr()

    def __len__(self) -> int:
        return len(self._texts)

    @classmethod
    def of(cls, corpus: Corpus, embed: Embed, model: Path) -> "Evidence":
        """Index the training split of a corpus with the vectors of `model`.

        Args:
            corpus: the data; its labels need not be the model's.
            embed: the model's vectors of texts.
            model: its folder or file; embeddings are computed once and cached as long as it stays the same.
        """
        texts = corpus.train.texts
        if not len(texts):
            raise InputError(f"the training split of {corpus.name} is empty, so it holds no evidence")
        labels = label_lists(corpus.train.labels, corpus.label_names)
        return cls(texts, labels, _embedded_once(texts, embed, model))

    def nearest(self, vectors: Vectors, k: int) -> list[list[Document]]:
        """Return the k documents nearest to each row of vectors [n, h], nearest first; none that shares no word."""
        by_words = not isinstance(vectors, np.ndarray)
        queries = unit_rows(vectors) if isinstance(vectors, np.ndarray) else vectors
        rows, cosines = nearest(queries, self._by_feature, k)  # [n, k] each
        return [
            [
                self._document(int(row), float(cosine))
                for row, cosine in zip(*near, strict=True)
                if cosine > 0 or not by_words
            ]
            for near in zip(rows, cosines, strict=True)
        ]

    def _document(self, row: int, cosine: float) -> Document:
        # Cut first: white space is then looked for in a snippet and not in a whole book.
        beginning = self._texts[row][: 4 * SHOWN]
        return Document(textwrap.shorten(beginning, SHOWN, placeholder=" …"), self._labels[row], round(cosine, 4))


def _embedded_once(texts: Sequence[str], embed: Embed, model: Path) -> Vectors:
    """Return vectors [n, h], from the cache if this model has read these texts before."""
    path = cache_entry("evidence", f"{_key(texts, model)}.npy")
    try:
        content = path.read_bytes()
        if content[-CHECKSUM_BYTES:] == _checksum(content[:-CHECKSUM_BYTES]):
            cached: np.ndarray = np.load(io.BytesIO(content), allow_pickle=False)
            return cached
    except (OSError, ValueError, EOFError):
        pass  # not there, or damaged: made again
    embeddings = embed(texts)
    if not isinstance(embeddings, np.ndarray):
        return embeddings  # words are counted as fast as they would be read
    buffer = io.BytesIO()
    np.save(buffer, embeddings, allow_pickle=False)
    try:
        with written_whole(path) as file:
            file.write(buffer.getbuffer())
            file.write(_checksum(buffer.getbuffer()))
    except OSError as error:
        warnings.warn(
            f"cannot cache embeddings in {path.parent} ({error.strerror or error}), so they are computed at every "
            "start; set ABALONE_CACHE to a folder with space",
            stacklevel=2,
        )
    return embeddings


def _checksum(content: bytes | memoryview) -> bytes:
    return zlib.crc32(content).to_bytes(CHECKSUM_BYTES, "little")


def _key(texts: Sequence[str], model: Path) -> str:
    files = sorted(file for file in model.iterdir() if file.is_file()) if model.is_dir() else [model]
    digest = hashlib.sha256(source_key(files, FORMAT).encode())
    add_texts(digest, texts)
    return digest.hexdigest()
