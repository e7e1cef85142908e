"""Checksums of files and texts."""

import hashlib

import pytest

from abalone.errors import DataError
from abalone.files.checksums import add_texts, sha256


def test_sha256_is_of_the_bytes_on_disk(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(b"anything")
    assert sha256(path) == hashlib.sha256(b"anything").hexdigest()


def test_a_checksum_of_what_cannot_be_read(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(DataError, match="loop: cannot be read"):
        sha256(tmp_path / "loop")


def test_texts_are_told_apart_by_their_boundaries_and_may_hold_lone_surrogates():
    digests = [hashlib.sha256() for _ in range(3)]
    for digest, texts in zip(digests, (["ab", "c"], ["a", "bc"], ["a\ud800", "c"]), strict=True):
        add_texts(digest, texts)
    assert len({digest.digest() for digest in digests}) == 3
