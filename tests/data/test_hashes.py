"""Hashes of files and texts; texts that a model was trained on are known again, from its file too."""

import hashlib

import numpy as np
import pytest
from safetensors.numpy import save

from abalone.data.hashes import SeenTexts, add_texts, sha256, text_hashes
from abalone.errors import DataError


def test_texts_are_known_again_whatever_their_white_space():
    seen = SeenTexts.of(["one text", "another"], (text for text in ["a third\nof two lines", "half \ud800"]))
    asked = [" one\ttext", "Another", "a third of two lines", "half \ud800", "", "one"]
    assert seen.hold(asked).tolist() == [True, False, True, True, False, False]
    assert SeenTexts.from_bytes(seen.to_bytes()).hold(asked).tolist() == seen.hold(asked).tolist()
    assert SeenTexts.of([]).hold(["one"]).tolist() == [False]
    assert seen.hold([]).shape == (0,)


def test_all_64_bits_of_a_hash_tell_texts_apart():
    hashes = text_hashes(f"text {number}" for number in range(200))
    bits = hashes[:, None] >> np.arange(64, dtype=np.uint64) & 1  # [200, 64]
    assert ((bits.sum(axis=0) > 60) & (bits.sum(axis=0) < 140)).all()


@pytest.mark.parametrize("hashes", [np.zeros(3, np.float32), np.zeros((2, 2), np.uint64)])
def test_other_content_is_refused(hashes):
    with pytest.raises(ValueError, match=r"seen\.safetensors holds \w+ of shape .* instead of hashes"):
        SeenTexts.from_bytes(save({"hashes": hashes}))


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
