import pytest

from abalone.losses import (
    LOSSES,
    AsymmetricLoss,
    BaseLoss,
    BCELoss,
    ClassBalancedLoss,
    ConLoss,
    DistributionBalancedLoss,
    FocalLoss,
    JointLoss,
    JSCLLoss,
    MSCLoss,
    MulConLoss,
    MulSupConLoss,
    SupConLoss,
    ZLPRLoss,
    loss_spec,
    make_loss,
)


@pytest.mark.parametrize(
    ("name", "queue", "prototypes", "momentum"),
    [
        ("msc", True, True, True),
        ("base", False, False, False),
        ("bqueue", True, False, True),
        ("bqproto", True, True, True),
        ("bce", False, False, False),
        ("msc+bce", True, True, True),
    ],
)
def test_needs(name, queue, prototypes, momentum):
    spec = loss_spec(name)
    assert (spec.queue, spec.prototypes, spec.momentum_encoder) == (queue, prototypes, momentum)


MADE = {
    "msc": MSCLoss,
    "base": BaseLoss,
    "bqueue": BaseLoss,
    "bqproto": BaseLoss,
    "supcon": SupConLoss,
    "jscl": JSCLLoss,
    "con": ConLoss,
    "mulcon": MulConLoss,
    "mulsupcon": MulSupConLoss,
    "bce": BCELoss,
    "focal": FocalLoss,
    "asymmetric": AsymmetricLoss,
    "zlpr": ZLPRLoss,
    "cb": ClassBalancedLoss,
    "db": DistributionBalancedLoss,
}
KNOWN = {"cb": {"counts": [1]}, "db": {"counts": [1], "documents": 2}}  # what the corpus says


def test_every_name_makes_its_loss():
    assert {name: type(make_loss(name, **KNOWN.get(name, {}))) for name in LOSSES} == MADE


@pytest.mark.parametrize("name", ["msc+bce", "mulcon+zlpr", "base+asymmetric"])
def test_a_sum_is_made_of_the_losses_it_names(name):
    loss = make_loss(name)
    assert isinstance(loss, JointLoss)
    assert [type(loss.contrastive), type(loss.pointwise)] == [MADE[part] for part in name.split("+")]


def test_settings_reach_the_loss_that_has_them():
    assert make_loss("bqueue", temperature=0.2).temperature == 0.2
    joint = make_loss("msc + 2.5*focal", temperature=0.2, beta=0.3, gamma=1.0)
    assert (joint.contrastive.temperature, joint.contrastive.beta, joint.pointwise.gamma) == (0.2, 0.3, 1.0)
    assert joint.pointwise_weight == 2.5
    assert isinstance(make_loss("base"), BaseLoss)
    assert isinstance(joint.contrastive, MSCLoss)
    assert isinstance(make_loss("msc+bce").pointwise, BCELoss)


@pytest.mark.parametrize("weight", ["1e", "--", "1.2.3", "ten"])
def test_a_weight_that_is_no_number_is_named(weight):
    with pytest.raises(
        ValueError, match=f"the weight '{weight}' in 'msc \\+ {weight}\\*bce' is not a number; write it as in"
    ):
        loss_spec(f"msc + {weight}*bce")


@pytest.mark.parametrize("weight", ["-1", "nan", "1e999"])
def test_weight_that_is_negative_or_not_finite_is_refused(weight):
    with pytest.raises(ValueError, match=f"the weight '{weight}' in .* must be at least 0 and finite"):
        loss_spec(f"msc+{weight}*bce")


def test_weights_in_any_notation():
    assert [loss_spec(f"msc+{weight}*bce").pointwise_weight for weight in ("2", ".5", "1e-1", "1e+1")] == [
        2,
        0.5,
        0.1,
        10,
    ]
