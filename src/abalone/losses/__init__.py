"""Contrastive and pointwise losses for documents that carry several labels.

The contrastive ones are one sum with other weights (`abalone.losses.kernel`); each file says which.
"""

from abalone.losses.balanced import ClassBalancedLoss, DistributionBalancedLoss
from abalone.losses.base import BaseLoss
from abalone.losses.con import ConLoss
from abalone.losses.joint import JointLoss
from abalone.losses.jscl import JSCLLoss
from abalone.losses.msc import MSCLoss
from abalone.losses.mulcon import MulConLoss
from abalone.losses.mulsupcon import MulSupConLoss
from abalone.losses.pointwise import AsymmetricLoss, BCELoss, FocalLoss, ZLPRLoss
from abalone.losses.registry import LOSSES, LossSpec, loss_spec, make_loss
from abalone.losses.supcon import SupConLoss

__all__ = [
    "LOSSES",
    "AsymmetricLoss",
    "BCELoss",
    "BaseLoss",
    "ClassBalancedLoss",
    "ConLoss",
    "DistributionBalancedLoss",
    "FocalLoss",
    "JSCLLoss",
    "JointLoss",
    "LossSpec",
    "MSCLoss",
    "MulConLoss",
    "MulSupConLoss",
    "SupConLoss",
    "ZLPRLoss",
    "loss_spec",
    "make_loss",
]
