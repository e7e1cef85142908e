"""What the paper's appendix says of the losses, as tests."""

import itertools

import pytest
import torch
from cases import make
from hypothesis import given, settings
from hypothesis import strategies as st

from abalone.evaluation.diagnostics import forces
from abalone.losses import BaseLoss, JSCLLoss, MSCLoss, MulConLoss, SupConLoss
from abalone.losses.comparison import compare

TAU = 0.3


def log_softmax_to_others(z, tau):
    unit = torch.nn.functional.normalize(z, dim=1)
    similarity = (unit @ unit.T / tau).fill_diagonal_(-torch.inf)
    return similarity - similarity.logsumexp(1, keepdim=True)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_jscl_trains_like_any_shared_label_unweighted(seed):
    case = make(seed=seed, batch=8)
    z = case.embeddings.requires_grad_()
    shares = ((case.labels @ case.labels.T) > 0).fill_diagonal_(False)
    unweighted = -log_softmax_to_others(z, TAU)[shares].sum() / len(z) ** 2
    jscl = JSCLLoss(TAU)(z, case.labels)
    (expected,) = torch.autograd.grad(unweighted, z)
    (gradient,) = torch.autograd.grad(jscl, z)
    torch.testing.assert_close(gradient, expected)
    if shares.any() and (case.labels[:, None] != case.labels[None])[shares].any():
        assert jscl.item() != pytest.approx(unweighted.item())  # the value is another one


def all_pairs_of(labels: int) -> torch.Tensor:
    """Every two labels on one document: by symmetry N(i,j) is the same for all labels."""
    pairs = itertools.combinations(range(labels), 2)
    return torch.stack([torch.eye(labels, dtype=torch.long)[list(pair)].sum(0) for pair in pairs])


def test_msc_weights_are_proportional_to_jaccard_where_labels_are_balanced():
    labels = all_pairs_of(5)
    batch = compare(TAU, torch.randn(len(labels), 4, dtype=torch.float64), labels)
    (msc,), (base,) = MSCLoss(TAU).attraction(batch), BaseLoss(TAU).attraction(batch)
    torch.testing.assert_close(msc, base)
    labels[0, :] = 1  # no longer balanced
    batch = compare(TAU, torch.randn(len(labels), 4, dtype=torch.float64), labels)
    (msc,), (base,) = MSCLoss(TAU).attraction(batch), BaseLoss(TAU).attraction(batch)
    assert not torch.allclose(msc, base)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_msc_gives_every_label_of_an_anchor_the_same_attraction(seed):
    case = make(seed=seed, batch=8, queue=20)
    batch = compare(TAU, case.embeddings, case.labels, case.queue, case.prototypes)
    total = sum(w.sum(1) for w in MSCLoss(TAU).attraction(batch))
    torch.testing.assert_close(total, case.labels.any(1).double())
    # The share that the references of label j receive on its account is 1/|y_i|, however rare j is: with one label
    # per reference it can be read off by summing over the references of that label.
    single = torch.eye(4, dtype=torch.long)[torch.randint(4, (20,), generator=torch.Generator().manual_seed(seed))]
    batch = compare(TAU, case.embeddings[:1], case.labels[:1], (case.queue[0], single), case.prototypes)
    _, memory, prototypes = MSCLoss(TAU).attraction(batch)
    per_label = memory @ single.double() + prototypes
    torch.testing.assert_close(per_label, case.labels[:1] / case.labels[:1].sum().clamp(min=1).double())


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), tau=st.sampled_from([0.05, 0.3, 1.0]))
def test_supcon_is_bounded_by_attraction_and_repulsion(seed, tau):
    g = torch.Generator().manual_seed(seed)
    classes = torch.cat([torch.arange(3).repeat(2), torch.randint(3, (6,), generator=g)])
    labels = torch.eye(3, dtype=torch.long)[classes]
    z = torch.randn(12, 4, generator=g, dtype=torch.float64)
    pull = forces(z, labels)
    members = labels.sum(0)[pull.labels]
    strength = (pull.attraction + pull.repulsion) / tau
    bound = torch.log(members - 1 + (len(z) - members) * strength.exp()).sum() / len(z)
    assert SupConLoss(tau)(z, labels) >= bound - 1e-12


def test_supcon_reaches_its_bound_where_classes_collapse():
    labels = torch.eye(3, dtype=torch.long).repeat(4, 1)
    z = labels.double()
    pull = forces(z, labels)
    bound = torch.log(3 + 8 * ((pull.attraction + pull.repulsion) / TAU).exp()).mean()
    torch.testing.assert_close(SupConLoss(TAU)(z, labels), bound)


def test_mulcon_alone_is_minimal_where_nothing_depends_on_the_document():
    """Gradient descent on free label embeddings ends in one vector a label: the collapse of appendix E."""
    torch.manual_seed(0)
    labels = (torch.rand(12, 3) < 0.6).long()
    z = torch.randn(12, 3, 8, requires_grad=True)
    optimiser = torch.optim.Adam([z], lr=0.05)
    for _ in range(300):
        optimiser.zero_grad()
        value = MulConLoss(0.5)(z, labels)
        value.backward()
        optimiser.step()
    unit = torch.nn.functional.normalize(z.detach(), dim=2)
    for label in range(3):
        own = unit[labels[:, label] == 1, label]
        assert (own @ own.T).min() > 0.99
    constant = unit.new_tensor([[1.0, 0, 0], [-0.5, 3**0.5 / 2, 0], [-0.5, -(3**0.5) / 2, 0]]).expand(12, 3, 3)
    assert MulConLoss(0.5)(constant, labels) <= value.detach() + 1e-2
