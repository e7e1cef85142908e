"""Any Hugging Face encoder as one function: tokens in, one vector a document out."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from abalone.config import Pooling
from abalone.encoder.encoder_files import refuse_beyond_weights, require_readable
from abalone.encoder.layers import packed_states
from abalone.encoder.offline import packaged_encoder
from abalone.encoder.packed import Packed
from abalone.encoder.weights import HalfWeights, is_packable
from abalone.extras import install_hint
from abalone.files.errors import readable

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout")
_OFFSET_POSITIONS = ("roberta", "camembert", "mpnet")  # positions are counted from the padding token's number on
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
        self.halves: HalfWeights | None = None  # while training in half precision on a GPU

    @property
    def hidden_size(self) -> int:
        """h, the width of an embedding."""
        return int(self.model.config.hidden_size)

    @property
    def depth(self) -> int:
        """Its layers; 1 where it is not built of them."""
        return max((len(m) for m in self.model.modules() if isinstance(m, nn.ModuleList)), default=1)

    def forward(self, batch: Packed) -> Tensor:
        """One vector a document, [documents, h]."""
        if self.pooling == "cls" and is_packable(self.model):
            return _average_pieces(packed_states(self.model, batch, firsts_only=True, halves=self.halves), batch)
        return self.pool(self.token_states(batch), batch)

    def token_states(self, batch: Packed) -> Tensor:
        """The state of every token, [N, h]."""
        if is_packable(self.model):
            return packed_states(self.model, batch, halves=self.halves)
        name = "inputs_embeds" if batch.tokens.is_floating_point() else "input_ids"
        inputs = {name: batch.pad(batch.tokens), "attention_mask": batch.mask.long()}
        return batch.unpad(self.model(**inputs).last_hidden_state)

    def pool(self, states: Tensor, batch: Packed) -> Tensor:
        """[N, h] → [documents, h]."""
        if self.pooling == "cls":
            return _average_pieces(states.index_select(0, batch.firsts), batch)
        # In half precision a long document's sum would round.
        total = batch.pad(states).sum(1, dtype=torch.promote_types(states.dtype, torch.float32))
        mean = total / batch.lengths.unsqueeze(1)
        # Before pieces are averaged: so a document's logits stay the mean of its pieces' logits, as in an ONNX file.
        return _average_pieces(normalize(mean, dim=1) if self.pooling == "normalized_mean" else mean, batch)


def _average_pieces(pooled: Tensor, batch: Packed) -> Tensor:
    """[pieces, h] → [documents, h]."""
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
        raise ValueError(f"freeze_layers must leave at least one layer to train, got {frozen} of {len(layers)}")
    lower, upper = (copy.deepcopy(encoder).eval().requires_grad_(False) for _ in range(2))
    whole = _tried(lower)
    del _layers(lower.model)[frozen:]
    del _layers(upper.model)[:frozen]
    upper.model.embeddings = _Passed()
    same = False
    with suppress(RuntimeError):  # of shapes that do not fit
        same = bool((_tried(lower, upper) - whole).abs().max() <= SAME * whole.abs().max())
    if not same:
        raise ValueError(
            f"freeze_layers cannot cut {type(encoder.model).__name__}, which is not a plain stack of layers: "
            "set freeze_layers to 0, or choose another encoder"
        )
    _layers(upper.model).requires_grad_(True)
    return lower, upper


@torch.no_grad()
def _tried(*parts: TextEncoder) -> Tensor:
    """What the parts, one after the other, make of a few tokens, [N, h]."""
    device = next(parts[0].parameters()).device
    ids = torch.arange(14, device=device) % 5  # which any vocabulary has
    batch = Packed(ids, torch.tensor([0, 9, 14], device=device).int(), 9, 2)
    for part in parts:
        batch = replace(batch, tokens=part.token_states(batch))
    return batch.tokens


def join_layers(lower: TextEncoder, upper: TextEncoder) -> TextEncoder:
    """The whole encoder again, with the upper part as it is now."""
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
        raise ValueError(f"freeze_layers does not know where the layers of {type(model).__name__} are")
    return stacks[0]


def load_encoder(
    name: str, pooling: Pooling = "cls", dropout: float = 0.1
) -> "tuple[TextEncoder, PreTrainedTokenizerBase]":
    """An encoder and its tokenizer by hub name or folder.

    Only safetensors weights are read, and no code that comes with a model is run.
    """
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    place = _place(name)
    folder = Path(place) if _is_folder(place) else None
    if folder is not None:
        require_readable(folder)
    with quiet_transformers():
        try:
            if folder is not None:
                refuse_beyond_weights(folder)
            cached = not _hub_answers(place)
            config = AutoConfig.from_pretrained(place, trust_remote_code=False, local_files_only=cached)
            # A model may ask for an attention kernel from the hub, which is code: the choice is not the model's.
            config._attn_implementation = None
            for setting in _DROPOUTS:
                if hasattr(config, setting):
                    setattr(config, setting, dropout)
            model, read = AutoModel.from_pretrained(
                place,
                config=config,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=cached,
                output_loading_info=True,
            )
            tokenizer = AutoTokenizer.from_pretrained(
                place, use_fast=True, trust_remote_code=False, local_files_only=cached
            )
            _refuse_incomplete(model, read["missing_keys"], tokenizer)
        except Exception as error:  # of four libraries, each with many kinds of its own for a file that is wrong
            reason = readable(next(iter(str(error).strip().splitlines()), type(error).__name__))
            raise ValueError(
                f"cannot load the encoder {readable(repr(name))}: {reason}\n  {_advice(place, error)}"
            ) from error
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # a head of the original task; we pool ourselves
    # The weights may be stored in half precision; they are trained in full.
    return TextEncoder(cast("PreTrainedModel", model).float(), pooling), tokenizer


def _hub_answers(place: str) -> bool:
    """Whether it is worth asking the model hub for what is not in its cache.

    Asked once, and briefly: where there is no network, its client would try again for half a minute, file by file.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        if not Path(place).is_dir():
            get_hf_file_metadata(hf_hub_url(place, "config.json"))
    except (HfHubHTTPError, HFValidationError):
        return True  # it says no, or the name cannot be one of its own: `transformers` tells which
    except Exception:  # of whichever library requests are sent with
        return False
    return True


def _refuse_incomplete(model: "PreTrainedModel", missing: set[str], tokenizer: "PreTrainedTokenizerBase") -> None:
    """Raise where weights would be random numbers, or a text could have a token without a vector."""
    lacking = sorted(name for name in missing if not name.startswith("pooler."))  # we pool ourselves
    if lacking:
        raise ValueError(f"its weights lack {len(lacking)} of the model's, such as {lacking[0]}")
    vectors = int(cast(nn.Embedding, model.get_input_embeddings()).num_embeddings)
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= vectors:
        raise ValueError(f"its tokenizer counts tokens up to {largest}, and the model has vectors for {vectors}")


def _advice(place: str, error: Exception) -> str:
    pickled = False
    with suppress(OSError):  # a name that no folder can have
        pickled = any(Path(place).glob("pytorch_model*.bin")) and not any(Path(place).glob("*.safetensors"))
    if pickled or "pytorch_model" in str(error):
        return (
            "It has its weights as a pickle, which can run any code when it is read, so it is not read here. If you "
            "trust its source, convert it once: transformers.AutoModel.from_pretrained(name).save_pretrained(folder), "
            "the same for AutoTokenizer, and give that folder."
        )
    return (
        "Give a folder with a model in safetensors form, or a name the model hub knows; for the default encoder "
        f"without a hub, {install_hint('offline')}."
    )


def window(encoder: TextEncoder, tokenizer: "PreTrainedTokenizerBase") -> int:
    """The most tokens the encoder can read at once."""
    config = encoder.model.config
    positions = int(getattr(config, "max_position_embeddings", None) or 10**9)
    if any(kind in config.model_type for kind in _OFFSET_POSITIONS):
        positions -= int(config.pad_token_id) + 1
    return min(positions, int(tokenizer.model_max_length))


def _place(name: str) -> str:
    if _is_folder(name):
        return name
    return str(packaged_encoder(name) or (f"sentence-transformers/{name}" if name == "all-MiniLM-L6-v2" else name))


def _is_folder(name: str) -> bool:
    with suppress(OSError):  # a name that no folder can have
        return Path(name).is_dir()
    return False


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No bars and no advice while loading and saving: what matters is said by us."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
