import pytest
import torch
from torch import nn

from abalone.encoder.momentum import MomentumEncoder


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))


def test_starts_as_an_exact_copy_of_its_own(encoder):
    average = MomentumEncoder(encoder)
    for a, b in zip(average.encoder.parameters(), encoder.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.data_ptr() != b.data_ptr()


def test_update_is_the_formula_and_copies_buffers(encoder):
    average = MomentumEncoder(encoder, momentum=0.9).double()
    encoder.double()
    before = [p.clone() for p in average.encoder.parameters()]
    with torch.no_grad():
        for p in encoder.parameters():
            p.add_(torch.randn_like(p))
    encoder.train()(torch.randn(8, 4, dtype=torch.float64))  # moves the batch norm's running mean
    average.update(encoder)
    for old, new, fast in zip(before, average.encoder.parameters(), encoder.parameters(), strict=True):
        torch.testing.assert_close(new, 0.9 * old + 0.1 * fast)
    assert torch.equal(average.encoder[1].running_mean, encoder[1].running_mean)
    assert average.encoder[1].running_mean.abs().sum() > 0


def test_never_trains(encoder):
    average = MomentumEncoder(encoder)
    out = average(torch.randn(3, 4))
    assert not out.requires_grad
    assert not any(p.requires_grad for p in average.parameters())


def test_dropout_is_off_in_every_mode(encoder):
    average, x = MomentumEncoder(encoder), torch.randn(3, 4)
    for mode in (average, average.eval(), average.train()):
        assert not any(part.training for part in mode.encoder.modules())
        assert torch.equal(mode(x), mode(x))


def test_survives_state_dict(encoder):
    average = MomentumEncoder(encoder)
    with torch.no_grad():
        encoder[0].weight.add_(1)
    average.update(encoder)
    other = MomentumEncoder(encoder)
    other.load_state_dict(average.state_dict())
    x = torch.randn(3, 4)
    assert torch.equal(average(x), other(x))


def test_bad_momentum():
    with pytest.raises(ValueError, match=r"momentum must be between 0 and 1, got 1.5"):
        MomentumEncoder(nn.Linear(1, 1), momentum=1.5)


def test_another_encoder_is_refused(encoder):
    with pytest.raises(ValueError, match="the encoder has 2 parameters, its momentum copy 6"):
        MomentumEncoder(encoder).update(nn.Linear(4, 4))
