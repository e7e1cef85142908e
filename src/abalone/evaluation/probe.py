"""Linear evaluation: logistic regressions on frozen features, the measure of the paper's tables.

The paper trains 45 small models a label, 2,430 for a corpus of 54 labels; `GridFits` trains them side by side.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from typing import Any, Self

import numpy as np
import torch
from scipy.sparse import csr_array, issparse
from torch import Tensor

from abalone.device import choose_device
from abalone.errors import InputError, as_input_error
from abalone.evaluation.gridfits import (
    SCORED_AT_ONCE,
    GridFits,
    Setting,
    mean_probability,
    shuffled_batches,
    starting_weights,
)
from abalone.evaluation.matrices import read_labels
from abalone.losses.checks import check_at_least_zero, check_columns, check_finite, check_matrix
from abalone.losses.kernel import working_dtype
from abalone.losses.pairs import label_matrix

Features = np.ndarray | Tensor  # [n, d], of any floating type; may be memory-mapped
Labels = np.ndarray | Tensor | csr_array  # [n, L] of 0/1

# Labels are fitted together as long as their fits have no more weights than this, four numbers each while training,
# and their targets no more entries than that: about 2 GiB, and 1 GiB. Many labels are fitted in blocks.
WEIGHTS_AT_ONCE, TARGETS_AT_ONCE = 2**27, 2**30


@dataclass(eq=False)
class LinearProbe:
    """Logistic regressions on frozen features, each label with the training setting that suits it.

    Every label is fitted with every learning rate × weight decay × initialisation: AdamW on the mean binary
    cross-entropy, Xavier-uniform start, learning rate falling linearly to 0, features as they are. As with
    `torch.optim.AdamW` on an `nn.Linear`, weight decay takes the bias too. The initialisations of a setting vote
    by mean probability, and per label the setting with the best validation F1 (p ≥ 0.5) is kept.

    Equal F1, common among rare labels, is decided by the likelihood of the validation labels, then for the smaller
    learning rate, then for the larger weight decay. A label that no training or no validation document carries takes
    the setting with the best mean F1 over the other labels: its own F1 says nothing, and without training documents
    would favour the fit that learned least. A setting that overflows is never kept.

    The seed fixes starts and batches, whatever else draws random numbers, and every label sees the same batches
    whichever it is fitted together with: many labels are fitted in blocks, to bound the memory. Computes in float32, or
    in float64 if X is float64; on CUDA the products follow `torch.set_float32_matmul_precision`.

    Args:
        learning_rates, weight_decays: the grid; the paper's by default.
        initialisations: fits of each setting, averaged as probabilities.
        epochs, batch_size: batches run on across the end of an epoch, so that all are full.
        seed: of starts and batches.
        device: a torch device, or "auto" for CUDA where there is any.

    Attributes:
        weight, bias: of the kept fits, [initialisations, L, d] and [initialisations, L], on the CPU.
        chosen: the kept setting of each label.
        validation_f1: [L], what it was kept for; NaN for a label that took the setting of the others.

    Reference:
        Audibert, Gauffre & Amini, "Exploring Contrastive Learning for Long-Tailed Multi-Label Text
        Classification", appendix A.

    Example:
        >>> X = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
        >>> Y = X[:, :3] > 0
        >>> probe = LinearProbe(epochs=100, batch_size=32).fit(X[:150], Y[:150], X[150:], Y[150:])
        >>> probe.predict_proba(X[150:]).shape
        (50, 3)
        >>> bool(probe.validation_f1.min() > 0.9)
        True
    """

    learning_rates: Sequence[float] = (1.0, 1e-1, 1e-2)
    weight_decays: Sequence[float] = (1.0, 1e-1, 1e-2, 1e-4, 1e-6)
    initialisations: int = 3
    epochs: int = 40
    batch_size: int = 256
    seed: int = 0
    device: str | torch.device = "auto"

    weight: Tensor = field(init=False, repr=False)
    bias: Tensor = field(init=False, repr=False)
    chosen: list[Setting] = field(init=False, repr=False)
    validation_f1: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("initialisations", "epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.grid:
            raise InputError("learning_rates and weight_decays must have at least one value each")
        for learning_rate, weight_decay in self.grid:
            if not 0 < learning_rate < math.inf:
                raise InputError(f"learning_rates must be finite numbers above 0, got {learning_rate}")
            with as_input_error():
                check_at_least_zero("weight_decays", weight_decay)

    @property
    def grid(self) -> list[Setting]:
        """All settings, the more cautious first: this is the order that decides ties."""
        return [Setting(*s) for s in product(sorted(self.learning_rates), sorted(self.weight_decays, reverse=True))]

    def fit(self, X: Features, Y: Labels, X_val: Features | None = None, Y_val: Labels | None = None) -> Self:
        """Train on X [n, d] with 0/1 labels Y [n, L], choose on X_val [m, d] with Y_val [m, L]."""
        if X_val is None or Y_val is None:
            raise InputError(
                "LinearProbe chooses learning rate and weight decay on validation documents: "
                "call fit(X, Y, X_val, Y_val) with features [m, d] and 0/1 labels [m, L] that X and Y do not hold"
            )
        device = probe_device(self.device)
        # All read before training, so that what is wrong is said at once.
        features, labels = read_features("X", X, device), read_targets("Y", Y)
        val_features, val_labels = (
            read_features("X_val", X_val, device).to(features.dtype),
            read_targets("Y_val", Y_val),
        )
        check_rows("X", features, "Y", labels)
        check_rows("X_val", val_features, "Y_val", val_labels)
        with as_input_error():
            check_columns("X_val", val_features, features.shape[1], "X")
        if val_labels.shape[1] != labels.shape[1]:
            raise InputError(f"Y_val must be [rows, {labels.shape[1]}] to match Y, got shape {val_labels.shape}")
        size = min(self.batch_size, len(features))
        steps = self.epochs * len(features) // size
        generator = torch.Generator().manual_seed(self.seed)
        start = starting_weights(self.initialisations, labels.shape[1], features.shape[1], generator)
        batches_begin = generator.get_state()
        best = _Best(self.grid, labels, val_labels, start.to("cpu", features.dtype))
        for columns in best.blocks(len(features)):
            generator.set_state(batches_begin)
            fits = GridFits(features, dense_targets(labels, columns, device), self.grid, start[:, columns], size, steps)
            fits.train(shuffled_batches(len(features), size, steps, generator, device))
            best.keep(columns, fits, *fits.scores(val_features, dense_targets(val_labels, columns, device)))
        self.weight, self.bias = best.weight, best.bias
        self.chosen = [self.grid[setting] for setting in best.settings]
        self.validation_f1 = torch.from_numpy(best.f1)
        return self

    def predict_proba(self, X: Features) -> np.ndarray:
        """Return probabilities [n, L]: the mean over the initialisations."""
        self._check_fitted()
        device = probe_device(self.device)
        weight, bias = self.weight.to(device), self.bias.to(device)
        _, labels, dim = weight.shape
        if X.shape[1:] != (dim,):
            raise InputError(f"X must be [documents, {dim}] as in fit, got shape {tuple(X.shape)}")
        probabilities = torch.empty(len(X), labels, dtype=weight.dtype)
        rows = max(SCORED_AT_ONCE // max(labels, dim), 1)
        for begin in range(0, len(X), rows):
            part = slice(begin, min(begin + rows, len(X)))
            features = read_features(f"X[{part.start}:{part.stop}]", X[part], device).to(weight.dtype)
            probabilities[part] = mean_probability(features, weight, bias)
        return probabilities.numpy()

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the arguments of `from_state`: settings, which JSON can hold, and tensors, which safetensors can."""
        self._check_fitted()
        config = {f.name: getattr(self, f.name) for f in fields(self) if f.init and f.name != "device"}
        tensors = {
            "weight": self.weight,
            "bias": self.bias,
            "chosen": torch.tensor(self.chosen, dtype=torch.float64),
            "validation_f1": self.validation_f1,
        }
        return config, tensors

    @classmethod
    def from_state(
        cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor], device: str | torch.device = "auto"
    ) -> Self:
        """Read a fitted probe, on whatever device there is now."""
        probe = cls(**config, device=device)
        probe.weight, probe.bias, probe.validation_f1 = tensors["weight"], tensors["bias"], tensors["validation_f1"]
        probe.chosen = [Setting(*setting) for setting in tensors["chosen"].tolist()]
        return probe

    def _check_fitted(self) -> None:
        if not hasattr(self, "weight"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError("this LinearProbe is not fitted yet: call fit(X, Y, X_val, Y_val) first")


class _Best:
    """The fits that are kept, filled in block by block of labels."""

    def __init__(self, grid: Sequence[Setting], labels: csr_array, val_labels: csr_array, start: Tensor) -> None:
        self.known = np.logical_and(*(np.asarray(y.sum(axis=0)).ravel() > 0 for y in (labels, val_labels)))  # [L]
        self.weight, self.bias = torch.empty_like(start), torch.empty_like(start[..., 0])  # [I, L, d], [I, L]
        self.settings, self.f1 = np.zeros(len(self.known), np.int64), np.full(len(self.known), np.nan)
        self._numbers_a_label = start[:, 0].numel() * len(grid)
        self._total, self._summed = np.zeros((2, len(grid))), 0  # scores of known labels, and of how many

    def blocks(self, documents: int) -> list[np.ndarray]:
        """Return the labels that are fitted together; those that take the setting of the others come last."""
        most = labels_at_once(self._numbers_a_label, documents)
        if len(self.known) <= most:
            return [np.arange(len(self.known))]
        parts = np.flatnonzero(self.known), np.flatnonzero(~self.known)
        return [part[begin : begin + most] for part in parts for begin in range(0, len(part), most)]

    def keep(self, columns: np.ndarray, fits: GridFits, f1: np.ndarray, log_likelihood: np.ndarray) -> None:
        """Choose for a block of labels, whose scores on validation are [S, C]."""
        known = self.known[columns]
        others = self._total / self._summed if self._summed and not known.any() else None
        best = best_settings(f1, log_likelihood, known, others)
        self.settings[columns] = best
        self.weight[:, columns], self.bias[:, columns] = fits.pick(best)
        self.f1[columns] = np.where(known, f1[best, np.arange(len(best))], np.nan)
        self._total += _comparable(f1, log_likelihood)[:, :, known].sum(2)
        self._summed += int(known.sum())


def best_settings(
    f1: np.ndarray, log_likelihood: np.ndarray, known: np.ndarray, others: np.ndarray | None = None
) -> np.ndarray:
    """Choose the setting that each label keeps, [L].

    Args:
        f1, log_likelihood: [S, L] on validation, NaN where a setting must not be kept.
        known: [L], whether training and validation have documents of the label.
        others: [2, S], the mean of both over labels that are known, where none of these is.
    """
    usable = ~np.isnan(f1)
    if not usable.any(0).all():
        label = int(usable.any(0).argmin())
        raise InputError(
            f"every fit of label {label} overflowed; scale the features down or give smaller learning_rates"
        )
    scores = _comparable(f1, log_likelihood)  # [2, S, L]
    if others is not None:
        scores = np.where(known, scores, others[:, :, None])
    elif known.any():
        scores = np.where(known, scores, scores[:, :, known].mean(2, keepdims=True))
    f1, log_likelihood = scores
    f1[~usable] = -1
    ties = f1 == f1.max(0)
    # nan_to_num makes -inf finite: a tie must win over what is none, even with a likelihood of 0.
    best: np.ndarray = np.where(ties, np.nan_to_num(log_likelihood), -np.inf).argmax(0)  # the first of equals
    return best


def _comparable(f1: np.ndarray, log_likelihood: np.ndarray) -> np.ndarray:
    """Stack both scores, [2, S, L]; the worst value where a setting must not be kept."""
    return np.where(np.isnan(f1), [[[0.0]], [[-np.inf]]], np.stack([f1, log_likelihood]))


def labels_at_once(weights_a_label: int, documents: int) -> int:
    """Return how many labels are fitted together."""
    return max(1, min(WEIGHTS_AT_ONCE // weights_a_label, TARGETS_AT_ONCE // documents))


def probe_device(device: str | torch.device) -> torch.device:
    """Return where probes are fitted."""
    chosen = choose_device(str(device))
    # Apple's GPU has no float64, in which the validation scores are added up.
    return torch.device("cpu") if chosen.type == "mps" else chosen


@as_input_error()
def read_features(name: str, features: Features, device: torch.device) -> Tensor:
    """Read features [n, d] to the device, float64 where they were, else float32."""
    if not isinstance(features, Tensor):
        # Shared where that can be: features may be larger than memory, and mapped. Tensors over memory that may not
        # be written to are not supported.
        array = np.asarray(features)
        features = torch.from_numpy(array if array.flags.writeable else array.copy())
    tensor = features.detach()
    check_matrix(name, tensor, dims="[documents, features]")
    tensor = tensor.to(device, working_dtype(tensor))
    if not bool(tensor.sum().isfinite()):  # to look at each makes a matrix of the same shape
        check_finite(name, tensor)
    return tensor


@as_input_error()
def read_targets(name: str, labels: Labels) -> csr_array:
    """Read 0/1 labels [n, L] into a sparse matrix with a 1 for every entry."""
    if isinstance(labels, Tensor) or not issparse(labels):
        tensor = labels if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels))
        labels = label_matrix(name, tensor, torch.bool).dense().cpu().numpy()
    if 0 in np.shape(labels):
        raise InputError(f"{name} must have documents and labels, got shape {np.shape(labels)}")
    return read_labels(name, labels)


def check_rows(name: str, features: Tensor, labels_name: str, labels: csr_array) -> None:
    """Raise unless there is one row of labels for each document."""
    if features.shape[0] != labels.shape[0]:
        raise InputError(
            f"{name} and {labels_name} must have the same number of rows, "
            f"got shapes {tuple(features.shape)} and {labels.shape}"
        )


def dense_targets(labels: csr_array, columns: np.ndarray, device: torch.device) -> Tensor:
    """Return some labels as bool [n, C] on the device."""
    chosen = labels.astype(bool)[:, columns] if len(columns) < labels.shape[1] else labels.astype(bool)
    return torch.from_numpy(chosen.toarray()).to(device)
