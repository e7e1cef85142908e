"""A model in one ONNX file: metadata, checksum, reading. Torch is never imported.

At the end of the file is a checksum: a wrong bit in a weight would answer, and answer wrongly. It is one more entry of
the file's metadata, so that other programs open the file as ever. Protocol buffers allow an entry of a list anywhere in
a file. As the last one it has all other bytes before it, and they are checked without being understood: neither the
package `onnx` nor a parser of ours is needed where a file is only run.
"""

import hashlib
import io
import json
import warnings
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from abalone.data.hashes import SEEN, SeenTexts
from abalone.errors import InputError, readable
from abalone.evaluation.decision import Decision
from abalone.evaluation.lexical import SETTINGS, TENSORS, LexicalModel
from abalone.files.schema import NUMBER, misfit
from abalone.inference.backends.onnx import (
    OnnxBackend,
    Reading,
    StoredNeighbours,
    has_8_bit_products,
    open_session,
    processor_saturates,
)
from abalone.inference.predictor import TFIDF_DECISION, Predictor, refuse_other_labels

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
BLOCK = 2**22  # bytes that are read at a time
# Said once more among the other metadata: a bit that flips in the entry's own head must not make it look like a file of
# before, which had none.
PROMISE = {"checksum": f"the last {DIGITS} bytes: the SHA-256 of all bytes before, in hexadecimal digits"}


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
                StoredNeighbours.found_in(stored),
                story=told[STORY],
                seen=SeenTexts.from_bytes(b64decode(stored[SEEN], validate=True)) if SEEN in stored else None,
            )
            model.refuse_misfits()
            scores = model.probabilities(["a text"])  # whether the network fits shows when it is used
            refuse_other_labels(len(model.label_names), {"the network": model.decision.labels(scores).shape[1]})
        except Exception as error:  # of several libraries, each with kinds of its own for what does not fit
            raise InputError(f"{name} is damaged: {readable(str(error)) or type(error).__name__}") from error
        return model


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
    while size > 0 and (block := file.read(min(BLOCK, size))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest().encode()


def _damaged(name: str) -> InputError:
    return InputError(f"{name} is damaged: it is not what was written. Copy it again, or export the model again")
