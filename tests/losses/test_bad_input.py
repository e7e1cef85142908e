"""Bad input is refused in words: the argument, and the shapes or values."""

import math

import pytest
import torch
from cases import make

import abalone.losses.pairs
from abalone.losses import (
    LOSSES,
    AsymmetricLoss,
    BCELoss,
    FocalLoss,
    JointLoss,
    MSCLoss,
    MulConLoss,
    loss_spec,
    make_loss,
)


@pytest.fixture
def case():
    return make(batch=6, queue=9, dim=5, labels=4)


@pytest.mark.parametrize("name", [name for name, spec in LOSSES.items() if spec.takes != "logits"])
@pytest.mark.parametrize("temperature", [0, -0.1, math.nan, math.inf])
def test_temperature(name, temperature):
    with pytest.raises(ValueError, match=rf"temperature must be .* above 0, got {temperature}"):
        make_loss(name, temperature=temperature)


@pytest.mark.parametrize("beta", [0, -1, 1.01, math.nan])
def test_beta(beta):
    with pytest.raises(ValueError, match=rf"beta must be above 0 and at most 1, got {beta}"):
        MSCLoss(beta=beta)
    MSCLoss(beta=1)


@pytest.mark.parametrize(
    ("setting", "value"), [("gamma_neg", -1), ("gamma_pos", math.inf), ("margin", 1), ("margin", -0.1)]
)
def test_asymmetric_settings(setting, value):
    with pytest.raises(ValueError, match=f"{setting} must be"):
        AsymmetricLoss(**{setting: value})
    with pytest.raises(ValueError, match="gamma must be"):
        FocalLoss(gamma=-1)
    with pytest.raises(ValueError, match="pointwise_weight must be"):
        JointLoss(MSCLoss(), BCELoss(), pointwise_weight=-1)


def test_mismatched_rows(case):
    with pytest.raises(ValueError, match=r"embeddings and labels .* \(6, 5\) and \(4, 4\)"):
        MSCLoss()(case.embeddings, case.labels[:4])
    with pytest.raises(ValueError, match=r"queue embeddings and queue labels .* \(9, 5\) and \(8, 4\)"):
        MSCLoss()(case.embeddings, case.labels, queue=(case.queue[0], case.queue[1][:8]))
    with pytest.raises(ValueError, match=r"prototypes must have one row for each of the 4 labels, got shape \(3, 5\)"):
        MSCLoss()(case.embeddings, case.labels, prototypes=case.prototypes[:3])


def test_mismatched_widths(case):
    with pytest.raises(ValueError, match=r"queue labels must be \[rows, 4\] .* \(9, 3\)"):
        MSCLoss()(case.embeddings, case.labels, queue=(case.queue[0], case.queue[1][:, :3]))
    with pytest.raises(ValueError, match=r"queue embeddings must be \[rows, 5\] .* \(9, 2\)"):
        MSCLoss()(case.embeddings, case.labels, queue=(case.queue[0][:, :2], case.queue[1]))
    with pytest.raises(ValueError, match=r"prototypes must be \[rows, 5\] .* \(4, 2\)"):
        MSCLoss()(case.embeddings, case.labels, prototypes=case.prototypes[:, :2])


def test_wrong_dimensions_and_types(case):
    with pytest.raises(ValueError, match=r"embeddings must be \[rows, dim\], got shape \(5,\)"):
        MSCLoss()(case.embeddings[0], case.labels)
    with pytest.raises(ValueError, match=r"embeddings must be floating point, got torch.int64"):
        MSCLoss()(case.labels, case.labels)
    with pytest.raises(ValueError, match=r"labels must be \[rows, labels\], got shape \(6,\)"):
        MSCLoss()(case.embeddings, case.labels[:, 0])
    with pytest.raises(ValueError, match=r"embeddings must not be empty, got shape \(0, 5\)"):
        MSCLoss()(case.embeddings[:0], case.labels[:0])
    with pytest.raises(ValueError, match=r"label_embeddings must hold .* \(6, 4\), got shape \(6, 3, 5\)"):
        MulConLoss()(torch.randn(6, 3, 5), case.labels)


@pytest.mark.parametrize("entries", [-1, 10**6], ids=["indexed", "dense"])
def test_labels_not_0_or_1(case, entries, monkeypatch):
    monkeypatch.setattr(abalone.losses.pairs, "DENSE_ENTRIES", entries)
    labels = case.labels.double()
    labels[2, 1] = 0.5
    with pytest.raises(ValueError, match=r"^labels must be 0 or 1 everywhere, found 0.5 \(1 such values\)"):
        MSCLoss()(case.embeddings, labels)
    labels[2, 1] = math.nan
    with pytest.raises(ValueError, match="labels must be 0 or 1 everywhere, found nan"):
        MSCLoss()(case.embeddings, labels)
    with pytest.raises(ValueError, match="queue labels must be 0 or 1 everywhere, found -1"):
        MSCLoss()(case.embeddings, case.labels, queue=(case.queue[0], -case.queue[1]))
    with pytest.raises(ValueError, match="labels must be 0 or 1 everywhere, found 2"):
        BCELoss()(torch.zeros(6, 4), case.labels * 2)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_not_finite(case, value):
    for name in ("embeddings", "queue embeddings", "prototypes"):
        broken = make(batch=6, queue=9, dim=5, labels=4)
        {"embeddings": broken.embeddings, "queue embeddings": broken.queue[0], "prototypes": broken.prototypes}[name][
            3
        ] = value
        with pytest.raises(ValueError, match=f"^{name} holds NaN or infinite values, first in row 3 of shape"):
            MSCLoss()(broken.embeddings, broken.labels, queue=broken.queue, prototypes=broken.prototypes)
    with pytest.raises(ValueError, match="logits holds NaN"):
        BCELoss()(torch.full((6, 4), value), case.labels)


def test_logits_and_labels_of_different_shape(case):
    with pytest.raises(ValueError, match=r"logits and labels .* \(6, 3\) and \(6, 4\)"):
        BCELoss()(torch.zeros(6, 3), case.labels)


def test_unknown_names_and_settings():
    with pytest.raises(ValueError, match="no loss is called 'mcs'; did you mean 'msc'"):
        make_loss("mcs")
    with pytest.raises(ValueError, match="'bce\\+msc' must name a contrastive loss, then a pointwise one"):
        loss_spec("bce+msc")
    with pytest.raises(ValueError, match="loss 'msc' has no setting gamma; it has beta, temperature"):
        make_loss("msc", gamma=2.0)
    with pytest.raises(ValueError, match="loss 'bce' has no setting gamma; it has none"):
        make_loss("bce", gamma=2.0)
