"""Every contrastive loss equals its loop-by-loop reference, on random sizes and on the awkward ones."""

from dataclasses import replace

import pytest
import reference
import torch
from cases import Case, awkward, make, sets
from hypothesis import given, settings
from hypothesis import strategies as st

import abalone.losses.pairs
from abalone.losses import BaseLoss, ConLoss, JSCLLoss, MSCLoss, MulConLoss, MulSupConLoss, SupConLoss

TAU, BETA = 0.3, 0.2


def queue_lists(case: Case):
    return ((), ()) if case.queue is None else (case.queue[0].tolist(), sets(case.queue[1]))


def prototype_lists(case: Case):
    return () if case.prototypes is None else case.prototypes.tolist()


PAIRS = {
    "supcon": (
        lambda c: SupConLoss(TAU)(c.embeddings, c.labels, **c.references(prototypes=False)),
        lambda c: reference.supcon(c.embeddings.tolist(), sets(c.labels), TAU, queue_lists(c)),
    ),
    "mulsupcon": (
        lambda c: MulSupConLoss(TAU)(c.embeddings, c.labels, **c.references(prototypes=False)),
        lambda c: reference.mulsupcon(c.embeddings.tolist(), sets(c.labels), TAU, queue_lists(c)),
    ),
    "base": (
        lambda c: BaseLoss(TAU)(c.embeddings, c.labels, **c.references()),
        lambda c: reference.base(c.embeddings.tolist(), sets(c.labels), TAU, queue_lists(c), prototype_lists(c)),
    ),
    "msc": (
        lambda c: MSCLoss(TAU, BETA)(c.embeddings, c.labels, **c.references()),
        lambda c: reference.msc(c.embeddings.tolist(), sets(c.labels), TAU, BETA, queue_lists(c), prototype_lists(c)),
    ),
    "jscl": (
        lambda c: JSCLLoss(TAU)(c.embeddings, c.labels),
        lambda c: reference.jscl(c.embeddings.tolist(), sets(c.labels), TAU),
    ),
    "con": (
        lambda c: ConLoss(TAU)(c.embeddings, c.labels),
        lambda c: reference.con(c.embeddings.tolist(), sets(c.labels), TAU),
    ),
}


@pytest.fixture(params=["dense", "indexed"])
def label_work(request, monkeypatch):
    """Both ways of summing over labels, whatever the number of labels."""
    monkeypatch.setattr(abalone.losses.pairs, "DENSE_ENTRIES", 10**9 if request.param == "dense" else -1)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("case", awkward().items(), ids=lambda item: item[0])
def test_awkward_batches(name, case, label_work):
    ours, expected = PAIRS[name]
    label, batch = case
    if name == "con" and label == "a zero embedding":
        batch.embeddings[0] = 1.0  # a direction is needed to take a distance from
    value = ours(batch)
    assert value.dtype is torch.float64
    torch.testing.assert_close(value.item(), expected(batch), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", PAIRS)
@settings(max_examples=40)
@given(data=st.data())
def test_random_sizes(name, data):
    case = make(
        seed=data.draw(st.integers(0, 10_000)),
        batch=data.draw(st.integers(1, 9)),
        queue=data.draw(st.integers(0, 12)),
        dim=data.draw(st.integers(1, 6)),
        labels=data.draw(st.integers(1, 7)),
        prototypes=data.draw(st.booleans()),
        p=data.draw(st.sampled_from([0.05, 0.3, 0.9])),
    )
    ours, expected = PAIRS[name]
    torch.testing.assert_close(ours(case).item(), expected(case), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", PAIRS)
def test_queue_in_part_filled_is_what_is_filled(name):
    from abalone import MemoryQueue

    case = make(queue=5)
    queue = MemoryQueue(size=20, dim=5, num_labels=4).double()
    queue.enqueue(*case.queue)
    ours, expected = PAIRS[name]
    torch.testing.assert_close(
        ours(Case(case.embeddings, case.labels, queue.contents(), case.prototypes)).item(),
        expected(case),
        rtol=1e-6,
        atol=0,
    )


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000), batch=st.integers(1, 6), labels=st.integers(1, 5), p=st.sampled_from([0.0, 0.4, 1.0])
)
def test_mulcon(seed, batch, labels, p):
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(batch, labels, 3, generator=g, dtype=torch.float64)
    y = (torch.rand(batch, labels, generator=g) < p).long()
    expected = reference.mulcon(z.tolist(), sets(y), TAU)
    torch.testing.assert_close(MulConLoss(TAU)(z, y).item(), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.parametrize("name", ["base", "msc", "supcon", "mulsupcon"])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_sparse_labels_are_the_same_labels(name, layout):
    case = make()
    ours, _ = PAIRS[name]
    sparse = Case(
        case.embeddings,
        case.labels.to_sparse(layout=layout),
        (case.queue[0], case.queue[1].to_sparse(layout=layout)),
        case.prototypes,
    )
    torch.testing.assert_close(ours(sparse), ours(case))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_zeros_that_a_sparse_matrix_stores_are_no_labels(layout):
    case = make()
    everywhere = torch.ones_like(case.labels).nonzero().T
    stored = torch.sparse_coo_tensor(everywhere, case.labels.flatten(), case.labels.shape, check_invariants=True)
    stored = stored.to_sparse(layout=layout)
    assert stored._nnz() == case.labels.numel()
    ours, _ = PAIRS["msc"]
    torch.testing.assert_close(ours(replace(case, labels=stored)), ours(case))
