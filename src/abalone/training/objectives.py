"""Objectives: a batch in, a loss out, with queue, momentum encoder, prototypes and heads as the loss needs them."""

from dataclasses import replace

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from abalone.config import Config
from abalone.distributed import ALONE, Ranks
from abalone.encoder.feed import Batch
from abalone.encoder.heads import LabelAttention, ProjectionHead, Prototypes
from abalone.encoder.momentum import MomentumEncoder
from abalone.encoder.packed import Packed
from abalone.encoder.queue import MemoryQueue
from abalone.encoder.text_encoder import TextEncoder
from abalone.errors import InputError
from abalone.losses import loss_spec, make_loss
from abalone.losses.pairs import DENSE_ENTRIES

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
            MomentumEncoder(followed, config.momentum)
            if self.spec.momentum_encoder and (followed := self.followed) is not None
            else None
        )

    def start_prototypes_from(self, features: Tensor) -> None:
        """Take the projected features [L, h] of the label names as first prototypes, if the loss has prototypes."""
        if self.prototypes is not None and self.projection is not None:
            with torch.no_grad():
                self.prototypes = Prototypes.from_embeddings(self.projection(features))

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss of one batch, the whole of it on every rank; the queue stays as it is until `enqueue`."""
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

    def keys(self, batch: Batch) -> Tensor:
        """Return this process's part of the batch in the momentum encoder's space, as the queue remembers it."""
        assert self.slow is not None
        keys: Tensor = self.slow(replace(batch.documents))  # a copy: what one stream works out, another does not await
        return keys

    def enqueue(self, keys: Tensor, batch: Batch) -> None:
        """Put the batch into the queue; before its loss was computed, its documents would be their own positives."""
        if self.queue is not None:
            self.queue.enqueue(self.ranks.gather(keys, len(batch)), batch.labels)

    @property
    def followed(self) -> nn.Module | None:
        """Return what the momentum encoder follows: encoder and projection head."""
        return None if self.projection is None else _Projected(self.encoder, self.projection)

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


class _Projected(nn.Module):
    """Encoder and projection head as one module, for the momentum encoder."""

    def __init__(self, encoder: TextEncoder, projection: ProjectionHead) -> None:
        super().__init__()
        self.encoder, self.projection = encoder, projection

    def forward(self, documents: Packed) -> Tensor:
        projected: Tensor = self.projection(self.encoder(documents))
        return projected
