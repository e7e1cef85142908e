"""Export: a model as one ONNX file, compared with the model before it takes its place."""

import copy
import math
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save as save_tensors
from torch import Tensor, nn
from torch.nn.functional import normalize

from abalone.data.hashes import SEEN
from abalone.data.load import load_corpus
from abalone.data.tokens import PlainTokenizer
from abalone.encoder.heads import LinearHead
from abalone.errors import InputError, install_hint
from abalone.evaluation.neighbours import NearestNeighbours
from abalone.files.atomic import written_whole
from abalone.inference.onnx_model import (
    NEIGHBOURS,
    OnnxBackend,
    OnnxModel,
    Reading,
    lexical_as_text,
    metadata,
    open_session,
    with_checksum,
)
from abalone.inference.predictor import TFIDF_DECISION, Predictor
from abalone.inference.quantization import in_8_bits, quiet, saturating, smooth

if TYPE_CHECKING:
    from onnx import ModelProto

IR_VERSION = 9  # what belongs to this OPSET
OPSET = 20  # the first with GELU; onnxruntime 1.17 reads it
LARGEST_FILE = 2**31 - 2**24  # bytes; protocol buffers end at 2 GiB, and something is left for the metadata
# How far probabilities may be off. Rounding in another order moves fp32 by 1e-6; int8 moves single ones visibly and
# all of them a little (MiniLM on arXiv abstracts: 0.003 on average), and where it moves them much it has failed.
TOLERANCE_FP32, TOLERANCE_INT8 = 1e-4, 0.03
ABSTRACTS, NAMES = 24, 24  # real texts in the sample
TIMED_TEXTS, TIMED_ROUNDS = 4, 5  # about 1,000 tokens, and the best of so many runs
ODD_LENGTHS = (0, 1, 2, 5, 12, 30, 75, 180, 500, 1200)  # tokens; what a short or a long text breaks shows here


@dataclass(frozen=True)
class Exported:
    """A written file, and the difference of its probabilities from the model's on the sample.

    `speed` is how many times as fast as full precision the file is on this machine, and NaN if it is full precision.
    """

    path: Path
    bytes: int
    texts: int
    mean_difference: float
    largest_difference: float
    speed: float


def export(predictor: Predictor, output: str | Path, *, int8: bool = False) -> Exported:
    """Write a model as one ONNX file with everything `abalone predict` needs.

    Args:
        predictor: the model.
        output: the file, ending in `.onnx`. One that is there stays whole until the new one has passed its check.
        int8: whether weights and products are in 8 bits, which is smaller and faster and a little less exact.
    """
    output = Path(output)
    _refuse(predictor, output, int8)
    files = _files_as_text(predictor)
    _refuse_too_large(predictor, files)
    texts = _real_texts(predictor)
    reading = None if predictor.words is not None else _reading(predictor)
    graph = no_graph() if reading is None else graph_of(_network(predictor, reading, texts if int8 else None))
    full = b""
    if int8:
        full, graph = graph.SerializeToString(), in_8_bits(graph)
        _refuse_saturating(graph)
    content = _file_content(predictor, graph, reading, files)
    model = OnnxModel.load(content)
    # Eight bits are made for texts: what they do to random tokens says nothing.
    differences = _differences(model, predictor, texts if int8 else texts + _odd_texts(predictor))
    off, allowed = (differences.mean(), TOLERANCE_INT8) if int8 else (differences.max(), TOLERANCE_FP32)
    if not off <= allowed:  # written so that NaN is refused too
        advice = "this model loses too much in 8 bits: export it without int8" if int8 else "please report this"
        raise InputError(
            f"nothing was written: probabilities from the ONNX file are off by {off:.2g}, more than {allowed:g}; "
            f"{advice}"
        )
    with written_whole(output) as file:
        file.write(content)
    speed = _speed(model.backend, full, texts) if int8 and isinstance(model.backend, OnnxBackend) else math.nan
    return Exported(output, len(content), len(differences), float(differences.mean()), float(differences.max()), speed)


def _refuse(predictor: Predictor, output: Path, int8: bool) -> None:
    """Raise at once for models, names and options that cannot be exported."""
    for library in ("onnx", "onnxruntime", "onnxscript"):
        try:
            import_module(library)
        except ImportError:
            raise ImportError(f"export needs {library}: {install_hint('onnx')}") from None
    if output.suffix != ".onnx":
        raise InputError(f"the file to write must end in .onnx, got {output}")
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder: give the name of a file")
    if predictor.words is not None:
        if int8:
            raise InputError("int8 is for the weights of an encoder, and this model has none: export it without int8")
        return
    if len(predictor.network.head.weight) > 1:  # as in old folders, whose decision fits their averaged probabilities
        raise InputError("a head of several linear layers cannot be exported: train the model again, which merges them")


def _files_as_text(predictor: Predictor) -> dict[str, str]:
    """Return the files of a model folder beside the network, as text by name: experts that are mixed in, and more."""
    used = predictor.decision.mixture.used
    found: dict[str, str] = {}
    if predictor.lexical is not None and ("lexical" in used or predictor.words is not None):
        found |= lexical_as_text(predictor.lexical)
    if "neighbours" in used and isinstance(predictor.neighbours, NearestNeighbours):
        found[NEIGHBOURS] = b64encode(save_tensors(predictor.neighbours.state())).decode()
    if predictor.seen is not None:
        found[SEEN] = b64encode(predictor.seen.to_bytes()).decode()
    return found


def _refuse_too_large(predictor: Predictor, files: Mapping[str, str]) -> None:
    weights = [] if predictor.words is not None else predictor.network.encoder.model.parameters()
    size = 4 * sum(weight.numel() for weight in weights) + sum(map(len, files.values()))
    if size > LARGEST_FILE:
        raise InputError(f"the model has {size / 2**30:.1f} GiB of weights, and one ONNX file holds at most 2")


def _refuse_saturating(graph: "ModelProto") -> None:
    """Raise if the file would be right on this processor, where it is checked, and wrong on another."""
    if wrong := saturating(graph):
        raise InputError(
            f"nothing was written: 8-bit products of {wrong[0]} would be cut off on processors without VNNI; "
            "please report this"
        )


def _file_content(
    predictor: Predictor, graph: "ModelProto", reading: Reading | None, files: Mapping[str, str]
) -> bytes:
    import onnx

    graph.producer_name = "abalone"
    told = metadata(predictor.label_names, reading, predictor.decision, files, _story(predictor))
    onnx.helper.set_model_props(graph, told)
    return with_checksum(graph.SerializeToString())


def _story(predictor: Predictor) -> dict[str, Any]:
    """Return what scoring and serving tell of training: its documents, rare labels, F1 of labels, tf-idf alone."""
    provenance, counted = predictor.story.get("provenance", {}), predictor.story.get("statistics", {})
    statistics = {"frequencies": list(predictor.frequencies)}
    if "validation" in counted:
        statistics["validation"] = counted["validation"]
    kept = {name: predictor.story[name] for name in ("label_f1", TFIDF_DECISION) if name in predictor.story}
    return {"provenance": provenance, "statistics": statistics, **kept}


def _reading(predictor: Predictor) -> Reading:
    network = predictor.network
    plain = PlainTokenizer(network.tokenizer)
    prefix, suffix = plain.special_tokens
    return Reading(
        plain.backend.to_str(),
        bool(plain.backend.encode_special_tokens),
        prefix,
        suffix,
        int(network.tokenizer.pad_token_id or 0),
        network.max_length,
        network.config.max_chunks,
    )


def _real_texts(predictor: Predictor) -> list[str]:
    """Return some bundled abstracts, and label names, which are closer to the texts of the model."""
    return [*load_corpus("arxiv-sample").train.texts[:ABSTRACTS], *predictor.label_names[:NAMES]]


def _odd_texts(predictor: Predictor) -> list[str]:
    """Return texts of random tokens, from none to more than is read; of words alone, an empty text."""
    if predictor.words is not None:
        return [""]
    random, tokenizer = np.random.default_rng(0), predictor.network.tokenizer
    special = set(tokenizer.all_special_ids)
    ordinary = [number for number in sorted(tokenizer.get_vocab().values()) if number not in special]
    return [str(tokenizer.decode(random.choice(ordinary, length))) for length in ODD_LENGTHS]


def _speed(small: OnnxBackend, full: bytes, texts: list[str]) -> float:
    """Return how many times as fast as the network `full` that of `small` is, on a batch as prediction has it."""
    inputs = small.reading.padded(small.reading.pieces(texts[:TIMED_TEXTS])[0])
    sessions, best = (open_session(full, "the network"), small.session), [math.inf, math.inf]
    for _ in range(TIMED_ROUNDS):  # in turns, so that a busy moment of the machine strikes both
        for which, network in enumerate(sessions):
            start = perf_counter()
            network.run(["logits"], inputs)
            best[which] = min(best[which], perf_counter() - start)
    return best[0] / best[1]


def _differences(model: OnnxModel, predictor: Predictor, texts: list[str]) -> np.ndarray:
    """Return the absolute differences between the file's probabilities and the model's, [n, L]."""
    differences: np.ndarray = np.abs(model.probabilities(texts) - predictor.probabilities(texts))
    return differences


class Network(nn.Module):
    """The neural part of a model as it is in the graph: a padded batch of ids to logits and embeddings."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        encoder, head = predictor.network.encoder, predictor.network.head
        self.encoder = copy.deepcopy(encoder.model).cpu().float()
        self.encoder.set_attn_implementation("eager")  # plain products and a softmax, which onnxruntime fuses itself
        self.pooling = encoder.pooling
        self.head = _linear(head)
        self.eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [B, L] and embeddings [B, h] of ids [B, T] and their mask."""
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state  # [B, T, h]
        if self.pooling == "cls":
            embeddings = states[:, 0]
        else:
            mask = attention_mask.unsqueeze(2).to(states.dtype)  # [B, T, 1]
            embeddings = (states * mask).sum(1) / mask.sum(1)
        if self.pooling == "normalized_mean":
            embeddings = normalize(embeddings, dim=1)
        return self.head(embeddings), embeddings


def _linear(head: LinearHead) -> nn.Linear:
    """Return the only layer of the head as a module."""
    layer = nn.Linear(head.weight.shape[2], head.num_labels)
    layer.load_state_dict({"weight": head.weight[0], "bias": head.bias[0]})
    return layer


def graph_of(network: Network) -> "ModelProto":
    """Return the network as ONNX, for batches of any size and texts of any length."""
    ids = torch.full((2, 9), 3)  # any token that is not padding
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    axes = {0: "batch", 1: "length"}
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            network,
            (ids, mask),
            dynamo=True,
            dynamic_shapes={"input_ids": axes, "attention_mask": axes},
            input_names=["input_ids", "attention_mask"],
            output_names=["logits", "embeddings"],
            opset_version=OPSET,
            verbose=False,
        )
    if program is None:
        raise RuntimeError("torch.onnx.export gave no program")
    graph = program.model_proto
    for part in (graph.graph, *graph.graph.node, *(node for function in graph.functions for node in function.node)):
        del part.metadata_props[:]  # stack traces of the exporter, with paths of this machine
    del graph.graph.value_info[:]  # shapes that later steps infer anew; those the exporter left are partly wrong
    return graph


def no_graph() -> "ModelProto":
    """Return a file for a model of words alone, all of which is in the metadata.

    There is no way from texts to tf-idf rows in ONNX's own operators that would split words as we do. A graph must
    have a node, so this one hands back what it is given.
    """
    from onnx import TensorProto, helper

    same = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("anything", "the_same")]
    node = helper.make_node("Identity", ["anything"], ["the_same"])
    graph = helper.make_graph([node], "words_alone", same[:1], same[1:])
    about = "tf-idf + SVM, without a network: ABALONE reads the model from the metadata of this file"
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION, doc_string=about)


def _network(predictor: Predictor, reading: Reading, texts_for_int8: list[str] | None) -> Network:
    network = Network(predictor)
    if texts_for_int8 is not None:
        inputs = reading.padded(reading.pieces(texts_for_int8)[0])
        smooth(network.encoder, **{name: torch.from_numpy(values) for name, values in inputs.items()})
    return network
