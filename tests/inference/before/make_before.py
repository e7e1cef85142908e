"""Files of the version before, with its answers: `tests/inference/test_before.py` opens them with the version of today.

Made by commit 71c4ccf, and only to be made again when another version becomes "the version before". In this folder,
with the package of that commit first on the path:

    PYTHONPATH=BEFORE/src python make_before.py

It writes, for a tiny random BERT, all on the CPU in fp32:

- `papers.jsonl`, `encoder/`, `config.yaml`: what is trained on, by paths relative to this folder
- `model/`: a model folder trained with folds, with the tf-idf expert and the neighbours mixed in
- `model.onnx`: the file exported from it
- `words/`, `words.onnx`: tf-idf + SVM without an encoder, as a folder and as a file
- `interrupted.training/`: what SIGTERM has left of the run that `model/` comes from, within the second fold
- `answers.json`: texts, and the labels and probabilities that each of these models gave
"""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import yaml

VERSION = "0.1.0.dev0"
DOCUMENTS, LABELS = 48, 4
WORDS = [f"w{i}" for i in range(30)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SETTINGS = {
    "encoder": "encoder",
    "pooling": "mean",
    "max_length": 12,
    "max_chunks": 2,
    "objective": "msc",
    "queue_size": 16,
    "projection_dim": 8,
    "epochs": 3,
    "folds": 2,
    "batch_size": 8,
    "learning_rate": 2e-3,
    "head_learning_rate": 2e-3,
    "lexical": True,
    "neighbours": True,
    "at_least_one": True,
    "device": "cpu",
    "precision": "fp32",
}
FROM_A_THRESHOLD = 1e-3  # no probability is nearer, so that rounding cannot change a label


def write_papers(file: Path) -> None:
    """Write texts of random words, in which word j decides label j."""
    rng = np.random.default_rng(5)
    with file.open("w", encoding="utf-8") as lines:
        for number in range(DOCUMENTS):
            carried = np.flatnonzero(rng.random(LABELS) < np.linspace(0.6, 0.25, LABELS))
            filler = rng.choice(np.arange(LABELS, len(WORDS)), size=rng.integers(4, 16))
            text = " ".join(WORDS[i] for i in rng.permutation(np.concatenate([filler, carried])))
            split = "train" if number < DOCUMENTS - 8 else "val"
            row = {"text": text, "labels": [f"topic {j}" for j in carried], "split": split}
            lines.write(json.dumps(row) + "\n")


def write_encoder(folder: Path) -> None:
    """Write a random BERT of one layer, with a tokenizer of a few words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(SPECIAL + WORDS)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=16,
    )  # fmt: skip
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16,
    )  # fmt: skip
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def texts_to_answer() -> list[str]:
    """Return texts of every kind: new ones, one of training, unknown words, one token, more than is read."""
    rng = np.random.default_rng(6)
    new = [" ".join(rng.choice(WORDS, size)) for size in (2, 5, 9, 14, 20)]
    trained = json.loads(Path("papers.jsonl").read_text(encoding="utf-8").splitlines()[0])["text"]
    return [*new, trained, "none of these words", "w1", " ".join(rng.choice(WORDS, 60)), "w0 Ünïcode 文 w2 \n w3"]


def stopped_in_second_fold(write: Callable[..., None]) -> Callable[..., None]:
    """Return the method that writes checkpoints; it sends SIGTERM in the second epoch of the second fold."""

    def write_and_stop(checkpoints: object, state: object, notes: dict[str, Any], epochs: object) -> None:
        standing = notes["standing"]
        if checkpoints.folder.parent.name == "fold-2" and (standing["epoch"], standing["batch"]) == (1, 1):
            os.kill(os.getpid(), signal.SIGTERM)
        write(checkpoints, state, notes, epochs)

    return write_and_stop


def without_stacks(graph_of: Callable[[object], object]) -> Callable[[object], object]:
    """Return the exporter without its notes in each node: a stack, with the paths of the machine it ran on."""

    def noteless(network: object) -> object:
        graph = graph_of(network)
        for node in graph.graph.node:
            del node.metadata_props[:]
        return graph

    return noteless


def main() -> None:
    """Write all files beside this one."""
    from abalone.serving.onnx_model import OnnxModel

    import abalone
    from abalone import AbaloneClassifier, load_corpus
    from abalone.evaluation.mixing import Mixture
    from abalone.serving import export as exporting
    from abalone.training.generations import Checkpoints
    from abalone.training.interruption import TrainingTerminated

    assert abalone.__version__ == VERSION
    os.chdir(Path(__file__).parent)
    torch.set_num_threads(1)
    os.environ["ABALONE_CACHE"] = str(Path("cache").resolve())
    for folder in ("encoder", "model", "words", "interrupted.training"):
        shutil.rmtree(folder, ignore_errors=True)
    write_papers(Path("papers.jsonl"))
    write_encoder(Path("encoder"))
    Path("config.yaml").write_text(yaml.safe_dump(SETTINGS), encoding="utf-8")
    corpus = load_corpus("papers.jsonl")
    texts, answers = texts_to_answer(), {}

    def answer(name: str, model: object) -> None:
        probabilities, decision = model.probabilities(texts), model.decision
        assert np.abs(probabilities - decision.thresholds.values).min() > FROM_A_THRESHOLD, name
        answers[name] = {"labels": model.names(decision.labels(probabilities)), "probabilities": probabilities.tolist()}

    # Every expert has a say; else only those that held-out documents give a weight.
    with patch.object(Mixture, "chosen", lambda _, experts, *__: Mixture(dict.fromkeys(experts, 0.3))):
        model = AbaloneClassifier(**SETTINGS).fit_corpus(corpus, run_folder="finished.training")
        model.save_pretrained("model")
        with patch.object(exporting, "graph_of", without_stacks(exporting.graph_of)):
            exporting.export(model.predictor_, "model.onnx")
        interrupted = Path("interrupted.training")
        writing = patch.object(Checkpoints, "write", stopped_in_second_fold(Checkpoints.write))
        try:  # the same run, saved after every step
            with writing:
                AbaloneClassifier(**SETTINGS, checkpoint_seconds=0).fit_corpus(corpus, run_folder=interrupted)
        except TrainingTerminated:
            pass
        else:
            raise AssertionError("the run has ended before it was stopped")
    words = AbaloneClassifier("words", folds=2).fit_corpus(corpus, run_folder="finished.training")
    words.save_pretrained("words")
    exporting.export(words.predictor_, "words.onnx")
    answer("model", AbaloneClassifier.from_pretrained("model", device="cpu").predictor_)
    answer("model.onnx", OnnxModel.load("model.onnx"))
    answer("words", AbaloneClassifier.from_pretrained("words").predictor_)
    answer("words.onnx", OnnxModel.load("words.onnx"))
    content = json.dumps({"texts": texts, "answers": answers}, indent=1)
    Path("answers.json").write_text(f"{content}\n", encoding="utf-8")
    for folder in ("cache", "finished.training"):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
