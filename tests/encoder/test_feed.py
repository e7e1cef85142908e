import numpy as np
import pytest
import torch

import tiny
from abalone.data.tokens import tokenize
from abalone.encoder.feed import FrozenFeed, TokenFeed, embed, make_batch
from abalone.encoder.load import load_encoder
from abalone.encoder.text_encoder import split_layers

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    encoder, tokenizer = load_encoder(tiny.save_encoder(tmp_path_factory.mktemp("encoder"), layers=3), "mean")
    texts, labels = tiny.corpus(40)
    return encoder, tokenizer, texts, labels


def test_batches_hold_the_documents_asked_for(loaded):
    _, tokenizer, texts, labels = loaded
    feed = TokenFeed(tokenize(texts, tokenizer, cache=None), labels, max_length=8)
    rows = np.array([5, 0, 17])
    batch = make_batch(feed, rows)
    expected = tokenizer([texts[row] for row in rows], truncation=True, max_length=8)["input_ids"]
    assert batch.documents.tokens.tolist() == [number for ids in expected for number in ids]
    assert batch.documents.lengths.tolist() == [len(ids) for ids in expected]
    assert batch.documents.longest == max(map(len, expected))
    assert torch.equal(batch.labels, torch.from_numpy(labels[rows].toarray()).bool())


def test_embeddings_come_in_the_documents_order(loaded):
    encoder, tokenizer, texts, labels = loaded
    feed = TokenFeed(tokenize(texts, tokenizer, cache=None), labels, max_length=20)
    embeddings = embed(encoder, feed, CPU)
    encoder.eval()
    for row in (0, 7, 39):
        with torch.no_grad():
            alone = encoder(feed.packed(np.array([row])))
        np.testing.assert_allclose(embeddings[row], alone[0], atol=1e-5)


def test_long_documents_in_chunks_are_the_mean_of_their_pieces(loaded):
    encoder, tokenizer, texts, labels = loaded
    long = " ".join(texts[:6])
    tokens = tokenize([long, texts[1]], tokenizer, cache=None)
    feed = TokenFeed(tokens, labels[:2], max_length=10, max_chunks=3)
    embeddings = embed(encoder, feed, CPU)
    words = long.split()
    pieces = [" ".join(words[start : start + 8]) for start in (0, 8, 16)]
    apart = embed(encoder, TokenFeed(tokenize(pieces, tokenizer, cache=None), labels[:3], max_length=10), CPU)
    np.testing.assert_allclose(embeddings[0], apart.mean(0), atol=1e-5)


def test_frozen_layers_give_the_same_embeddings_to_half_precision(loaded):
    encoder, tokenizer, texts, labels = loaded
    feed = TokenFeed(tokenize(texts, tokenizer, cache=None), labels, max_length=12)
    lower, upper = split_layers(encoder, 2)
    frozen = FrozenFeed(feed, lower, CPU)
    np.testing.assert_allclose(embed(upper, frozen, CPU), embed(encoder, feed, CPU), atol=5e-3)
    assert len(frozen) == 40


def test_frozen_layers_and_chunks_do_not_go_together(loaded):
    encoder, tokenizer, texts, labels = loaded
    feed = TokenFeed(tokenize(texts, tokenizer, cache=None), labels, max_length=12, max_chunks=2)
    with pytest.raises(ValueError, match="freeze_layers and max_chunks cannot be combined"):
        FrozenFeed(feed, split_layers(encoder, 2)[0], CPU)


def test_one_row_of_labels_a_document(loaded):
    _, tokenizer, texts, labels = loaded
    with pytest.raises(ValueError, match="3 documents but 40 rows of labels"):
        TokenFeed(tokenize(texts[:3], tokenizer, cache=None), labels, max_length=12)
