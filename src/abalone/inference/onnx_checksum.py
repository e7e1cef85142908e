"""The checksum of an ONNX file, at its very end: a wrong bit in a weight would answer, and answer wrongly.

It is one more entry of the file's metadata, so that other programs open the file as ever. Protocol buffers allow an
entry of a list anywhere in a file. As the last one it has all other bytes before it, and they are checked without being
understood: neither the package `onnx` nor a parser of ours is needed where a file is only run.
"""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

KEY, DIGITS = b"sha256", 64
# A string `value` (field 2) of so many bytes after the string `key` (field 1), as one of the `metadata_props` (field
# 14) of a `ModelProto`; the digits follow.
PAIR = b"\x0a" + bytes([len(KEY)]) + KEY + b"\x12" + bytes([DIGITS])
ENTRY = b"\x72" + bytes([len(PAIR) + DIGITS]) + PAIR
BLOCK = 2**22  # bytes that are read at a time
# Said once more among the other metadata: a bit that flips in the entry's own head must not make it look like a file of
# before, which had none.
PROMISE = {"checksum": f"the last {DIGITS} bytes: the SHA-256 of all bytes before, in hexadecimal digits"}


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


def _damaged(name: str) -> ValueError:
    return ValueError(f"{name} is damaged: it is not what was written. Copy it again, or export the model again")
