import pytest
import reference
import torch
from cases import sets
from hypothesis import given, settings
from hypothesis import strategies as st

from abalone.losses import BCELoss, ClassBalancedLoss, DistributionBalancedLoss, FocalLoss, loss_spec, make_loss
from abalone.losses.balanced import class_balanced_weights, rebalanced_weights

COUNTS, DOCUMENTS = [0, 1, 7, 40, 99], 100


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), batch=st.integers(1, 6), labels=st.integers(1, 5), p=st.sampled_from([0, 0.4, 1]))
def test_equals_the_reference(seed, batch, labels, p):
    g = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(batch, labels, generator=g, dtype=torch.float64)).requires_grad_()
    y, counts = (torch.rand(batch, labels, generator=g) < p).long(), COUNTS[:labels]
    rows, truth = logits.tolist(), sets(y)
    for loss, expected in [
        (ClassBalancedLoss(counts), reference.class_balanced(rows, truth, counts, 0.9, 2.0)),
        (ClassBalancedLoss(counts, 0.99, 0.5), reference.class_balanced(rows, truth, counts, 0.99, 0.5)),
        (
            DistributionBalancedLoss(counts, DOCUMENTS),
            reference.distribution_balanced(rows, truth, counts, DOCUMENTS, 0.1, 10.0, 0.9, 2.0, 0.05, 2.0),
        ),
        (
            DistributionBalancedLoss(counts, DOCUMENTS, 0.2, 4.0, 0.3, 5.0, 0.1, 0.0),
            reference.distribution_balanced(rows, truth, counts, DOCUMENTS, 0.2, 4.0, 0.3, 5.0, 0.1, 0.0),
        ),
    ]:
        torch.testing.assert_close(loss(logits, y).item(), expected, rtol=1e-6, atol=1e-12)
        assert torch.autograd.gradcheck(lambda x, loss=loss: loss(x, y), [logits])


def test_class_balanced_without_decay_is_focal():
    logits, labels = torch.randn(5, 3, dtype=torch.float64), torch.randint(2, (5, 3))
    torch.testing.assert_close(ClassBalancedLoss([1, 5, 50], decay=0.0)(logits, labels), FocalLoss(2.0)(logits, labels))


def test_distribution_balanced_without_its_parts_is_bce():
    logits, labels = torch.randn(5, 3, dtype=torch.float64), torch.randint(2, (5, 3))
    plain = DistributionBalancedLoss([1, 5, 50], 60, floor=0.5, slope=0.0, tolerance=1.0, shift=0.0, gamma=0.0)
    torch.testing.assert_close(plain(logits, labels), BCELoss()(logits, labels))


def test_weights_of_rare_labels_are_the_larger_ones():
    counts = torch.tensor([1.0, 10.0, 1000.0])
    assert class_balanced_weights(counts, 0.9).diff().max() < 0
    # A document of a rare and a frequent label is there for the rare one.
    weights = rebalanced_weights(torch.tensor([[1.0, 0.0, 1.0]]), counts, 0.1, 10.0, 0.5)
    assert weights[0, 0] > 1
    assert weights[0, 2] < 0.2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "loss", [ClassBalancedLoss([0, 1, 2, 3, 9]), DistributionBalancedLoss([0, 1, 2, 3, 9], 9)], ids=["cb", "db"]
)
def test_extreme_logits_and_counts_stay_finite(loss, dtype):
    logits = torch.tensor([[-300.0, -90, 0, 90, 300]] * 2, dtype=dtype, requires_grad=True)
    value = loss(logits, torch.tensor([[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]))
    value.backward()
    assert value.dtype is torch.float32
    assert value.isfinite()
    assert logits.grad.isfinite().all()


def test_counts_are_taken_from_the_caller():
    assert loss_spec("db").counts
    assert loss_spec("msc+10*cb").counts
    assert not loss_spec("msc+bce").counts
    assert isinstance(make_loss("msc+db", counts=[3, 2], documents=4).pointwise, DistributionBalancedLoss)
    with pytest.raises(ValueError, match=r"'msc\+db' weighs labels .* give counts="):
        make_loss("msc+db")


@pytest.mark.parametrize("counts", [[], [[1, 2]], [-1, 2], [float("nan")]])
def test_counts_that_are_none_are_refused(counts):
    with pytest.raises(ValueError, match="counts must be"):
        ClassBalancedLoss(counts)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="logits must have 2 columns, one per count, got \\(1, 3\\)"):
        ClassBalancedLoss([1, 2])(torch.zeros(1, 3), torch.zeros(1, 3))
    with pytest.raises(ValueError, match="documents must be at least the largest of counts, got 4"):
        DistributionBalancedLoss([5], 4)
    with pytest.raises(ValueError, match="decay must be at least 0 and below 1, got 1"):
        ClassBalancedLoss([5], decay=1.0)
    with pytest.raises(ValueError, match=r"tolerance must be at least 1, got 0\.5"):
        DistributionBalancedLoss([5], 9, tolerance=0.5)
