"""Losses by name, and what each needs beside the batch. A new loss is one file and one line here."""

import difflib
import inspect
import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from abalone.losses.balanced import ClassBalancedLoss, DistributionBalancedLoss
from abalone.losses.base import BaseLoss
from abalone.losses.con import ConLoss
from abalone.losses.joint import JointLoss
from abalone.losses.jscl import JSCLLoss
from abalone.losses.msc import MSCLoss
from abalone.losses.mulcon import MulConLoss
from abalone.losses.mulsupcon import MulSupConLoss
from abalone.losses.pointwise import AsymmetricLoss, BCELoss, FocalLoss, ZLPRLoss
from abalone.losses.supcon import SupConLoss


@dataclass(frozen=True)
class LossSpec:
    """A loss and what it is to be given.

    Args:
        classes: the loss; or a contrastive and a pointwise loss, to be summed.
        takes: what of the model it looks at. `label_embeddings` are [B, L, d].
        queue: whether it is given earlier documents, which takes a momentum encoder.
        prototypes: whether it is given one trainable vector a label.
        pointwise_weight: the factor of the pointwise loss in a sum.
    """

    classes: tuple[type[nn.Module], ...]
    takes: Literal["embeddings", "label_embeddings", "logits"]
    queue: bool = False
    prototypes: bool = False
    pointwise_weight: float = 1.0

    @property
    def momentum_encoder(self) -> bool:
        """Whether a momentum encoder fills the queue."""
        return self.queue

    @property
    def settings(self) -> frozenset[str]:
        """The names of what can be set, such as `temperature`."""
        return frozenset().union(*(_settings(cls) for cls in self.classes))

    @property
    def counts(self) -> bool:
        """Whether it weighs labels by how many training documents carry them: `counts` [L] and `documents`."""
        return "counts" in self.settings

    @property
    def joint(self) -> bool:
        """Whether a pointwise loss on logits is added to the contrastive one."""
        return len(self.classes) == 2


LOSSES: dict[str, LossSpec] = {
    "msc": LossSpec((MSCLoss,), "embeddings", queue=True, prototypes=True),
    "base": LossSpec((BaseLoss,), "embeddings"),
    "bqueue": LossSpec((BaseLoss,), "embeddings", queue=True),
    "bqproto": LossSpec((BaseLoss,), "embeddings", queue=True, prototypes=True),
    "supcon": LossSpec((SupConLoss,), "embeddings"),
    "jscl": LossSpec((JSCLLoss,), "embeddings"),
    "con": LossSpec((ConLoss,), "embeddings"),
    "mulcon": LossSpec((MulConLoss,), "label_embeddings"),
    "mulsupcon": LossSpec((MulSupConLoss,), "embeddings"),
    "bce": LossSpec((BCELoss,), "logits"),
    "focal": LossSpec((FocalLoss,), "logits"),
    "asymmetric": LossSpec((AsymmetricLoss,), "logits"),
    "zlpr": LossSpec((ZLPRLoss,), "logits"),
    "cb": LossSpec((ClassBalancedLoss,), "logits"),
    "db": LossSpec((DistributionBalancedLoss,), "logits"),
}

_SUM = re.compile(r"(?P<contrastive>\w+)\+(?:(?P<weight>[^*]+)\*)?(?P<pointwise>\w+)")


def loss_spec(name: str) -> LossSpec:
    """Return what the loss called `name` needs.

    `name` is a key of `LOSSES`, or a weighted sum of a contrastive and a pointwise one: `msc+bce`, `msc+10*bce`.
    """
    compact = name.replace(" ", "")
    parts = _SUM.fullmatch(compact)
    if parts is None:
        return _single(compact)
    contrastive, pointwise = _single(parts["contrastive"]), _single(parts["pointwise"])
    if contrastive.takes == "logits" or pointwise.takes != "logits":
        raise ValueError(f"{name!r} must name a contrastive loss, then a pointwise one, as in 'msc+bce'")
    return LossSpec(
        contrastive.classes + pointwise.classes,
        contrastive.takes,
        contrastive.queue,
        contrastive.prototypes,
        1.0 if parts["weight"] is None else _weight(parts["weight"], name),
    )


def make_loss(name: str, **settings: Any) -> nn.Module:
    """Build the loss called `name`, with `settings` such as `temperature` going to those that have them.

    Example:
        >>> make_loss("msc", temperature=0.2)
        MSCLoss(temperature=0.2, beta=0.1)
        >>> make_loss("msc+10*bce", beta=0.5).pointwise_weight
        10.0
    """
    spec = loss_spec(name)
    if unknown := settings.keys() - spec.settings:
        known = ", ".join(sorted(spec.settings)) or "none"
        raise ValueError(f"loss {name!r} has no setting {', '.join(sorted(unknown))}; it has {known}")
    if spec.counts and "counts" not in settings:
        raise ValueError(f"loss {name!r} weighs labels by how many documents carry them: give counts=, and documents=")
    losses = [cls(**{key: settings[key] for key in _settings(cls) & settings.keys()}) for cls in spec.classes]
    if not spec.joint:
        return losses[0]
    contrastive, pointwise = losses
    return JointLoss(contrastive, pointwise, pointwise_weight=spec.pointwise_weight)


def _settings(loss: type[nn.Module]) -> frozenset[str]:
    parameters = inspect.signature(loss).parameters.values()
    return frozenset(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)


def _weight(text: str, name: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        raise ValueError(f"the weight {text!r} in {name!r} is not a number; write it as in 'msc+10*bce'") from None
    if not 0 <= weight < math.inf:
        raise ValueError(f"the weight {text!r} in {name!r} must be at least 0 and finite")
    return weight


def _single(name: str) -> LossSpec:
    if name not in LOSSES:
        near = difflib.get_close_matches(name, LOSSES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(f"no loss is called {name!r}{hint} Known: {', '.join(LOSSES)}, and sums such as msc+10*bce")
    return LOSSES[name]
