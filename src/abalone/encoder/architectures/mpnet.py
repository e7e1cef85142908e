"""MPNet, which adds a bias by relative position to the scores of attention."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from abalone.encoder.architectures.bert import BertAdapter
from abalone.encoder.architectures.post_norm import PostNormLayer
from abalone.encoder.fast.attention import ROUND
from abalone.encoder.packed import Packed


class MPNetAdapter(BertAdapter):
    """MPNet: BERT's settings under the same names, without token types, and with other names within attention."""

    classes = ("MPNetModel",)

    def _layer(self, layer: Any) -> PostNormLayer:
        attention = layer.attention.attn
        return PostNormLayer(
            projections=(attention.q, attention.k, attention.v),
            output=attention.o,
            up=layer.intermediate.dense,
            down=layer.output.dense,
            attention_norm=layer.attention.LayerNorm,
            norm=layer.output.LayerNorm,
        )

    def position_bias(self, batch: Packed) -> Tensor:
        """Return the bias of each head by relative position, [heads, R, R]."""
        encoder = self.model.encoder
        room = -(-batch.longest // ROUND) * ROUND
        distances = torch.arange(1 - room, room, device=batch.cu_seqlens.device)  # of a key from a query
        bucket = encoder.relative_position_bucket(distances)
        by_distance = F.embedding(bucket, encoder.relative_attention_bias.weight).T  # [heads, 2R − 1]
        return by_distance.unfold(1, room, 1).flip(1)  # query t has the keys at −t, 1 − t …
