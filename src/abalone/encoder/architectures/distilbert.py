"""DistilBERT, which has BERT's arithmetic under names of its own."""

from abalone.encoder.architectures.adapter import Adapter, Embeddings, Layer, Settings
from abalone.encoder.architectures.post_norm import PostNormLayer


class DistilBertAdapter(Adapter):
    """DistilBERT: no token types, and no dropout between attention and its norm."""

    classes = ("DistilBertModel",)

    def settings(self) -> Settings:
        """Return what the configuration says."""
        config = self.model.config
        return Settings(config.n_heads, config.activation, config.dropout, config.attention_dropout)

    def embeddings(self) -> Embeddings:
        """Return the modules that make states from ids."""
        parts = self.model.embeddings
        return Embeddings(parts.word_embeddings, parts.position_embeddings, None, parts.LayerNorm)

    def layers(self) -> list[Layer]:
        """Return the layers, from the first to the last."""
        return [
            PostNormLayer(
                projections=(layer.attention.q_lin, layer.attention.k_lin, layer.attention.v_lin),
                output=layer.attention.out_lin,
                up=layer.ffn.lin1,
                down=layer.ffn.lin2,
                attention_norm=layer.sa_layer_norm,
                norm=layer.output_layer_norm,
                attention_output_dropout=False,
            )
            for layer in self.model.transformer.layer
        ]
