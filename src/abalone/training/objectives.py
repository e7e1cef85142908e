"""Objectives: a batch in, a loss out, with queue, momentum encoder, prototypes and heads as the loss needs them."""

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from abalone.config import Config
from abalone.distributed import ALONE, Ranks
from abalone.encoder.fast.graph import Aside
from abalone.encoder.fast.weights import RowGradients
from abalone.encoder.feed import Batch
from abalone.encoder.heads import LabelAttention, ProjectionHead, Prototypes
from abalone.encoder.momentum import MomentumEncoder
from abalone.encoder.packed import Packed
from abalone.encoder.queue import MemoryQueue
from abalone.encoder.text_encoder import TextEncoder
from abalone.errors import InputError
from abalone.losses import loss_spec, make_loss
from abalone.losses.pairs import DENSE_ENTRIES

if TYPE_CHECKING:
    from abalone.encoder.fast.optimizer import MatrixUpdate

SLOW_STATE = ("slow.", "queue.")  # what only further training needs


class Objective(nn.Module):
    """An encoder under a loss of any name: contrastive, pointwise, or the sum of both.

    The parts a loss does not need are absent, as the registry says.

    Args:
        encoder: trained through this.
        num_labels: L.
        name: of the loss, `msc` or `msc+10*bce`.
        config: temperature, queue size and the like.
        ranks: the processes that train it together.
        labels: of the training documents, [n, L]; for losses that weigh labels by how many documents carry them.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        num_labels: int,
        name: str,
        config: Config,
        ranks: Ranks = ALONE,
        labels: csr_array | None = None,
    ) -> None:
        super().__init__()
        self.ranks = ranks
        self.name, self.spec, self.num_labels = name, loss_spec(name), num_labels
        contrastive = self.spec.takes != "logits"
        settings = {key: getattr(config, key) for key in self.spec.settings if hasattr(config, key)}
        if self.spec.counts and labels is not None:
            known = {"counts": np.asarray(labels.sum(axis=0)).ravel(), "documents": labels.shape[0]}
            settings |= {key: value for key, value in known.items() if key in self.spec.settings}
        self.loss = make_loss(name, **settings)
        self.encoder = encoder
        hidden, dim = encoder.hidden_size, config.projection_dim
        self.projection = ProjectionHead(hidden, dim) if self.spec.takes == "embeddings" else None
        self.label_attention = (
            LabelAttention(hidden, num_labels, dim) if self.spec.takes == "label_embeddings" else None
        )
        self.head = nn.Linear(hidden, num_labels) if self.spec.joint or not contrastive else None
        self.prototypes = Prototypes(num_labels, dim) if self.spec.prototypes else None
        self.queue = MemoryQueue(config.queue_size, dim, num_labels) if self.spec.queue else None
        self.slow = (
            MomentumEncoder(_Projected(encoder, self.projection), config.momentum)
            if self.spec.momentum_encoder and self.projection is not None
            else None
        )
        self._keys: Aside[Tensor] | None = None
        self._updates_matrices = False

    def start_prototypes_from(self, features: Tensor) -> None:
        """Take the projected features [L, h] of the label names as first prototypes, if the loss has prototypes."""
        if self.prototypes is not None and self.projection is not None:
            with torch.no_grad():
                self.prototypes = Prototypes.from_embeddings(self.projection(features))

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss of one batch, the whole of it on every rank; the queue stays as it is until `after_batch`."""
        documents = batch.documents
        states = None if self.label_attention is None else self.encoder.token_states(documents)  # [N, h]
        features = self.encoder(documents) if states is None else self.encoder.pool(states, documents)
        features = self.ranks.gather(features, len(batch))  # [B, h]
        given: list[Tensor] = []
        references: dict[str, object] = {}
        if self.label_attention is not None and states is not None:
            looked_at = self.label_attention(documents.pad(states), documents.mask)
            given.append(self.ranks.gather(looked_at, len(batch)))  # [B, L, d]
        elif self.projection is not None:
            given.append(self.projection(features))  # [B, d]
            references = self._references()
        if self.head is not None:
            given.append(self.head(features))  # [B, L]
        value: Tensor = self.loss(*given, batch.labels, **references)
        return value

    def _references(self) -> dict[str, object]:
        references: dict[str, object] = {}
        if self.queue is not None:
            references["queue"] = self.queue.references()
        if self.prototypes is not None:
            references["prototypes"] = self.prototypes()
        return references

    def before_batch(self, batch: Batch) -> None:
        """Compute the keys with the momentum encoder, beside the other one, where that leaves parts of a GPU idle."""
        slow = self.slow
        if slow is not None:
            own = replace(batch.documents)  # what is worked out about a batch is not waited for across streams
            self._keys = Aside(lambda: slow(own))

    def after_batch(self, batch: Batch) -> None:
        """Enqueue this batch's documents; earlier they would have been their own positives."""
        if self.queue is not None and self._keys is not None:
            self.queue.enqueue(self.ranks.gather(self._keys.join(), len(batch)), batch.labels)
            self._keys = None

    def after_backward(self) -> None:
        """Add gradients that came in half precision to those of the parameters, in full precision."""
        if self.encoder.copies is not None:
            self.encoder.copies.hand_over_gradients(matrices=not self._updates_matrices)

    def after_step(self) -> None:
        """Update the momentum encoder and the copies in half precision, after the weights have moved."""
        if self.slow is not None and self.projection is not None:
            copies = self.encoder.copies if self._updates_matrices else None
            done = [] if copies is None else [matrix.parameter for matrix in copies.matrices]
            if copies is not None and copies.row_gradients is not None:
                done += copies.tables
            self.slow.update(_Projected(self.encoder, self.projection), done=done)
        self.refresh_half_weights(matrices=not self._updates_matrices)

    def take_matrix_update(self, adamw: torch.optim.AdamW) -> "MatrixUpdate | None":
        """Return the update of the encoder's matrices, their copies and the momentum encoder's, in place of `adamw`.

        Word and position vectors too, where their rows begin at round places; they are given a place for gradients.
        None where weights are not kept in half precision, Triton is missing, or rows begin at odd places.
        """
        fast = self.encoder.copies
        if fast is None or find_spec("triton") is None or self.encoder.hidden_size % 8:
            return None
        from abalone.encoder.fast.optimizer import MatrixUpdate  # which needs Triton

        self._updates_matrices = True
        trained = all(parameter.requires_grad for parameter in self.encoder.model.parameters())
        if trained and fast.tables and self.encoder.hidden_size % 16 == 0:
            fast.row_gradients = RowGradients.of(fast.tables)
        slow = None if self.slow is None else next(_text_encoders(self.slow)).copies
        return MatrixUpdate(adamw, fast, slow, 0.0 if self.slow is None else self.slow.momentum)

    def keep_half_weights(self, dtype: torch.dtype | None) -> None:
        """Keep the encoders' weights in this precision too, ready for many steps; None ends it."""
        self._updates_matrices = False
        for encoder in _text_encoders(self):
            encoder.keep_copies(dtype)

    def refresh_half_weights(self, *, matrices: bool = True) -> None:
        """Copy the weights to where they are kept in half precision too."""
        for encoder in _text_encoders(self):
            if encoder.copies is not None:
                encoder.copies.refresh(matrices=matrices)

    def repeats_itself(self, documents: int) -> bool:
        """Return whether further batches of so many documents all mean the same work, with no value asked back."""
        if self.queue is not None and not self.queue.full:
            return False
        of_known_size = self.spec.takes != "label_embeddings"  # which finds pairs of documents and labels
        rows = max(documents, 0 if self.queue is None else self.queue.size)
        return of_known_size and rows * self.num_labels <= DENSE_ENTRIES and self.encoder.packable

    def lasting_state(self) -> dict[str, Tensor]:
        """Return the state that a finished model is made from: all but the queue and the momentum encoder."""
        return {name: value for name, value in self.state_dict().items() if not name.startswith(SLOW_STATE)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore a `lasting_state`."""
        missing, unexpected = self.load_state_dict(state, strict=False)
        wrong = [name for name in missing if not name.startswith(SLOW_STATE)] + unexpected
        if wrong:
            raise InputError(f"the checkpoint does not fit this model: {', '.join(wrong[:3])}")


def _text_encoders(module: nn.Module) -> Iterator[TextEncoder]:
    """Yield the text encoders whose weights can be kept in half precision."""
    for part in module.modules():
        if isinstance(part, TextEncoder) and part.packable:
            yield part


class _Projected(nn.Module):
    """Encoder and projection head as one module, for the momentum encoder."""

    def __init__(self, encoder: TextEncoder, projection: ProjectionHead) -> None:
        super().__init__()
        self.encoder, self.projection = encoder, projection

    def forward(self, documents: Packed) -> Tensor:
        projected: Tensor = self.projection(self.encoder(documents))
        return projected
