"""What holds for every contrastive loss: gradients, invariances, precision, and finite values at the edge."""

import pytest
import torch
from cases import awkward, make
from hypothesis import given, settings
from hypothesis import strategies as st

from abalone.losses import LOSSES, loss_spec, make_loss

CONTRASTIVE = [name for name, spec in LOSSES.items() if spec.takes == "embeddings"]


def call(name, embeddings, labels, queue=None, prototypes=None, **settings):
    """The loss of that name with what its registry entry says it is given."""
    spec = loss_spec(name)
    given = {"queue": queue} if spec.queue else {}
    given |= {"prototypes": prototypes} if spec.prototypes else {}
    return make_loss(name, temperature=settings.pop("temperature", 0.3), **settings)(embeddings, labels, **given)


@pytest.mark.parametrize("name", CONTRASTIVE)
@pytest.mark.parametrize("case", ["full", "documents without labels", "anchors without positives", "no queue"])
def test_gradient_equals_finite_differences(name, case):
    case = awkward()[case]
    inputs = [case.embeddings.requires_grad_()]
    if loss_spec(name).prototypes and case.prototypes is not None:
        inputs.append(case.prototypes.requires_grad_())
    assert torch.autograd.gradcheck(
        lambda z, *c: call(name, z, case.labels, case.queue, c[0] if c else None), inputs, raise_exception=True
    )


def test_mulcon_gradient_equals_finite_differences():
    labels = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 0, 0], [1, 1, 1]])
    z = torch.randn(4, 3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: make_loss("mulcon", temperature=0.3)(z, labels), [z])


@pytest.mark.parametrize("name", CONTRASTIVE)
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_order_and_scale_do_not_matter(name, seed):
    case = make(seed=seed, batch=7, queue=8, labels=5)
    g = torch.Generator().manual_seed(seed)
    rows, memory, columns = (torch.randperm(n, generator=g) for n in (7, 8, 5))

    def stretch(vectors):
        return vectors * (0.01 + 100 * torch.rand(len(vectors), 1, generator=g, dtype=torch.float64))

    value = call(name, case.embeddings, case.labels, case.queue, case.prototypes)
    shuffled = call(
        name,
        stretch(case.embeddings[rows]),
        case.labels[rows][:, columns],
        (stretch(case.queue[0][memory]), case.queue[1][memory][:, columns]),
        stretch(case.prototypes[columns]),
    )
    torch.testing.assert_close(shuffled, value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CONTRASTIVE)
def test_gradient_flows_into_batch_and_prototypes_never_into_the_queue(name):
    case = make()
    tensors = [case.embeddings, case.queue[0], case.prototypes]
    for tensor in tensors:
        tensor.requires_grad_()
    call(name, case.embeddings, case.labels, case.queue, case.prototypes).backward()
    assert case.embeddings.grad.abs().sum() > 0
    assert case.queue[0].grad is None
    assert (case.prototypes.grad is not None) == loss_spec(name).prototypes


@pytest.mark.parametrize("name", CONTRASTIVE)
@pytest.mark.parametrize("case", ["one document alone", "no labels at all", "anchors without positives"])
def test_nothing_to_attract_is_zero_with_zero_gradient(name, case):
    case = awkward()[case]
    embeddings = case.embeddings.requires_grad_()
    prototypes = None if case.labels.any() else case.prototypes
    value = call(name, embeddings, case.labels, case.queue, prototypes)
    value.backward()
    assert value.item() == 0
    assert torch.equal(embeddings.grad, torch.zeros_like(embeddings))


@pytest.mark.parametrize("name", CONTRASTIVE)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(name, dtype):
    case = make(batch=8, queue=16)
    half = [t.to(dtype) for t in (case.embeddings, case.queue[0], case.prototypes)]
    value = call(name, half[0], case.labels, (half[1], case.queue[1]), half[2])
    exact = call(name, half[0].double(), case.labels, (half[1].double(), case.queue[1]), half[2].double())
    assert value.dtype is torch.float32
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CONTRASTIVE)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_finite_at_low_temperature_with_identical_documents(name, dtype):
    embeddings = torch.ones(6, 16, dtype=dtype, requires_grad=True)
    labels = torch.tensor([[1, 0]] * 4 + [[1, 1]] * 2)
    queue = (torch.ones(5, 16, dtype=dtype), labels[:5])
    value = call(name, embeddings, labels, queue, -torch.ones(2, 16, dtype=dtype), temperature=0.01)
    value.backward()
    assert value.isfinite()
    assert embeddings.grad.isfinite().all()
    assert embeddings.grad.dtype is dtype


@pytest.mark.parametrize("name", CONTRASTIVE)
def test_autocast_does_not_lower_the_precision(name):
    case = make(batch=8, queue=16)
    z, q, c = case.embeddings.float(), case.queue[0].float(), case.prototypes.float()
    plain = call(name, z, case.labels, (q, case.queue[1]), c)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = call(name, z, case.labels, (q, case.queue[1]), c)
    assert torch.equal(plain, cast)


@pytest.mark.parametrize("name", CONTRASTIVE)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32])
def test_labels_of_any_type(name, dtype):
    case = make()
    value = call(name, case.embeddings, case.labels, case.queue, case.prototypes)
    other = call(
        name, case.embeddings, case.labels.to(dtype), (case.queue[0], case.queue[1].to(dtype)), case.prototypes
    )
    assert torch.equal(value, other)


def test_backward_twice_gives_the_same_gradient():
    case = make()
    z = case.embeddings.requires_grad_()
    value = call("msc", z, case.labels, case.queue, case.prototypes)
    (first,) = torch.autograd.grad(3 * value, z, retain_graph=True)
    (second,) = torch.autograd.grad(3 * value, z)
    assert torch.equal(first, second)
