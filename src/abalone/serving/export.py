"""From a model to one ONNX file, checked against the model before it takes its place."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from abalone.data.cache import written_whole
from abalone.data.load import load_corpus
from abalone.data.seen import SEEN
from abalone.data.tokens import PlainTokenizer
from abalone.evaluation.scored_model import TFIDF_DECISION
from abalone.model.predictor import Predictor
from abalone.serving.onnx_graph import Network, graph_of, in_8_bits
from abalone.serving.onnx_model import OnnxModel, Reading, lexical_as_text, metadata
from abalone.serving.onnx_neighbours import neighbours_as_text
from abalone.serving.smoothing import smooth

LARGEST_FILE = 2**31 - 2**24  # bytes; protocol buffers end at 2 GiB, and something is left for the metadata
# How far probabilities may be off. Rounding in another order moves fp32 by 1e-6; int8 moves single ones visibly and
# all of them a little (MiniLM on arXiv abstracts: 0.003 on average), and where it moves them much it has failed.
TOLERANCE_FP32, TOLERANCE_INT8 = 1e-4, 0.03
ABSTRACTS, NAMES = 24, 24  # real texts in the sample
ODD_LENGTHS = (0, 1, 2, 5, 12, 30, 75, 180, 500, 1200)  # tokens; what a short or a long text breaks shows here


@dataclass(frozen=True)
class Exported:
    """What was written, and how far its probabilities were from the model's on the sample."""

    path: Path
    bytes: int
    texts: int
    mean_difference: float
    largest_difference: float


def export(predictor: Predictor, output: str | Path, *, int8: bool = False) -> Exported:
    """Write a model as one ONNX file with everything `abalone predict` needs.

    Args:
        predictor: the model.
        output: the file, ending in `.onnx`. One that is there stays whole until the new one has passed its check.
        int8: whether weights and products are in 8 bits, which is smaller and faster and a little less exact.
    """
    output = Path(output)
    _refuse(predictor, output)
    files = _files_as_text(predictor)
    _refuse_too_large(predictor, files)
    texts = _real_texts(predictor)
    content = _file_content(predictor, files, texts if int8 else None)
    # Eight bits are made for texts: what they do to random tokens says nothing.
    differences = _differences(OnnxModel.load(content), predictor, texts if int8 else texts + _odd_texts(predictor))
    off, allowed = (differences.mean(), TOLERANCE_INT8) if int8 else (differences.max(), TOLERANCE_FP32)
    if not off <= allowed:  # written so that NaN is refused too
        advice = "this model does not bear 8 bits: export it without int8" if int8 else "please report this"
        raise ValueError(
            f"nothing was written: probabilities from the ONNX file are off by {off:.2g}, more than {allowed:g}; "
            f"{advice}"
        )
    with written_whole(output) as file:
        file.write(content)
    return Exported(output, len(content), len(differences), float(differences.mean()), float(differences.max()))


def _refuse(predictor: Predictor, output: Path) -> None:
    """Say at once what cannot be done."""
    for library in ("onnx", "onnxruntime", "onnxscript"):
        try:
            import_module(library)
        except ImportError:
            raise ImportError(f"export needs {library}: pip install 'abalone-mltc[onnx]'") from None
    if output.suffix != ".onnx":
        raise ValueError(f"the file to write must end in .onnx, got {output}")
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder: give the name of a file")
    if len(predictor.head.weight) > 1:  # as in folders of before, whose decision fits their averaged probabilities
        raise ValueError("a head of several linear layers cannot be exported: train the model again, which merges them")


def _files_as_text(predictor: Predictor) -> dict[str, str]:
    """What a model folder has beside the network, by the names of its files: experts that are mixed in, and more."""
    used = predictor.decision.mixture.used
    found: dict[str, str] = {}
    if "lexical" in used and predictor.lexical is not None:
        found |= lexical_as_text(predictor.lexical)
    if "neighbours" in used and predictor.neighbours is not None:
        found |= neighbours_as_text(predictor.neighbours)
    if predictor.seen is not None:
        found[SEEN] = b64encode(predictor.seen.to_bytes()).decode()
    return found


def _refuse_too_large(predictor: Predictor, files: Mapping[str, str]) -> None:
    size = 4 * sum(weight.numel() for weight in predictor.encoder.model.parameters()) + sum(map(len, files.values()))
    if size > LARGEST_FILE:
        raise ValueError(f"the model has {size / 2**30:.1f} GiB of weights, and one ONNX file holds at most 2")


def _file_content(predictor: Predictor, files: Mapping[str, str], texts_for_int8: list[str] | None) -> bytes:
    import onnx

    network, reading = Network(predictor), _reading(predictor)
    if texts_for_int8 is None:
        graph = graph_of(network)
    else:
        inputs = reading.padded(reading.pieces(texts_for_int8)[0])
        smooth(network.encoder, **{name: torch.from_numpy(values) for name, values in inputs.items()})
        graph = in_8_bits(graph_of(network))
    graph.producer_name = "abalone"
    told = metadata(predictor.label_names, reading, predictor.decision, files, _story(predictor))
    onnx.helper.set_model_props(graph, told)
    content: bytes = graph.SerializeToString()
    return content


def _story(predictor: Predictor) -> dict[str, Any]:
    """Return what scoring and serving tell of training: its documents, rare labels, F1 of labels, tf-idf alone."""
    provenance, frequencies = predictor.story.get("provenance", {}), list(predictor.frequencies)
    kept = {name: predictor.story[name] for name in ("label_f1", TFIDF_DECISION) if name in predictor.story}
    return {"provenance": provenance, "statistics": {"frequencies": frequencies}, **kept}


def _reading(predictor: Predictor) -> Reading:
    plain = PlainTokenizer(predictor.tokenizer)
    prefix, suffix = plain.special_tokens
    return Reading(
        plain.backend.to_str(),
        bool(plain.backend.encode_special_tokens),
        prefix,
        suffix,
        int(predictor.tokenizer.pad_token_id or 0),
        predictor.max_length,
        predictor.config.max_chunks,
    )


def _real_texts(predictor: Predictor) -> list[str]:
    """Some of the bundled abstracts, and label names, which are closer to what the model reads."""
    return [*load_corpus("arxiv-sample").train.texts[:ABSTRACTS], *predictor.label_names[:NAMES]]


def _odd_texts(predictor: Predictor) -> list[str]:
    """Random tokens, from none to more than is read."""
    random = np.random.default_rng(0)
    special = set(predictor.tokenizer.all_special_ids)
    ordinary = [number for number in sorted(predictor.tokenizer.get_vocab().values()) if number not in special]
    return [str(predictor.tokenizer.decode(random.choice(ordinary, length))) for length in ODD_LENGTHS]


def _differences(model: OnnxModel, predictor: Predictor, texts: list[str]) -> np.ndarray:
    """How far the file's probabilities are from the model's, [n, L]."""
    differences: np.ndarray = np.abs(model.probabilities(texts) - predictor.probabilities(texts))
    return differences
