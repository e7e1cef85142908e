"""The files of a model folder that need torch: encoder, tokenizer, linear layer, neighbours."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file, save_file

from abalone.config import Config
from abalone.encoder.heads import LinearHead
from abalone.encoder.load import load_encoder, load_without_transformers, quiet_transformers
from abalone.encoder.text_encoder import TextEncoder
from abalone.evaluation.neighbours import NearestNeighbours
from abalone.inference.huggingface import limit_tokenizer, save_encoder, save_sentence_transformer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from abalone.inference.predictor import Predictor

HEAD, NEIGHBOURS = "head.safetensors", "neighbours.safetensors"


def save_network(predictor: "Predictor", place: Path) -> None:
    """Write what of a model is neural."""
    _, tokenizer, head = predictor.network
    with quiet_transformers():
        save_encoder(predictor, place)
        tokenizer.save_pretrained(place)
    limit_tokenizer(place, predictor.max_length)
    save_sentence_transformer(predictor, place, predictor.max_length)
    save_file(head.state(), place / HEAD)
    if predictor.neighbours is not None:
        save_file(predictor.neighbours.state(), place / NEIGHBOURS)


def read_network(
    folder: Path, about: dict[str, Any], config: Config, only_to_answer: bool
) -> tuple[TextEncoder, "PreTrainedTokenizerBase", LinearHead]:
    """Read encoder, tokenizer and linear layer; `only_to_answer`: without `transformers`, where that can be."""
    bare = load_without_transformers(folder, config.pooling) if only_to_answer else None
    encoder, tokenizer = bare or load_encoder(str(folder), config.pooling, config.dropout)
    # The tokenizer in the folder stops where other tools should; a larger `max_length` may be asked of this one.
    tokenizer.model_max_length = about.get("tokenizer_max_length", tokenizer.model_max_length)
    tensors = load_file(folder / HEAD)
    return encoder.eval(), tokenizer, LinearHead(tensors["weight"].float(), tensors["bias"].float())


def read_neighbours(folder: Path, config: Config) -> NearestNeighbours | None:
    """Read the neighbours, where the model has any."""
    file = folder / NEIGHBOURS
    return NearestNeighbours.from_state(load_file(file), device=config.device) if file.is_file() else None


def refuse_misfit_network(predictor: "Predictor") -> None:
    """Raise where encoder, tokenizer and linear layer are not those of one model."""
    encoder, _, head = predictor.network
    labels, hidden = len(predictor.label_names), encoder.hidden_size
    weight, bias = tuple(head.weight.shape), tuple(head.bias.shape)
    if weight != (*bias[:1], labels, hidden) or bias != (*weight[:1], labels):
        raise ValueError(f"{HEAD} has the shapes {weight} and {bias} for {labels} labels and {hidden} features")
    if not all(weights.isfinite().all() for weights in (head.weight, head.bias)):
        raise ValueError(f"{HEAD} holds NaN or infinite values")
    if predictor.max_length < 3 or predictor.special_tokens is None:
        raise ValueError(f"it reads {predictor.max_length} tokens of a text")
