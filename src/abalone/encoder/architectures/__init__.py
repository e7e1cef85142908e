"""Architectures of `transformers` whose forward pass runs on packed tokens."""

from torch import nn

from abalone.encoder.architectures.adapter import Adapter
from abalone.encoder.architectures.bert import BertAdapter
from abalone.encoder.architectures.distilbert import DistilBertAdapter
from abalone.encoder.architectures.mpnet import MPNetAdapter

ADAPTERS: tuple[type[Adapter], ...] = (BertAdapter, MPNetAdapter, DistilBertAdapter)


def adapter_of(model: nn.Module) -> Adapter | None:
    """Return the adapter of a model; none where its own forward pass, on padded batches, has to be used."""
    if getattr(getattr(model, "config", None), "is_decoder", False):
        return None
    return next((adapter(model) for adapter in ADAPTERS if type(model).__name__ in adapter.classes), None)
