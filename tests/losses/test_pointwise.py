import math

import pytest
import reference
import torch
from cases import sets
from hypothesis import given, settings
from hypothesis import strategies as st

from abalone.losses import AsymmetricLoss, BCELoss, FocalLoss, JointLoss, MSCLoss, ZLPRLoss

PAIRS = {
    "bce": (BCELoss(), reference.bce),
    "focal": (FocalLoss(2.0), lambda x, y: reference.focal(x, y, 2.0)),
    "focal 0.5": (FocalLoss(0.5), lambda x, y: reference.focal(x, y, 0.5)),
    "asymmetric": (AsymmetricLoss(), lambda x, y: reference.asymmetric(x, y, 0.0, 3.0, 0.3)),
    "asymmetric 1 0.5": (AsymmetricLoss(1, 0.5, 0.05), lambda x, y: reference.asymmetric(x, y, 1, 0.5, 0.05)),
    "asymmetric no margin": (AsymmetricLoss(1, 4, 0), lambda x, y: reference.asymmetric(x, y, 1, 4, 0)),
    "zlpr": (ZLPRLoss(), reference.zlpr),
}


@pytest.mark.parametrize("name", PAIRS)
@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), batch=st.integers(1, 6), labels=st.integers(1, 5), p=st.sampled_from([0, 0.4, 1]))
def test_equals_the_reference(name, seed, batch, labels, p):
    g = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(batch, labels, generator=g, dtype=torch.float64)
    y = (torch.rand(batch, labels, generator=g) < p).long()
    loss, expected = PAIRS[name]
    torch.testing.assert_close(loss(logits, y).item(), expected(logits.tolist(), sets(y)), rtol=1e-6, atol=1e-12)
    # With a margin the loss has a kink at p = m, where finite differences see both sides.
    smooth = (torch.sigmoid(logits) - getattr(loss, "margin", 0)).abs().min() > 1e-4
    if smooth:
        assert torch.autograd.gradcheck(lambda x: loss(x, y), [logits.requires_grad_()])


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_extreme_logits_stay_finite(name, dtype):
    logits = torch.tensor([[-300.0, -90, 0, 90, 300]] * 2, dtype=dtype, requires_grad=True)
    labels = torch.tensor([[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
    value = PAIRS[name][0](logits, labels)
    value.backward()
    assert value.dtype is torch.float32
    assert value.isfinite()
    assert logits.grad.isfinite().all()


def test_asymmetric_is_focal_is_bce_where_they_should_be():
    logits, labels = torch.randn(5, 3, dtype=torch.float64), torch.randint(2, (5, 3))
    torch.testing.assert_close(AsymmetricLoss(2, 2, 0)(logits, labels), FocalLoss(2)(logits, labels))
    torch.testing.assert_close(FocalLoss(0)(logits, labels), BCELoss()(logits, labels))


def test_easy_negatives_cost_nothing():
    easy = torch.full((1, 2), math.log(0.29 / 0.71), requires_grad=True)
    AsymmetricLoss(margin=0.3)(easy, torch.zeros(1, 2)).backward()
    assert torch.equal(easy.grad, torch.zeros(1, 2))


def test_joint_is_the_weighted_sum():
    z, logits, labels = torch.randn(4, 3), torch.randn(4, 2), torch.randint(2, (4, 2))
    prototypes = torch.randn(2, 3)
    joint = JointLoss(MSCLoss(), BCELoss(), contrastive_weight=0.5, pointwise_weight=10)
    expected = 0.5 * MSCLoss()(z, labels, prototypes=prototypes) + 10 * BCELoss()(logits, labels)
    torch.testing.assert_close(joint(z, logits, labels, prototypes=prototypes), expected)
