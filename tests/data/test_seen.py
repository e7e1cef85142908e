"""Texts that a model was trained on are known again, from its file too."""

import numpy as np
import pytest
from safetensors.numpy import save

from abalone.data.seen import SeenTexts, text_hashes


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
