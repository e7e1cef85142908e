"""BERT and its descendants with the same layout: RoBERTa, XLM-R and CamemBERT."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from abalone.encoder.architectures.adapter import Adapter, Embeddings, Layer, Settings
from abalone.encoder.architectures.post_norm import PostNormLayer
from abalone.files.schema import NUMBER, misfit

# Model types with this layout, and what stands before the encoder's weights in a classifier.
PREFIXES = {"bert": "bert.", "roberta": "roberta.", "xlm-roberta": "roberta.", "camembert": "roberta."}
CONFIG = {
    "model_type": str,
    "vocab_size": int,
    "hidden_size": int,
    "num_hidden_layers": int,
    "num_attention_heads": int,
    "intermediate_size": int,
    "max_position_embeddings": int,
    "type_vocab_size": int,
    "layer_norm_eps": NUMBER,
    "hidden_dropout_prob": NUMBER,
    "attention_probs_dropout_prob": NUMBER,
    "pad_token_id": int,
}
ACTIVATION = "gelu"  # others are taken from `transformers`
WORDS = "embeddings.word_embeddings.weight"


class BertAdapter(Adapter):
    """BERT's layout, which RoBERTa and its relatives share; they count positions from the padding token's number on."""

    classes: ClassVar[tuple[str, ...]] = (
        "BertSkeleton",
        "BertModel",
        "RobertaModel",
        "XLMRobertaModel",
        "CamembertModel",
    )

    def settings(self) -> Settings:
        """Return what the configuration says."""
        config = self.model.config
        dropouts = config.hidden_dropout_prob, config.attention_probs_dropout_prob
        return Settings(config.num_attention_heads, config.hidden_act, *dropouts)

    def embeddings(self) -> Embeddings:
        """Return the modules that make states from ids."""
        parts = self.model.embeddings
        types = getattr(parts, "token_type_embeddings", None)
        token_type = None if types is None else types.weight[0]
        return Embeddings(parts.word_embeddings, parts.position_embeddings, token_type, parts.LayerNorm)

    def layers(self) -> list[Layer]:
        """Return the layers, from the first to the last."""
        return [self._layer(layer) for layer in self.model.encoder.layer]

    def _layer(self, layer: Any) -> PostNormLayer:
        inner, after = layer.attention.self, layer.attention.output
        return PostNormLayer(
            projections=(inner.query, inner.key, inner.value),
            output=after.dense,
            up=layer.intermediate.dense,
            down=layer.output.dense,
            attention_norm=after.LayerNorm,
            norm=layer.output.LayerNorm,
        )

    @classmethod
    def from_checkpoint(cls, config: Any, tensors: Mapping[str, Tensor]) -> "BertSkeleton | None":
        """Build the modules of a saved model without `transformers`, if the weights are all there."""
        if misfit(config, CONFIG) or config["model_type"] not in PREFIXES:
            return None
        if config.get("is_decoder") or config.get("hidden_act") != ACTIVATION:
            return None
        prefix = PREFIXES[config["model_type"]] if WORDS not in tensors else ""
        own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        own = {name: tensor for name, tensor in own.items() if name.startswith(("embeddings.", "encoder."))}
        layers = {name.split(".")[2] for name in own if name.startswith("encoder.layer.")}
        # The sizes are seen to be the file's before anything of these sizes is made.
        words, heads = own.get(WORDS), config["num_attention_heads"]
        if words is None or tuple(words.shape) != (config["vocab_size"], config["hidden_size"]):
            return None
        if len(layers) != config["num_hidden_layers"] or heads < 1 or config["hidden_size"] % heads:
            return None
        if not all(tensor.is_floating_point() for tensor in own.values()):
            return None
        try:
            model = BertSkeleton(SimpleNamespace(**config))
            model.load_state_dict(own, assign=True)
        except (RuntimeError, AssertionError):  # names or shapes differ
            return None
        return model.requires_grad_(False)


class BertSkeleton(nn.Module):
    """The modules of `BertModel`, under the same names, without a forward pass: `packed_states` computes with them.

    Args:
        config: with what `CONFIG` lists.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        hidden, inner, pad = config.hidden_size, config.intermediate_size, config.pad_token_id

        def linear(before: int, after: int) -> nn.Linear:
            return nn.Linear(before, after, device="meta")  # no memory: the weights come from the file

        def norm() -> nn.LayerNorm:
            return nn.LayerNorm(hidden, config.layer_norm_eps, device="meta")

        def table(rows: int, padding: int | None = None) -> nn.Embedding:
            # Not by the constructor: to draw random numbers on `meta` it imports all that torch compiles with.
            weight = torch.empty(rows, hidden, device="meta")
            made: nn.Embedding = nn.Embedding.from_pretrained(weight, padding_idx=padding)
            return made

        def closing(before: int) -> nn.ModuleDict:
            return nn.ModuleDict({"dense": linear(before, hidden), "LayerNorm": norm()})

        def layer() -> nn.ModuleDict:
            projections = nn.ModuleDict({name: linear(hidden, hidden) for name in ("query", "key", "value")})
            attention = nn.ModuleDict({"self": projections, "output": closing(hidden)})
            intermediate = nn.ModuleDict({"dense": linear(hidden, inner)})
            return nn.ModuleDict({"attention": attention, "intermediate": intermediate, "output": closing(inner)})

        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": table(config.vocab_size, pad),
                "position_embeddings": table(
                    config.max_position_embeddings, None if config.model_type == "bert" else pad
                ),
                "token_type_embeddings": table(config.type_vocab_size),
                "LayerNorm": norm(),
            }
        )
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(layer() for _ in range(config.num_hidden_layers))})
