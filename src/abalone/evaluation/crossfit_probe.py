"""Linear probes without a validation split: their setting is chosen on out-of-fold logits.

Fold by fold the probes are fitted under every setting and score the documents they have not seen. All folds together
choose the setting, which is then fitted on all documents.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from abalone.errors import InputError, as_input_error
from abalone.evaluation.calibration import PlattScaling
from abalone.evaluation.gridfits import SCORED_AT_ONCE, GridFits, Setting, shuffled_batches
from abalone.evaluation.matrices import Labels as ReadableLabels
from abalone.evaluation.matrices import read_labels
from abalone.evaluation.metrics import ranking_scores
from abalone.evaluation.probe import (
    Features,
    Labels,
    check_rows,
    dense_targets,
    labels_at_once,
    probe_device,
    read_features,
    read_targets,
)
from abalone.losses.checks import check_columns

# Out of fold, MiniLM as it is published, 96 tokens, mean pooling, length 1; decided on one half of the documents and
# scored on the other, three splits. Macro-F1 alone / mixed 4 : 6 with tf-idf + SVM, on Reuters (5 folds; tf-idf +
# SVM alone 58.7) and on 12,000 arXiv abstracts (3 folds; 44.2), by learning rate at a weight decay of 1:
#     0.003: 52.7 / 59.0 and 42.4 / 46.7 · 0.01: 55.2 / 58.5 and 42.0 / 46.3 · 0.03: 55.9 / 60.0 and 40.8 / 45.2
# 0.1 (Reuters) and 0.001 (arXiv) are no better beyond noise, nor is a weight decay of 0.3 or less.
# The choice, on the deciding half, from grids of five and four settings around these: one setting for all labels by
# average precision 55.9 / 59.6 and 42.5 / 46.7, by likelihood 55.2 / 58.5 and 42.0 / 46.3; one a label by average
# precision 54.8 / 59.4 and 42.3 / 45.8, by likelihood 55.7 / 59.0 and 42.1 / 46.6.
# Binary cross-entropy on the same features, the best of seven settings in hindsight: 55.0 / 58.7 and 42.5 / 46.7.
SETTINGS = (Setting(0.003, 1.0), Setting(0.01, 1.0), Setting(0.03, 1.0))
LENGTH = 8.0  # the mean length of centred features for which the settings were chosen
# What a label without a training document scores: a hinge's plain "no", whatever the document.
UNKNOWN = -1.0


@dataclass(frozen=True)
class CrossFitProbe:
    """Linear SVMs (squared hinge) on frozen features, trained by AdamW from zero, learning rate falling to 0.

    Features are centred and scaled to a mean length of 8, so that a setting means the same on every encoder; weights
    are returned for the features as they are. Documents are best brought to length 1 beforehand: at equal
    settings the probes alone gain 1.6 to 2.5 points of macro-F1 out of fold on Reuters, and 0.2 to 0.6 on arXiv
    abstracts. Decision values become logits by the default `PlattScaling`, which is affine and so is multiplied into
    the weights.

    Many labels are fitted in blocks, to bound the memory; every label sees the same batches whichever it is fitted
    together with.

    Args:
        settings: S learning rates with their weight decays, to choose from.
        epochs, batch_size: of each fit; batches run on across the end of an epoch, so that all are full.
        least_steps: of each fit, so that a few documents are fitted too.
        seed: of the batches.
        device: a torch device, or "auto" for CUDA where there is any.

    Example:
        >>> X = torch.randn(300, 8, generator=torch.Generator().manual_seed(0)).numpy()
        >>> Y = X[:, :3] > 0
        >>> fold, probe = np.arange(300) % 3, CrossFitProbe(device="cpu")
        >>> heldout = np.empty((len(probe.settings), 300, 3), np.float16)
        >>> for k in range(3):
        ...     heldout[:, fold == k] = probe.heldout_logits(X[fold != k], Y[fold != k], X[fold == k])
        >>> weight, bias = probe.fit_chosen(X, Y, choose_setting(heldout, Y))
        >>> tuple(weight.shape), tuple(bias.shape)
        ((1, 3, 8), (1, 3))
    """

    settings: Sequence[Setting] = SETTINGS
    epochs: int = 30
    batch_size: int = 256
    least_steps: int = 500
    seed: int = 0
    device: str | torch.device = "auto"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.settings:
            raise InputError("settings must hold at least one learning rate with its weight decay")
        for learning_rate, weight_decay in self.settings:
            if not (0 < learning_rate < np.inf and 0 <= weight_decay < np.inf):
                raise InputError(
                    "settings must be learning rates above 0 with weight decays of at least 0, "
                    f"got {(learning_rate, weight_decay)}"
                )

    def heldout_logits(self, X: Features, Y: Labels, X_heldout: Features, chosen: int | None = None) -> np.ndarray:
        """Fit on one fold's training documents and return the logits of documents it has not seen.

        Args:
            X: [n, d].
            Y: 0/1, [n, L].
            X_heldout: [m, d].
            chosen: fit and score this setting alone. Where S·m·L numbers are too many, ask for a sample of each
                fold's held-out documents, choose by them, and ask again for all documents with what was chosen.

        Returns:
            Float16, [S, m, L], or [1, m, L] if a setting is `chosen`. A label without a training document has the
            same logit throughout; NaN stands for a fit that overflowed.
        """
        device = probe_device(self.device)
        features, labels = self._read(X, Y, device)
        heldout = read_features("X_heldout", X_heldout, device).to(features.dtype)
        with as_input_error():
            check_columns("X_heldout", heldout, features.shape[1], "X")
        settings = self.settings if chosen is None else [self.settings[chosen]]
        logits = np.empty((len(settings), len(heldout), labels.shape[1]), np.float16)
        for columns, weight, bias in self._fitted(features, labels, settings):
            for setting, (w, b) in enumerate(zip(weight, bias, strict=True)):
                _write_logits(logits[setting], heldout, columns, w, b)
        return logits

    def fit_chosen(self, X: Features, Y: Labels, chosen: int) -> tuple[Tensor, Tensor]:
        """Fit the chosen setting on all documents, X [n, d] with 0/1 labels Y [n, L].

        Returns:
            Weights [1, L, d] and biases [1, L] on the CPU, as `LinearHead` takes them.
        """
        features, labels = self._read(X, Y, probe_device(self.device))
        weight = torch.empty(1, labels.shape[1], features.shape[1], dtype=features.dtype)
        bias = torch.empty(1, labels.shape[1], dtype=features.dtype)
        for columns, w, b in self._fitted(features, labels, [self.settings[chosen]]):
            weight[:, columns], bias[:, columns] = w.cpu(), b.cpu()
        finite = (weight.isfinite().all(2) & bias.isfinite())[0]  # [L]
        if not bool(finite.all()):
            label = int(finite.int().argmin())
            raise InputError(f"the probe of label {label} overflowed; scale the features down or lower learning rates")
        return weight, bias

    def _read(self, X: Features, Y: Labels, device: torch.device) -> tuple[Tensor, csr_array]:
        features, labels = read_features("X", X, device), read_targets("Y", Y)
        check_rows("X", features, "Y", labels)
        return features, labels

    def _fitted(
        self, features: Tensor, labels: csr_array, settings: Sequence[Setting]
    ) -> Iterator[tuple[np.ndarray, Tensor, Tensor]]:
        """Yield some labels [C] with weights [S, C, d] and biases [S, C] from features as they are to logits."""
        size = min(self.batch_size, len(features))
        steps = max(self.epochs * len(features) // size, self.least_steps)
        centre = features.mean(0)  # [d]
        inputs = features - centre
        scale = LENGTH / inputs.norm(dim=1).mean().clamp(min=1e-20)  # documents may be all alike
        inputs *= scale
        frequencies = np.asarray(labels.sum(axis=0)).ravel()
        odds = np.log((frequencies + 0.5) / (len(features) - frequencies + 0.5))  # [L]
        offset, at_one = (PlattScaling().logits(np.full((1, len(odds)), value), odds)[0] for value in (0.0, 1.0))
        slope, offset = (torch.from_numpy(each).to(features) for each in (at_one - offset, offset))
        most = labels_at_once(len(settings) * inputs.shape[1], len(inputs))
        for begin in range(0, labels.shape[1], most):
            block = np.arange(begin, min(begin + most, labels.shape[1]))
            start = torch.zeros(1, len(block), inputs.shape[1])
            targets = dense_targets(labels, block, inputs.device)
            fits = GridFits(inputs, targets, settings, start, size, steps, "squared_hinge")
            generator = torch.Generator().manual_seed(self.seed)
            fits.train(shuffled_batches(len(inputs), size, steps, generator, inputs.device))
            unknown = ~targets.any(0)  # [C]
            weight = fits.weight.value[0].masked_fill(unknown[:, None], 0.0)  # [S, C, d]
            bias = fits.bias.value[0, ..., 0].masked_fill(unknown, UNKNOWN)  # [S, C]
            weight = weight * scale
            bias = bias - weight @ centre
            yield block, weight * slope[block, None], bias * slope[block] + offset[block]


def choose_setting(heldout: np.ndarray, Y: ReadableLabels) -> int:
    """Choose one setting for all labels, by mean average precision out of fold; the first of equals.

    Args:
        heldout: [S, n, L], what `heldout_logits` gave for the documents of all folds, or for a sample of them. A
            setting with a fit that overflowed is not chosen.
        Y: 0/1, [n, L]. Labels without a document are not scored.
    """
    labels = read_labels("Y", Y)
    if heldout.ndim != 3 or heldout.shape[1:] != labels.shape:
        raise InputError(f"heldout must be [settings, {labels.shape[0]}, {labels.shape[1]}], got {heldout.shape}")
    scores = [
        ranking_scores(labels, logits)["mean_average_precision"] if np.isfinite(logits).all() else -1.0
        for logits in heldout
    ]
    if max(scores) < 0:
        raise InputError("the probes overflowed with every setting; scale the features down or lower learning rates")
    return int(np.argmax(scores))


def _write_logits(into: np.ndarray, features: Tensor, columns: np.ndarray, weight: Tensor, bias: Tensor) -> None:
    """Write the logits under weights [C, d] and biases [C] into columns of [m, L]."""
    finite = weight.isfinite().all(1) & bias.isfinite()  # [C]
    largest = float(np.finfo(np.float16).max)
    step = max(1, SCORED_AT_ONCE // len(bias))
    for begin in range(0, len(features), step):
        logits = torch.addmm(bias, features[begin : begin + step], weight.T).clamp_(-largest, largest)
        into[begin : begin + step, columns] = logits.masked_fill_(~finite, torch.nan).half().cpu().numpy()
