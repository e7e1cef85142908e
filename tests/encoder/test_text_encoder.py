from dataclasses import replace

import pytest
import torch
from transformers import (
    AutoModel,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
)

import tiny
from abalone.encoder.load import load_encoder
from abalone.encoder.packed import Packed
from abalone.encoder.text_encoder import TextEncoder, join_layers, split_layers

SMALL = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
RELATIVE = {"relative_attention": True, "norm_rel_ebd": "layer_norm", "pos_att_type": ["p2c", "c2p"]}  # DeBERTa's
NO_SPECIAL = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return load_encoder(tiny.save_encoder(tmp_path_factory.mktemp("encoder"), layers=3))


def pack(*documents, longest=None, owner=None):
    lengths = [len(document) for document in documents]
    return Packed(
        torch.tensor([number for document in documents for number in document]),
        torch.tensor([0, *lengths]).cumsum(0).int(),
        longest or max(lengths),
        len(documents) if owner is None else owner[-1] + 1,
        None if owner is None else torch.tensor(owner),
    )


@pytest.fixture
def batch(loaded):
    _, tokenizer = loaded
    return pack(*tokenizer(["w1 w2 w3", "w4"])["input_ids"])


def states_of(encoder, batch):
    given = {"input_ids": batch.pad(batch.tokens), "attention_mask": batch.mask.long()}
    return encoder.model(**given).last_hidden_state


def test_cls_pooling_is_the_first_token(loaded, batch):
    encoder = loaded[0].eval()
    torch.testing.assert_close(encoder(batch), states_of(encoder, batch)[:, 0])


def test_mean_pooling_leaves_padding_out(loaded, batch):
    encoder = TextEncoder(loaded[0].model, "mean").eval()
    states = states_of(encoder, batch)
    expected = torch.stack([states[0, :5].mean(0), states[1, :3].mean(0)])
    torch.testing.assert_close(encoder(batch), expected)


def test_normalized_mean_has_length_one_in_each_piece(loaded, batch):
    mean, normalized = (TextEncoder(loaded[0].model, pooling).eval() for pooling in ("mean", "normalized_mean"))
    rows = mean(batch) / mean(batch).norm(dim=1, keepdim=True)
    torch.testing.assert_close(normalized(batch), rows)
    together = normalized(replace(batch, owner=torch.tensor([0, 0]), documents=1))
    torch.testing.assert_close(together, rows.mean(0, keepdim=True))


def test_pieces_of_a_document_are_averaged(loaded, batch):
    encoder = loaded[0].eval()
    rows = encoder(batch)
    together = encoder(replace(batch, owner=torch.tensor([0, 0]), documents=1))
    torch.testing.assert_close(together, rows.mean(0, keepdim=True))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # DeBERTa's, at import
@pytest.mark.parametrize(
    "config",
    [
        RobertaConfig(**SMALL),
        MPNetConfig(**SMALL),
        DistilBertConfig(vocab_size=50, dim=16, n_layers=3, n_heads=2, hidden_dim=32),
        DebertaV2Config(**SMALL, **RELATIVE, initializer_range=0.2),
    ],
    ids=lambda config: config.model_type,
)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_split_layers_compute_the_same_before_and_after_training(config, pooling):
    torch.manual_seed(0)
    encoder = TextEncoder(AutoModel.from_config(config), pooling).eval()
    batch = pack(*torch.randint(5, 50, (2, 7)).tolist(), torch.randint(5, 50, (4,)).tolist())
    lower, upper = split_layers(encoder, 2)
    states = replace(batch, tokens=lower.token_states(batch))
    torch.testing.assert_close(upper(states), encoder(batch))
    assert not any(p.requires_grad for p in lower.parameters())
    with torch.no_grad():
        for parameter in upper.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter))
    assert (upper(states) - encoder(batch)).abs().max() > 0.1
    whole = join_layers(lower, upper).eval()
    torch.testing.assert_close(whole(batch), upper(states))
    assert all(p.requires_grad for p in whole.parameters())
    assert whole.state_dict().keys() == encoder.state_dict().keys()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # DeBERTa's, at import
@pytest.mark.parametrize(
    "config",
    [
        ModernBertConfig(**SMALL, **NO_SPECIAL),  # a norm after the last layer
        DebertaV2Config(**SMALL, **RELATIVE, conv_kernel_size=3),  # a convolution after the first
        ElectraConfig(**SMALL, embedding_size=8),  # a projection before the first
    ],
    ids=lambda config: config.model_type,
)
def test_what_is_more_than_layer_after_layer_is_not_cut(config):
    torch.manual_seed(0)
    model = AutoModel.from_config(config)
    with pytest.raises(ValueError, match=f"freeze_layers cannot cut {type(model).__name__}.*set freeze_layers to 0"):
        split_layers(TextEncoder(model), 2)


def test_a_layer_must_stay_to_train(loaded):
    with pytest.raises(ValueError, match="freeze_layers must leave at least one layer to train, got 3 of 3"):
        split_layers(loaded[0], 3)
