"""Files with which plain `transformers` and `sentence-transformers` open a model folder."""

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from abalone.inference.predictor import Predictor

# Where each architecture's classification head puts its inner layer, with tanh after it, and its outer one.
TANH_HEADS = {
    "bert": ("bert.pooler.dense", "classifier"),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert", "mpnet"), ("classifier.dense", "classifier.out_proj")),
}
RELU_HEADS = {"distilbert": ("pre_classifier", "classifier")}

# tanh(x) = x − x³/3 + …: scaled by this, a logit moves its probability by less than 1e-8, and an entry of 30 in an
# embedding, more than trained encoders give, is off by 5 in a million. A power of two, so that scaling and unscaling
# round nothing, and large enough that half precision survives it.
TANH_SCALE = 2.0**-13


def opens_as_classifier(predictor: "Predictor") -> bool:
    """Tell whether plain `transformers` gives this model's neural probabilities."""
    encoder = predictor.network.encoder
    kind = encoder.model.config.model_type
    return encoder.pooling == "cls" and (kind in TANH_HEADS or kind in RELU_HEADS)


def save_encoder(predictor: "Predictor", place: Path) -> None:
    """Write the weights, once: as a sequence classifier where the architecture can express ours, else bare.

    Either way `AutoModel` finds the encoder in them.
    """
    if opens_as_classifier(predictor):
        sequence_classifier(predictor).save_pretrained(place)
    else:
        predictor.network.encoder.model.save_pretrained(place)


def sequence_classifier(predictor: "Predictor") -> "PreTrainedModel":
    """Return `AutoModelForSequenceClassification` with our encoder, sharing its weights, and our linear layer.

    Its sigmoids are what the neural classifier alone says, at the model's temperatures. Without experts these are the
    model's probabilities; where experts are mixed in, the temperatures were fitted to the mixture and not to these.
    """
    from transformers import AutoModelForSequenceClassification

    encoder = predictor.network.encoder.model
    config = copy.deepcopy(encoder.config)
    config.id2label = dict(enumerate(predictor.label_names))
    config.label2id = {name: number for number, name in enumerate(predictor.label_names)}
    config.problem_type = "multi_label_classification"
    with torch.device("meta"):  # shapes without memory: every weight comes from elsewhere
        model = AutoModelForSequenceClassification.from_config(config)
    tensors = {f"{model.base_model_prefix}.{name}": tensor for name, tensor in encoder.state_dict().items()}
    model.load_state_dict(tensors | _head(predictor), assign=True)
    whole: PreTrainedModel = model.eval()
    return whole


def _head(predictor: "Predictor") -> dict[str, Tensor]:
    """Return our linear layer as the two layers with an activation between them that the architecture has."""
    encoder, head = predictor.network.encoder.model, predictor.network.head.merged()
    weight, bias = head.weight[0].to(encoder.device), head.bias[0].to(encoder.device)  # [L, h], [L]
    if (calibration := predictor.decision.calibration) is not None:
        temperatures = torch.from_numpy(calibration.temperatures[calibration.groups]).to(weight)  # [L]
        weight, bias = weight / temperatures.unsqueeze(1), bias / temperatures
    kind = encoder.config.model_type
    inner, outer = TANH_HEADS[kind] if kind in TANH_HEADS else RELU_HEADS[kind]
    layers = _through_tanh(weight, bias) if kind in TANH_HEADS else _through_relu(weight, bias, _last_norm(encoder))
    return dict(zip([f"{inner}.weight", f"{inner}.bias", f"{outer}.weight", f"{outer}.bias"], layers, strict=True))


def _through_tanh(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return weight and bias of a square layer before tanh and of one after it, which together are one linear layer."""
    labels, hidden = weight.shape
    same, zeros = torch.eye(hidden).to(weight), torch.zeros(hidden).to(weight)
    if labels > hidden:  # what passes through tanh are the embeddings
        return TANH_SCALE * same, zeros, weight / TANH_SCALE, bias
    room = (0, 0, 0, hidden - labels)  # what passes through are the logits, and nothing in the places left over
    inner = TANH_SCALE * nn.functional.pad(weight, room), TANH_SCALE * nn.functional.pad(bias, room[2:])
    return *inner, same[:labels] / TANH_SCALE, zeros[:labels]


def _through_relu(weight: Tensor, bias: Tensor, norm: nn.LayerNorm) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the same with a ReLU between: embeddings are lifted above 0, so that none is cut off, then lowered."""
    lift = _bound(norm)  # [h]
    return torch.eye(len(lift)).to(weight), lift, weight, bias - weight @ lift


def _last_norm(encoder: nn.Module) -> nn.LayerNorm:
    return [module for module in encoder.modules() if isinstance(module, nn.LayerNorm)][-1]


def _bound(norm: nn.LayerNorm) -> Tensor:
    """Return a bound of the norm's outputs in absolute value, [h]: of h numbers of variance 1, none is beyond √h."""
    bound: Tensor = norm.weight.detach().abs() * len(norm.weight) ** 0.5 + norm.bias.detach().abs()
    return bound


def save_sentence_transformer(predictor: "Predictor", place: Path, max_length: int) -> None:
    """Write the few files that make a folder a `SentenceTransformer`; the weights are those of the encoder."""
    encoder = predictor.network.encoder
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    if encoder.pooling == "normalized_mean":
        kinds["2_Normalize"] = "Normalize"
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    pooling = {
        "word_embedding_dimension": encoder.hidden_size,
        "pooling_mode_cls_token": encoder.pooling == "cls",
        "pooling_mode_mean_tokens": encoder.pooling != "cls",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    for path in filter(None, kinds):
        (place / path).mkdir()
    for name, content in {
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": max_length, "do_lower_case": False},
        "1_Pooling/config.json": pooling,
    }.items():
        (place / name).write_text(json.dumps(content, indent=2), encoding="utf-8")


def limit_tokenizer(place: Path, max_length: int) -> None:
    """Let a tokenizer saved in `place` cut where we cut, if truncation is asked for, and else neither cut nor pad.

    A tokenizer keeps the truncation and padding of its last call, or those that came with it, and saves them.
    `transformers` and `sentence-transformers` set both at every call; who opens tokenizer.json with `tokenizers` would
    get padding that nobody asked for, or not, depending on what was called before.
    """
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(place / "tokenizer.json"))
    backend.no_truncation()
    backend.no_padding()
    backend.save(str(place / "tokenizer.json"))
    path = place / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["model_max_length"] = max_length
    path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
