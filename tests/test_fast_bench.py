"""What `fast` reads is tried on a GPU and both corpora; here the pieces of it, on made-up documents."""

import numpy as np
import pytest
import torch
from benchmarks.recipe.fast import AS_IT_IS, LAYERS, POOLINGS, READINGS, cases, features, pooled, probe_logits, table
from benchmarks.recipe.pools import Base, write_base
from scipy.sparse import csr_array

from abalone.data.tokens import TokenArray
from abalone.encoder.feed import TokenFeed
from abalone.encoder.text_encoder import TextEncoder

CPU = torch.device("cpu")


@pytest.fixture
def tokens():
    return TokenArray(np.arange(10, 31, dtype=np.uint16), np.array([0, 4, 5, 21]), (1,), (2,))


@pytest.fixture
def encoder():
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
    return TextEncoder(BertModel(BertConfig(num_hidden_layers=4, **sizes)), "mean").eval()


def test_pooled_states_are_those_of_the_encoder_whatever_the_padding(tokens, encoder):
    feed = TokenFeed(tokens, csr_array((3, 0), dtype=np.int32), 12)
    parts = pooled(encoder, feed, CPU)
    assert set(parts) == {(layer, how) for layer in range(LAYERS) for how in POOLINGS}
    with torch.inference_mode():
        for row in range(3):
            wanted = encoder(feed.packed(np.array([row])))[0]
            torch.testing.assert_close(parts[0, "mean"][row], wanted, rtol=1e-4, atol=1e-5)
            states = encoder.token_states(feed.packed(np.array([row])))
            torch.testing.assert_close(parts[0, "max"][row], states.amax(0), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(parts[0, "cls"][row], states[0], rtol=1e-4, atol=1e-5)


def test_readings_have_parts_of_length_1():
    generator = torch.Generator().manual_seed(0)
    parts = {(layer, how): torch.randn(5, 4, generator=generator) for layer in range(LAYERS) for how in POOLINGS}
    for reading in READINGS:
        given = features(reading, parts)
        if reading != AS_IT_IS:
            torch.testing.assert_close(given.view(5, -1, 4).norm(dim=2), torch.ones(5, given.shape[1] // 4))


def test_probe_logits_are_out_of_fold():
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(90, 60)).astype(np.float32))
    labels = csr_array(rng.integers(0, 2, (90, 2)).astype(np.int32))  # which features say nothing of
    logits, _ = probe_logits(X, labels, np.arange(90) % 3, CPU)
    assert 0.3 < ((logits > 0) == (labels.toarray() > 0)).mean() < 0.7


def test_cases_are_scored_beside_words_with_the_neighbours_of_the_same_length(tmp_path, tokens):
    (tmp_path / "fast").mkdir()
    logits = np.zeros((3, 2), np.float16)
    for name in ("reuters", "arxiv54"):
        labels = csr_array(np.array([[1, 0], [0, 1], [1, 1]], dtype=np.int32))
        write_base(tmp_path / "fast" / f"{name}_tokens.npz", Base(tokens, labels), 20)
        np.savez(tmp_path / "fast" / f"{name}_words.npz", lexical=logits)
        np.savez(tmp_path / "fast" / f"{name}_probes.npz", **{"mean @ 64": logits, "cls @ 96": logits})
        np.savez(tmp_path / "fast" / f"{name}_neighbours.npz", **{"64": logits + 1, "96": logits + 2})
    found = list(cases(tmp_path))
    assert [(about["reading"], about["experts"]) for about, *_ in found[:6]] == [
        ("tf-idf + SVM", []),
        ("mean @ 64", []),
        ("mean @ 64", ["lexical"]),
        ("mean @ 64", ["lexical", "neighbours"]),
        ("cls @ 96", []),
        ("cls @ 96", ["lexical"]),
    ]
    assert (found[3][2]["neighbours"] == 1).all()
    assert len(found) == 12


def test_table_has_a_line_per_reading_and_a_column_per_corpus():
    scores = {"micro_f1": 90.04, "macro_f1": 60.0, "macro_f1_tail": 30.0}
    records = [{"corpus": "arxiv54", "reading": "mean @ 96", "experts": ["lexical"], **scores}]
    assert table(records).splitlines()[-1] == "| mean @ 96 | lexical | – | 90.0 / 60.0 / 30.0 |"
