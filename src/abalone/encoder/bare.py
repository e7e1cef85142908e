"""The encoder of a model folder for answering alone, without `transformers`, which takes seconds to import.

`packed_states` computes the BERT family by itself: of `transformers` it needs the modules that hold the weights, under
the same names. Here are these modules, and as much of a tokenizer as reads texts. Whatever is not exactly as expected,
another architecture or a damaged file, is left to `load_encoder`, which can read more and says what is wrong.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from abalone.config import Pooling
from abalone.encoder.text_encoder import TextEncoder
from abalone.files.schema import NUMBER, misfit

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Model types with BERT's layout, and what stands before the encoder's weights in a classifier.
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
    "pad_token_id": int,
}
ACTIVATION = "gelu"  # others are taken from `transformers`
WORDS = "embeddings.word_embeddings.weight"


class BareEncoder(nn.Module):
    """The modules of an encoder with BERT's layout, to be read by `packed_states`; it has no forward pass of its own.

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
                # RoBERTa counts positions from the padding token's number on.
                "position_embeddings": table(
                    config.max_position_embeddings, None if config.model_type == "bert" else pad
                ),
                "token_type_embeddings": table(config.type_vocab_size),
                "LayerNorm": norm(),
            }
        )
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(layer() for _ in range(config.num_hidden_layers))})


class BareTokenizer:
    """As much of a tokenizer of `transformers` as `PlainTokenizer` and `window` ask for.

    Args:
        backend: without truncation and padding.
        model_max_length: the most tokens of a text.
        split_special_tokens: whether a special token that stands in a text is read as its letters.
    """

    is_fast = True

    def __init__(self, backend: "Tokenizer", model_max_length: int, split_special_tokens: bool) -> None:
        self.backend_tokenizer, self.model_max_length = backend, model_max_length
        self.split_special_tokens = split_special_tokens
        backend.encode_special_tokens = split_special_tokens

    def __call__(self, text: str, *, verbose: bool = True) -> dict[str, list[int]]:
        """Ids with special tokens around them."""
        return {"input_ids": self.backend_tokenizer.encode(text).ids}


def load_bare(folder: Path, pooling: Pooling) -> "tuple[TextEncoder, PreTrainedTokenizerBase] | None":
    """The encoder and the tokenizer in a model folder; `None` where `load_encoder` has to read them.

    Args:
        folder: as `save` has written it: its tokenizer.json is the very tokenizer that the model was trained with.
        pooling: of the encoder.
    """
    try:
        config, settings = (
            json.loads((folder / name).read_text(encoding="utf-8")) for name in ("config.json", "tokenizer_config.json")
        )
        tensors = load_file(folder / "model.safetensors")
    except (OSError, ValueError, RecursionError, SafetensorError):
        return None
    model = _encoder(config, tensors)
    if model is None or misfit(settings, {"model_max_length": NUMBER, "split_special_tokens?": bool}):
        return None
    backend = _backend(folder / "tokenizer.json")
    if backend is None or max(backend.get_vocab().values(), default=0) >= model.config.vocab_size:
        return None
    tokenizer = BareTokenizer(backend, int(settings["model_max_length"]), settings.get("split_special_tokens", False))
    encoder = TextEncoder(cast("PreTrainedModel", model.float()), pooling)
    return encoder, cast("PreTrainedTokenizerBase", tokenizer)  # to those who answer it is one


def _encoder(config: Any, tensors: Mapping[str, Tensor]) -> BareEncoder | None:
    """The modules with their weights, if the architecture is known and the weights are all there."""
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
        model = BareEncoder(SimpleNamespace(**config))
        model.load_state_dict(own, assign=True)
    except (RuntimeError, AssertionError):  # names or shapes differ
        return None
    return model.requires_grad_(False)


def _backend(file: Path) -> "Tokenizer | None":
    from tokenizers import Tokenizer

    try:
        backend = Tokenizer.from_file(str(file))
    except Exception:  # `tokenizers` raises nothing more special for a file that it cannot read
        return None
    backend.no_truncation()
    backend.no_padding()
    return backend
