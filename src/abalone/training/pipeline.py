"""The main job: from texts and labels to a finished model."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from abalone.config import Config
from abalone.data.corpus import Corpus, Split
from abalone.data.tokens import tokenize
from abalone.evaluation.decision import fit_decision
from abalone.evaluation.knn import NearestNeighbours
from abalone.evaluation.lexical import LexicalModel
from abalone.model.encoder import TextEncoder, join_layers, load_encoder, split_layers, window
from abalone.model.feed import FrozenFeed, TokenFeed, embed, unlabelled
from abalone.model.heads import LinearHead
from abalone.model.predictor import Predictor
from abalone.training.finetune import supervise
from abalone.training.objectives import Objective
from abalone.training.pretrain import STAGE, linear_evaluation, pretrain
from abalone.training.processes import make_accelerator
from abalone.training.run import History, Run


def fit(config: Config, corpus: Corpus, folder: Path, *, resume: bool = False) -> Predictor:
    """Train the stages that `config` asks for, then fit the decision on validation.

    Args:
        config: the settings.
        corpus: its training and validation splits are used; the test split is not looked at.
        folder: where checkpoints go.
        resume: go on from `folder`.
    """
    torch.manual_seed(config.seed)  # before any weight is drawn
    tracker = str(folder / "tensorboard") if config.tensorboard else None
    accelerator = make_accelerator(config.device, config.precision, tracker)
    if tracker:
        accelerator.init_trackers("abalone")
    encoder, tokenizer = load_encoder(config.encoder, config.pooling, config.dropout)
    config = _within_window(config, encoder, tokenizer)
    train, validation = (make_feed(split, tokenizer, config) for split in (corpus.train, corpus.validation))
    run = Run(config, train, validation, accelerator, folder, resume)
    names = _name_features(corpus.label_names, encoder, tokenizer, config) if config.name_prototypes else None
    encoder, head, history = _train_stages(run, encoder, len(corpus.label_names), names)
    accelerator.end_training()

    with accelerator.autocast():
        val_embeddings = embed(encoder, validation, accelerator.device, "Encoding validation")
    lexical, neighbours, experts = None, None, {}
    if config.lexical:
        lexical = LexicalModel(seed=config.seed).fit(corpus.train.texts, corpus.train.labels)
        lexical.calibrate(corpus.validation.texts, corpus.validation.labels)
        experts["lexical"] = lexical.scores(corpus.validation.texts)
    if config.neighbours:
        with accelerator.autocast():
            embeddings = embed(encoder, train, accelerator.device, "Encoding the neighbours")
        neighbours = NearestNeighbours().fit(embeddings, corpus.train.labels)
        experts["neighbours"] = neighbours.logits(val_embeddings)
    statistics = corpus.stats()
    frequencies = np.array(statistics.frequencies)
    decision = fit_decision(head.logits(val_embeddings), experts, corpus.validation.labels, frequencies, config)
    story: dict[str, Any] = {"corpus": corpus.name, "statistics": statistics.as_dict(), "history": history}
    return Predictor(config, corpus.label_names, encoder, tokenizer, head, decision, lexical, neighbours, story)


def make_feed(split: Split, tokenizer: PreTrainedTokenizerBase, config: Config) -> TokenFeed:
    """A split as token batches; tokens come from the cache where they were made before."""
    tokens = tokenize(split.texts, tokenizer)
    return TokenFeed(tokens, split.labels, int(tokenizer.pad_token_id or 0), config.max_length, config.max_chunks)


def _train_stages(
    run: Run, encoder: TextEncoder, num_labels: int, name_features: Tensor | None
) -> tuple[TextEncoder, LinearHead, dict[str, History]]:
    """What the objective asks for: pre-training and then probes or fine-tuning, or one supervised stage."""
    config = run.config
    if config.freeze_layers:
        return _train_upper_layers(run, encoder, num_labels, name_features)
    if config.epochs == 0:
        head, _ = linear_evaluation(encoder, run)
        return encoder, head, {}
    objective = Objective(encoder, num_labels, config.objective, config)
    if name_features is not None:
        objective.start_prototypes_from(name_features)
    if objective.head is not None:
        encoder, head, history = supervise(objective, run, "training", config.epochs, config.learning_rate)
        return encoder, head, {"training": history}
    encoder, head, history = pretrain(objective, run)
    if config.classifier == "probe":
        return encoder, head, {STAGE: history}
    tuning = Objective(encoder, num_labels, config.finetune_objective, config)
    encoder, head, tuned = supervise(tuning, run, "finetuning", config.finetune_epochs, config.finetune_learning_rate)
    return encoder, head, {STAGE: history, "finetuning": tuned}


def _train_upper_layers(
    run: Run, encoder: TextEncoder, num_labels: int, name_features: Tensor | None
) -> tuple[TextEncoder, LinearHead, dict[str, History]]:
    """The same stages on the upper layers, over what the frozen lower ones make of each document once."""
    lower, upper = split_layers(encoder, run.config.freeze_layers)
    device = run.accelerator.device
    inner = replace(
        run,
        config=run.config.replace(freeze_layers=0),
        train=FrozenFeed(run.train, lower, device),
        validation=FrozenFeed(run.validation, lower, device),
    )
    upper, head, history = _train_stages(inner, upper, num_labels, name_features)
    return join_layers(lower, upper), head, history


def _name_features(
    names: Sequence[str], encoder: TextEncoder, tokenizer: PreTrainedTokenizerBase, config: Config
) -> Tensor:
    """What the encoder makes of the label names, [L, h]."""
    feed = make_feed(Split(names, unlabelled(len(names))), tokenizer, config)
    return torch.from_numpy(embed(encoder, feed, torch.device("cpu")))


def _within_window(config: Config, encoder: TextEncoder, tokenizer: PreTrainedTokenizerBase) -> Config:
    longest = window(encoder, tokenizer)
    if config.max_length <= longest:
        return config
    warnings.warn(
        f"{config.encoder} reads at most {longest} tokens, so max_length={config.max_length} becomes {longest}; "
        "raise max_chunks to read more of long documents",
        stacklevel=3,
    )
    return config.replace(max_length=longest)
