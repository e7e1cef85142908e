"""`FusedAdamW` on a CPU: AdamW, clipping, momentum encoder and copies, as if done one after the other."""

import copy

import numpy as np
import pytest
import torch

import tiny
from abalone.config import Config
from abalone.data.tokens import tokenize
from abalone.encoder.fast.optimizer import FusedAdamW
from abalone.encoder.feed import TokenFeed, make_batch
from abalone.encoder.load import load_encoder
from abalone.encoder.text_encoder import TextEncoder
from abalone.training.objectives import Objective

LABELS, CLIP, RATE, DECAY = 5, 0.5, 1e-2, 0.1


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    return tiny.save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def batches(encoder_folder):
    texts, labels = tiny.corpus(24, labels=LABELS)
    feed = TokenFeed(tokenize(texts, load_encoder(encoder_folder)[1], cache=None), labels, max_length=20)
    return [make_batch(feed, np.arange(start, start + 8)) for start in (0, 8, 16)]


@pytest.fixture
def objective(encoder_folder):
    torch.manual_seed(0)
    encoder, _ = load_encoder(encoder_folder, "mean", 0.0)
    return Objective(encoder, LABELS, "msc", Config(queue_size=16, projection_dim=8, momentum=0.75))


def groups(objective):
    trained = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    return [{"params": trained, "lr": RATE, "weight_decay": DECAY}]


def make(objective, **options):
    options = {"average": objective.slow, "followed": objective.followed, **options}
    return FusedAdamW(groups(objective), clip=CLIP, encoder=objective.encoder, **options)


def weights(objective):
    return {name: value.clone() for name, value in objective.state_dict().items()}


@pytest.mark.parametrize("scaled", [False, True])
def test_a_step_is_clipping_adamw_and_the_moving_average(scaled, objective, batches):
    plain = copy.deepcopy(objective)
    ours, adamw = make(objective, scaled=scaled), torch.optim.AdamW(groups(plain))
    for rate, batch in zip((1.0, 0.5, 0.25), batches, strict=True):
        ours.set_rate(rate)
        adamw.param_groups[0]["lr"] = RATE * rate
        for each, optimizer in ((objective, ours), (plain, adamw)):
            optimizer.zero_grad()
            each(batch).backward()
        ours.collect()
        ours.step()
        norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), CLIP)
        adamw.step()
        plain.slow.update(plain.followed)
        assert norm > CLIP
        torch.testing.assert_close(ours.norm, norm)
        expected = weights(plain)
        for name, value in weights(objective).items():
            torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nothing_moves_where_a_gradient_is_nan_or_infinite(value, objective, batches):
    optimizer = make(objective)
    objective(batches[0]).backward()
    before = weights(objective)
    objective.prototypes.weight.grad[0, 0] = value
    optimizer.step()
    assert not optimizer.norm.isfinite()
    for name, after in weights(objective).items():
        assert torch.equal(after, before[name]), name


def test_copies_in_half_precision_follow_the_weights_until_they_are_released(objective, batches):
    optimizer = make(objective, half=torch.bfloat16, one_backward=False)
    objective(batches[0]).backward()
    optimizer.step()
    encoders = [module for module in objective.modules() if isinstance(module, TextEncoder)]
    assert len(encoders) == 2  # the momentum encoder's too
    for encoder in encoders:
        for matrix in encoder.copies.matrices:
            assert torch.equal(matrix.copy, matrix.parameter.to(torch.bfloat16))
    optimizer.release()
    assert all(encoder.copies is None for encoder in encoders)


def test_gradients_of_several_backward_passes_in_half_precision_add_up(objective, batches):
    alone = []
    for batch in batches[:2]:
        each = copy.deepcopy(objective)
        with torch.autocast("cpu", torch.bfloat16):
            each(batch).backward()
        alone.append(each.encoder.model.encoder.layer[0].output.dense.weight.grad)
    optimizer = make(objective, half=torch.bfloat16, one_backward=False)
    for batch in batches[:2]:
        with torch.autocast("cpu", torch.bfloat16):
            objective(batch).backward()
        optimizer.collect()
    found = objective.encoder.model.encoder.layer[0].output.dense.weight.grad
    expected = alone[0] + alone[1]
    assert (found - expected).norm() < 0.02 * expected.norm()
    assert (found - alone[1]).norm() > 0.1 * expected.norm()


def test_copies_follow_weights_from_a_checkpoint(objective):
    optimizer = make(objective, half=torch.bfloat16, one_backward=False)
    state = {name: value + 1 if value.is_floating_point() else value for name, value in weights(objective).items()}
    objective.load_state_dict(state)
    optimizer.refresh()
    for matrix in objective.encoder.copies.matrices:
        assert torch.equal(matrix.copy, matrix.parameter.to(torch.bfloat16))
