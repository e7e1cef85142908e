"""A Hugging Face encoder with pooling: packed tokens in, one vector a document out."""

import copy
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from abalone.config import Pooling
from abalone.encoder.architectures import adapter_of
from abalone.encoder.architectures.adapter import packed_states
from abalone.encoder.fast.weights import LowPrecisionWeights
from abalone.encoder.packed import Packed
from abalone.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SAME = 1e-5  # of the largest state: another function is off by more, also with weights that are small and random


class TextEncoder(nn.Module):
    """A transformer and a way to pool its token states.

    Args:
        model: any `AutoModel` that returns `last_hidden_state`.
        pooling: `cls`, the state of the first token; `mean`, over the document's tokens; `normalized_mean`, the mean
            scaled to length 1 (of each piece of a long document).
    """

    def __init__(self, model: "PreTrainedModel", pooling: Pooling = "cls") -> None:
        super().__init__()
        self.model = model
        self.pooling = pooling
        self.copies: LowPrecisionWeights | None = None  # while training in low precision on a GPU

    @property
    def hidden_size(self) -> int:
        """h, the width of an embedding."""
        return int(self.model.config.hidden_size)

    @property
    def depth(self) -> int:
        """The number of its layers; 1 where it is not built of them."""
        return max((len(m) for m in self.model.modules() if isinstance(m, nn.ModuleList)), default=1)

    @property
    def packable(self) -> bool:
        """Whether the model computes on packed tokens; others pad every batch."""
        return adapter_of(self.model) is not None

    def keep_copies(self, dtype: torch.dtype | None) -> None:
        """Keep the weights of a packable model in this precision too, ready for many steps; None ends it."""
        adapter = adapter_of(self.model)
        self.copies = None if dtype is None or adapter is None else LowPrecisionWeights(adapter, dtype)

    def forward(self, batch: Packed) -> Tensor:
        """Return one vector a document, [documents, h]."""
        adapter = adapter_of(self.model)
        if self.pooling == "cls" and adapter is not None:
            return _average_pieces(packed_states(adapter, batch, firsts_only=True, copies=self.copies), batch)
        return self.pool(self.token_states(batch), batch)

    def token_states(self, batch: Packed) -> Tensor:
        """Return the state of every token, [N, h]."""
        adapter = adapter_of(self.model)
        if adapter is not None:
            return packed_states(adapter, batch, copies=self.copies)
        name = "inputs_embeds" if batch.tokens.is_floating_point() else "input_ids"
        inputs = {name: batch.pad(batch.tokens), "attention_mask": batch.mask.long()}
        return batch.unpad(self.model(**inputs).last_hidden_state)

    def pool(self, states: Tensor, batch: Packed) -> Tensor:
        """Pool token states, [N, h] → [documents, h]."""
        if self.pooling == "cls":
            return _average_pieces(states.index_select(0, batch.firsts), batch)
        # In low precision a long document's sum would round.
        total = batch.pad(states).sum(1, dtype=torch.promote_types(states.dtype, torch.float32))
        mean = total / batch.lengths.unsqueeze(1)
        # Before pieces are averaged: so a document's logits stay the mean of its pieces' logits, as in an ONNX file.
        return _average_pieces(normalize(mean, dim=1) if self.pooling == "normalized_mean" else mean, batch)


def _average_pieces(pooled: Tensor, batch: Packed) -> Tensor:
    """Average the pieces of each document, [pieces, h] → [documents, h]."""
    if batch.owner is None:
        return pooled
    total = pooled.new_zeros(batch.documents, pooled.shape[1]).index_add(0, batch.owner, pooled)
    return total / torch.bincount(batch.owner, minlength=batch.documents).unsqueeze(1)


def split_layers(encoder: TextEncoder, frozen: int) -> tuple[TextEncoder, TextEncoder]:
    """Cut an encoder after its first `frozen` layers: the lower part never trains, so its output is computed once.

    The upper part takes the lower part's token states in place of ids, and of it the layers alone train. What else
    they need, such as a table of relative positions, the lower layers need too, and they have been computed with it.
    `join_layers` puts the parts together again.
    """
    layers = _layers(encoder.model)
    if not 0 < frozen < len(layers):
        raise InputError(f"freeze_layers must leave at least one layer to train, got {frozen} of {len(layers)}")
    lower, upper = (copy.deepcopy(encoder).eval().requires_grad_(False) for _ in range(2))
    whole = _tried(lower)
    del _layers(lower.model)[frozen:]
    del _layers(upper.model)[:frozen]
    upper.model.embeddings = _Passed()
    same = False
    with suppress(RuntimeError):  # of shapes that do not fit
        same = bool((_tried(lower, upper) - whole).abs().max() <= SAME * whole.abs().max())
    if not same:
        raise InputError(
            f"freeze_layers cannot cut {type(encoder.model).__name__}, which is not a plain stack of layers: "
            "set freeze_layers to 0, or choose another encoder"
        )
    _layers(upper.model).requires_grad_(True)
    return lower, upper


@torch.no_grad()
def _tried(*parts: TextEncoder) -> Tensor:
    """Run the parts, one after the other, on a few tokens; [N, h]."""
    device = next(parts[0].parameters()).device
    ids = torch.arange(14, device=device) % 5  # which any vocabulary has
    batch = Packed(ids, torch.tensor([0, 9, 14], device=device).int(), 9, 2)
    for part in parts:
        batch = replace(batch, tokens=part.token_states(batch))
    return batch.tokens


def join_layers(lower: TextEncoder, upper: TextEncoder) -> TextEncoder:
    """Join the parts to a whole encoder, with the upper part as it is now."""
    whole = copy.deepcopy(lower).requires_grad_(True)
    _layers(whole.model).extend(copy.deepcopy(_layers(upper.model)))
    return whole


class _Passed(nn.Module):
    """Stands where the embeddings were, and hands on the states it is given."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return next(x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.is_floating_point())


def _layers(model: nn.Module) -> nn.ModuleList:
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    if not stacks or not hasattr(model, "embeddings"):
        raise InputError(f"freeze_layers does not know where the layers of {type(model).__name__} are")
    return stacks[0]
