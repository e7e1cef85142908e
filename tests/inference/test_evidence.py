import os

import numpy as np
import pytest
from scipy.sparse import csr_array

from abalone.data.corpus import Corpus, Split
from abalone.inference.evidence import SHOWN, Evidence

TEXTS = ["far away", "near by", "nearer still"]
VECTORS = {"far away": [0.0, 1.0], "near by": [1.0, 0.5], "nearer still": [1.0, 0.1]}


class Embedder:
    def __init__(self):
        self.calls = 0

    def __call__(self, texts):
        self.calls += 1
        return np.array([VECTORS[text] for text in texts], dtype=np.float32)


@pytest.fixture
def corpus():
    nothing = Split([], csr_array((0, 2), dtype=np.int32))
    train = Split(TEXTS, csr_array(np.array([[1, 0], [0, 1], [1, 1]], dtype=np.int32)))
    return Corpus(train, nothing, nothing, ("x", "y"), name="made up")


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights").write_text("one")
    return folder


def test_the_nearest_documents_come_first(corpus, model):
    evidence = Evidence.of(corpus, Embedder(), model)
    (near,) = evidence.nearest(np.array([[2.0, 0.0]]), 2)
    assert [(document.text, document.labels) for document in near] == [("nearer still", ["x", "y"]), ("near by", ["y"])]
    assert near[0].similarity == pytest.approx(1 / np.hypot(1, 0.1), abs=1e-4)
    assert len(evidence.nearest(np.array([[2.0, 0.0]]), 10)[0]) == 3


def test_of_fewer_documents_than_asked_for_all_that_share_a_word_are_given():
    words = csr_array(np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]))
    evidence = Evidence(TEXTS, [["x"]] * 3, words)
    near, nothing = evidence.nearest(csr_array(np.array([[1.0, 0.0], [0.0, 0.0]])), 10)
    assert [(document.text, document.similarity) for document in near] == [("far away", 1.0), ("nearer still", 0.6)]
    assert nothing == []


def test_embeddings_are_computed_once_for_a_model_and_its_texts(corpus, model):
    embed = Embedder()
    for _ in range(2):
        Evidence.of(corpus, embed, model)
    assert embed.calls == 1
    (model / "weights").write_text("another")
    Evidence.of(corpus, embed, model)
    assert embed.calls == 2


@pytest.mark.parametrize("damage", [lambda c: c[:-5], lambda c: c[:-9] + bytes([c[-9] ^ 1]) + c[-8:], lambda c: b""])
def test_a_damaged_cache_is_made_again(damage, corpus, model, tmp_path):
    embed = Embedder()
    Evidence.of(corpus, embed, model)
    (cached,) = (tmp_path / "cache" / "evidence").iterdir()
    cached.write_bytes(damage(cached.read_bytes()))
    (near,) = Evidence.of(corpus, embed, model).nearest(np.array([[1.0, 0.1]]), 1)
    assert embed.calls == 2
    assert near[0].text == "nearer still"


def test_without_a_place_to_cache_it_still_works(corpus, model, tmp_path, monkeypatch):
    blocked = tmp_path / "a file"
    blocked.touch()
    monkeypatch.setenv("ABALONE_CACHE", os.fspath(blocked))
    with pytest.warns(UserWarning, match="cannot cache embeddings"):
        assert len(Evidence.of(corpus, Embedder(), model)) == 3


def test_an_empty_training_split_is_refused(corpus, model):
    empty = Corpus(corpus.test, corpus.test, corpus.test, ("x", "y"), name="made up")
    with pytest.raises(ValueError, match="the training split of made up is empty"):
        Evidence.of(empty, Embedder(), model)


def test_long_documents_are_shown_by_their_beginning():
    evidence = Evidence(["word  \n" * 1000], [["x"]], np.ones((1, 2), dtype=np.float32))
    shown = evidence.nearest(np.ones((1, 2)), 1)[0][0].text
    assert len(shown) <= SHOWN
    assert shown.startswith("word word ")
    assert shown.endswith("…")
