"""Contrastive pre-training without our kernels: the opponents of our step.

`PlainPretraining` is in the style of published research code: rectangles padded to the full length, eager attention, a
gradient scaler, the momentum encoder updated parameter by parameter, the loss read at every step. `TunedPretraining` is
the same step as a good engineer writes it with what PyTorch has: bf16, SDPA, rectangles as long as their longest
document, `torch.compile`, a fused AdamW, the momentum encoder updated in one call. In both, L_MSC is written out with
dense matrices, once over all references.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abalone.encoder.heads import ProjectionHead

TEMPERATURE, BETA, MOMENTUM, CLIP = 0.1, 0.1, 0.999, 1.0


class PlainPretraining:
    """Query and key encoder, projection head, prototypes, queue, AdamW.

    Args:
        model: of `transformers`, with `attn_implementation="eager"`.
        projection, prototypes: to start from; copied.
        queue_size: rows of the queue.
        precision: of autocast; float32 is none.
    """

    fused = False  # whether AdamW updates all weights in one kernel

    def __init__(
        self,
        model: nn.Module,
        projection: ProjectionHead,
        prototypes: Tensor,
        queue_size: int,
        precision: torch.dtype = torch.float16,
        learning_rate: float = 5e-5,
    ) -> None:
        self.query = nn.ModuleList([model, copy.deepcopy(projection)])
        self.key = copy.deepcopy(self.query).requires_grad_(False).eval()
        self.prototypes = nn.Parameter(prototypes.detach().clone())
        self.device, self.precision = prototypes.device, precision
        self.queue = torch.zeros(queue_size, prototypes.shape[1], device=self.device)
        self.queue_labels = torch.zeros(queue_size, len(prototypes), device=self.device)
        self.pointer, self.filled = 0, 0
        decayed = [p for p in (*self.query.parameters(), self.prototypes) if p.dim() > 1]
        spared = [p for p in self.query.parameters() if p.dim() == 1]
        self.parameters = decayed + spared
        groups: list[dict[str, Any]] = [{"params": decayed}, {"params": spared, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(groups, lr=learning_rate, weight_decay=0.01, fused=self.fused)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=precision is torch.float16)

    def step(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> float:
        """Train on one batch, ids and mask [B, T], labels [B, L], and return the loss."""
        input_ids, attention_mask = input_ids.to(self.device), attention_mask.to(self.device)
        labels = labels.to(self.device).float()
        with torch.autocast(self.device.type, self.precision, enabled=self.precision is not torch.float32):
            embeddings = self._embed(self.query, input_ids, attention_mask)
            with torch.no_grad():
                keys = self._embed(self.key, input_ids, attention_mask)
        loss = msc(
            embeddings.float(), labels, self.queue[: self.filled], self.queue_labels[: self.filled], self.prototypes
        )
        self.optimiser.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimiser)
        torch.nn.utils.clip_grad_norm_(self.parameters, CLIP)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        with torch.no_grad():
            for slow, fast in zip(self.key.parameters(), self.query.parameters(), strict=True):
                slow.data = slow.data * MOMENTUM + fast.data * (1 - MOMENTUM)
            for key, label in zip(keys.float(), labels, strict=True):
                self.queue[self.pointer], self.queue_labels[self.pointer] = key, label
                self.pointer = (self.pointer + 1) % len(self.queue)
                self.filled = min(self.filled + 1, len(self.queue))
        return loss.item()

    def _embed(self, encoder: nn.ModuleList, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states = encoder[0](input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        projected: Tensor = encoder[1](states[:, 0])
        return projected


class TunedPretraining(PlainPretraining):
    """The same step with what PyTorch has for speed; the model has `attn_implementation="sdpa"`."""

    fused = True

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        if self.device.type == "cuda":  # on a CPU it gains little, and takes minutes
            torch._dynamo.config.recompile_limit = 64  # one for each length, with and without a gradient
            for encoder in (self.query, self.key):
                encoder[0] = torch.compile(encoder[0])  # type: ignore[assignment]

    def step(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Tensor:  # type: ignore[override]
        """Train on one batch without synchronising with the device, and return the loss."""
        input_ids, attention_mask, labels = (
            given.to(self.device, non_blocking=True) for given in (input_ids, attention_mask, labels)
        )
        labels = labels.float()
        with torch.autocast(self.device.type, self.precision, enabled=self.precision is not torch.float32):
            embeddings = self._embed(self.query, input_ids, attention_mask)
            with torch.no_grad():
                keys = self._embed(self.key, input_ids, attention_mask)
        loss = msc(
            embeddings.float(), labels, self.queue[: self.filled], self.queue_labels[: self.filled], self.prototypes
        )
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, CLIP, foreach=True)
        self.optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.key.parameters()), list(self.query.parameters()), 1 - MOMENTUM)
            rows = torch.arange(self.pointer, self.pointer + len(keys), device=self.device) % len(self.queue)
            self.queue[rows], self.queue_labels[rows] = keys.float(), labels
        self.pointer = (self.pointer + len(keys)) % len(self.queue)
        self.filled = min(self.filled + len(keys), len(self.queue))
        return loss.detach()


def msc(embeddings: Tensor, labels: Tensor, queue: Tensor, queue_labels: Tensor, prototypes: Tensor) -> Tensor:
    """Compute L_MSC over batch, queue and prototypes, as the paper writes it."""
    documents = len(embeddings) + len(queue)
    references = F.normalize(torch.cat([embeddings, queue, prototypes]), dim=1)
    logits = F.normalize(embeddings, dim=1) @ references.T / TEMPERATURE  # [B, B+K+L]
    itself = torch.eye(*logits.shape, dtype=torch.bool, device=logits.device)
    all_labels = torch.cat([labels, queue_labels])  # [B+K, L]
    union = labels.sum(1, keepdim=True) + all_labels.sum(1) - labels @ all_labels.T
    closeness = (1 / union.clamp(min=1)).masked_fill(itself[:, :documents], 0)  # f, [B, B+K]
    available = 1 + closeness @ all_labels  # N, [B, L]
    share = labels / (labels.sum(1, keepdim=True).clamp(min=1) * available)  # [B, L]
    attraction = torch.cat([closeness * (share @ all_labels.T), share], dim=1)
    repulsion = torch.ones_like(logits)
    repulsion[:, :documents] = BETA
    total = torch.logsumexp((logits + repulsion.log()).masked_fill(itself, -torch.inf), dim=1, keepdim=True)
    return -(attraction * (logits - total)).sum() / len(embeddings)


def rectangle(documents: Sequence[np.ndarray], length: int, pad_id: int) -> tuple[Tensor, Tensor]:
    """Return token ids and mask, [documents, length]."""
    ids = torch.full((len(documents), length), pad_id)
    mask = torch.zeros(len(documents), length, dtype=torch.long)
    for row, document in enumerate(documents):
        ids[row, : len(document)] = torch.from_numpy(document)
        mask[row, : len(document)] = 1
    return ids, mask
