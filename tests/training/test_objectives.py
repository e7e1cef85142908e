"""What a loss is given, what it moves, and what it leaves alone."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import tiny
from abalone.config import Config
from abalone.data.tokens import tokenize
from abalone.encoder.feed import TokenFeed, embed, make_batch
from abalone.encoder.load import load_encoder
from abalone.evaluation.metrics import evaluate
from abalone.losses import LOSSES
from abalone.training.loop import Plan, train
from abalone.training.objectives import Objective
from abalone.training.runtime import Runtime
from abalone.training.stages import ValidationLoss

LABELS = 5
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    return tiny.save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def feed(encoder_folder):
    _, tokenizer = load_encoder(encoder_folder)
    texts, labels = tiny.corpus(160, labels=LABELS)
    return TokenFeed(tokenize(texts, tokenizer, cache=None), labels, max_length=20)


def make(encoder_folder: str, name: str, dropout: float = 0.1, **settings: float) -> Objective:
    torch.manual_seed(0)
    encoder, _ = load_encoder(encoder_folder, "mean", dropout)
    config = Config(**{"queue_size": 20, "projection_dim": 16, **settings})
    return Objective(encoder, LABELS, name, config, labels=tiny.corpus(160, labels=LABELS)[1])


def batch_of(feed: TokenFeed, first: int, documents: int = 8):
    return make_batch(feed, np.arange(first, first + documents))


CONTRAST, MEMORY = {"projection"}, {"projection", "queue", "slow"}
PARTS = {
    "msc": MEMORY | {"prototypes"},
    "base": CONTRAST,
    "bqueue": MEMORY,
    "bqproto": MEMORY | {"prototypes"},
    "supcon": CONTRAST,
    "jscl": CONTRAST,
    "con": CONTRAST,
    "mulcon": {"label_attention"},
    "mulsupcon": CONTRAST,
    "bce": {"head"},
    "focal": {"head"},
    "asymmetric": {"head"},
    "zlpr": {"head"},
    "cb": {"head"},
    "db": {"head"},
    "msc+10*bce": MEMORY | {"prototypes", "head"},
    "supcon+focal": CONTRAST | {"head"},
    "mulcon+bce": {"label_attention", "head"},
}


def test_every_loss_is_looked_at():
    assert PARTS.keys() >= LOSSES.keys()


@pytest.mark.parametrize("name", PARTS)
def test_a_loss_has_the_parts_it_needs_and_gradients_reach_them(name, encoder_folder, feed):
    objective = make(encoder_folder, name)
    parts = {part for part in ("projection", "label_attention", "head", "prototypes", "queue", "slow")
             if getattr(objective, part) is not None}  # fmt: skip
    assert parts == PARTS[name]

    objective(batch_of(feed, 0)).backward()
    for part in ("encoder", *parts):
        gradients = [parameter.grad for parameter in getattr(objective, part).parameters()]
        if part in {"slow", "queue"}:
            assert all(gradient is None for gradient in gradients), part
        else:
            assert all(gradient is not None for gradient in gradients), part
            assert any(gradient.abs().sum() > 0 for gradient in gradients), part


def test_settings_reach_the_loss(encoder_folder):
    objective = make(encoder_folder, "msc+10*bce", temperature=0.3, beta=0.7, momentum=0.5, queue_size=7)
    assert (objective.loss.contrastive.temperature, objective.loss.contrastive.beta) == (0.3, 0.7)
    assert objective.loss.pointwise_weight == 10
    assert (objective.slow.momentum, objective.queue.size) == (0.5, 7)


def test_a_batch_enters_the_queue_after_its_loss(encoder_folder, feed):
    objective = make(encoder_folder, "msc")
    loss, seen = objective.loss.forward, []

    def spy(*given, queue, prototypes):
        seen.append(tuple(part.clone() for part in queue))
        return loss(*given, queue=queue, prototypes=prototypes)

    objective.loss.forward = spy
    batches = [batch_of(feed, first) for first in (0, 8, 16, 24)]
    for batch in batches:
        keys = objective.keys(batch)
        objective(batch).backward()
        objective.enqueue(keys, batch)
    assert [len(embeddings) for embeddings, _ in seen] == [0, 8, 16, 20]  # the queue holds 20
    expected = torch.cat([batch.labels for batch in batches])
    for (_, labels), end in zip(seen, (0, 8, 16, 24), strict=True):
        assert sorted(labels.tolist()) == sorted(expected[max(0, end - 20) : end].tolist())  # in any order
    assert not any(embeddings.requires_grad for embeddings, _ in seen)


def test_keys_are_the_slow_encoders_and_without_noise(encoder_folder, feed):
    objective = make(encoder_folder, "msc", dropout=0.5).train()
    batch = batch_of(feed, 0)
    objective.enqueue(objective.keys(batch), batch)
    torch.testing.assert_close(objective.queue.contents()[0], objective.slow(batch.documents))
    assert len(objective.queue) == 8


def test_the_slow_encoder_follows_after_a_step(encoder_folder, feed):
    objective = make(encoder_folder, "msc", momentum=0.75)
    objective(batch_of(feed, 0)).backward()
    before = objective.slow.encoder.projection.outer.weight.clone()
    with torch.no_grad():
        for parameter in objective.parameters():
            if parameter.grad is not None:
                parameter -= parameter.grad
    torch.testing.assert_close(objective.slow.encoder.projection.outer.weight, before)
    objective.slow.update(objective.followed)
    expected = 0.75 * before + 0.25 * objective.projection.outer.weight
    torch.testing.assert_close(objective.slow.encoder.projection.outer.weight, expected)
    embedding = objective.encoder.model.embeddings.word_embeddings.weight
    slow_embedding = objective.slow.encoder.encoder.model.embeddings.word_embeddings.weight
    assert not torch.equal(embedding, slow_embedding)


def test_measuring_the_validation_loss_changes_nothing(encoder_folder, feed):
    objective = make(encoder_folder, "msc")
    batch = batch_of(feed, 0)
    objective.enqueue(objective.keys(batch), batch)  # a queue that holds something
    before = {name: value.clone() for name, value in objective.state_dict().items()}
    run = SimpleNamespace(validation=feed, config=Config(batch_size=48), runtime=Runtime.start("cpu", "fp32"))
    objective.eval()
    with torch.no_grad():
        measure = ValidationLoss(objective, run, run.validation)
        first, second = measure(), measure()
    assert first == second
    for name, value in objective.state_dict().items():
        assert torch.equal(value, before[name]), name
    values = [
        objective(batch_of(feed, start, size)).item() * size for start, size in ((0, 48), (48, 48), (96, 48), (144, 16))
    ]
    assert first == pytest.approx(sum(values) / 160)


def test_lasting_state_is_the_model_without_what_only_training_needs(encoder_folder):
    objective, other = make(encoder_folder, "msc+bce"), make(encoder_folder, "msc+bce")
    state = objective.lasting_state()
    assert {name.split(".")[0] for name in state} == {"encoder", "projection", "prototypes", "head"}
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    slow = other.slow.encoder.projection.outer.weight.clone()
    other.restore(state)
    for name, value in other.lasting_state().items():
        assert torch.equal(value, state[name]), name
    assert torch.equal(other.slow.encoder.projection.outer.weight, slow)


def test_a_state_of_another_objective_is_refused(encoder_folder):
    with pytest.raises(ValueError, match=r"does not fit this model: head\.weight, head\.bias"):
        make(encoder_folder, "msc+bce").restore(make(encoder_folder, "msc").lasting_state())
    with pytest.raises(ValueError, match=r"does not fit this model: prototypes\.weight"):
        make(encoder_folder, "bqueue").restore(make(encoder_folder, "msc").lasting_state())


def test_prototypes_from_names_point_where_the_names_are(encoder_folder):
    features = torch.randn(LABELS, 32)
    objective = make(encoder_folder, "msc")
    objective.start_prototypes_from(features)
    similarity = torch.cosine_similarity(objective.prototypes(), objective.projection(features))
    torch.testing.assert_close(similarity, torch.ones(LABELS))
    assert objective.prototypes.weight.requires_grad
    without = make(encoder_folder, "base")
    without.start_prototypes_from(features)  # a loss without prototypes takes no notice
    assert without.prototypes is None


def scatter_within_labels(objective: Objective, feed: TokenFeed) -> float:
    """How much of the scatter of the label embeddings is between documents: 0 if each label has one for them all."""
    objective.eval()
    batch = batch_of(feed, 0, len(feed))
    with torch.no_grad():
        states = objective.encoder.token_states(batch.documents)
        embeddings = objective.label_attention(batch.documents.pad(states), batch.documents.mask)  # [n, L, d]
    unit = torch.nn.functional.normalize(embeddings, dim=2)
    return (unit.var(0).sum() / unit.flatten(0, 1).var(0).sum() / LABELS).item()


def test_mulcon_alone_collapses_and_with_bce_it_does_not(encoder_folder, feed, tmp_path):
    """Appendix E: alone it is least where the embedding of a label is the same whatever the document says."""
    plan = Plan(epochs=15, batch_size=32, learning_rate=5e-3, head_learning_rate=5e-3, schedule="cosine")
    scatter = {}
    for name in ("mulcon", "mulcon+10*bce"):
        objective = make(encoder_folder, name, dropout=0.0)
        before = scatter_within_labels(objective, feed)
        train(objective, feed, plan, Runtime.start("cpu", "fp32"), tmp_path / name, measure=dict)
        scatter[name] = scatter_within_labels(objective, feed) / before
    assert scatter["mulcon"] < 0.1
    assert scatter["mulcon+10*bce"] > 3 * scatter["mulcon"]
    with torch.no_grad():
        logits = objective.head(torch.from_numpy(embed(objective.encoder, feed, CPU)))
    assert evaluate(feed.labels, logits.numpy() >= 0)["micro_f1"] > 0.85
