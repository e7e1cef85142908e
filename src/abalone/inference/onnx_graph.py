"""The neural part of a model as an ONNX graph, in full precision."""

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from abalone.encoder.heads import LinearHead
from abalone.inference.predictor import Predictor

if TYPE_CHECKING:
    from onnx import ModelProto

IR_VERSION = 9  # what belongs to this OPSET
OPSET = 20  # the first with GELU; onnxruntime 1.17 reads it


class Network(nn.Module):
    """A padded batch of ids to logits and embeddings: what of a model is in the graph."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        encoder, head = predictor.network.encoder, predictor.network.head
        self.encoder = copy.deepcopy(encoder.model).cpu().float()
        self.encoder.set_attn_implementation("eager")  # plain products and a softmax, which onnxruntime fuses itself
        self.pooling = encoder.pooling
        self.head = _linear(head)
        self.eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """[B, T] of ids and their mask → [B, L] and [B, h]."""
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
    """Its only layer as a module."""
    layer = nn.Linear(head.weight.shape[2], head.num_labels)
    layer.load_state_dict({"weight": head.weight[0], "bias": head.bias[0]})
    return layer


def graph_of(network: Network) -> "ModelProto":
    """The network as ONNX, for batches of any size and texts of any length."""
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


@contextmanager
def quiet() -> Iterator[None]:
    """Silence exporter and quantiser: axes, deprecations and libraries that no user can fix."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
