"""The main job: from texts and labels to a finished model."""

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from abalone.config import NO_ENCODER, Config
from abalone.data.alone import alone_in
from abalone.data.assemble import listed
from abalone.data.corpus import Corpus, Split
from abalone.data.seen import SeenTexts
from abalone.data.tokens import tokenize
from abalone.device import reading_precision
from abalone.evaluation.blocks import Scores
from abalone.evaluation.decision import Decision, fit_and_score
from abalone.evaluation.knn import NearestNeighbours
from abalone.evaluation.scored_model import TFIDF_DECISION, label_f1
from abalone.losses import loss_spec
from abalone.model.card import LEFT_OUT
from abalone.model.encoder import TextEncoder, join_layers, load_encoder, split_layers, window
from abalone.model.feed import FrozenFeed, TokenFeed, embed, unlabelled
from abalone.model.heads import LinearHead
from abalone.model.predictor import Predictor
from abalone.progress import overall
from abalone.recipes import words_alone
from abalone.training.estimate import DECISION, WORDS, OnEstimate, timed
from abalone.training.finetune import supervise
from abalone.training.objectives import Objective
from abalone.training.pretrain import STAGE, linear_evaluation, pretrain
from abalone.training.processes import join_ranks, left_as_found, make_accelerator
from abalone.training.run import History, TrainingRun, enter_folder, refuse_other_documents
from abalone.training.words import fit_lexical, fit_words, story_of, words_model

BEHIND = 0.01  # of macro-F1, below what tf-idf has alone: less is noise, and not told


def fit(
    config: Config, corpus: Corpus, folder: Path, *, resume: bool = False, on_estimate: OnEstimate | None = None
) -> Predictor:
    """Train the stages that `config` asks for, then fit the decision on validation.

    Args:
        config: the settings.
        corpus: its training and validation splits are used; the test split is not looked at.
        folder: where checkpoints go.
        resume: go on from `folder`.
        on_estimate: told how long it will take, before the first step, where that is known by then: on a CPU, in one
            process, unless it goes on with a run. May raise to stop.

    Where several processes were launched, all of them call this with the same arguments, and each gets the model.
    """
    refuse_unusable(config, corpus)
    with left_as_found(config.device), ExitStack() as held:
        accelerator = make_accelerator(config.device, config.precision, config.tensorboard)
        ranks = join_ranks(accelerator)
        if ranks.count > config.batch_size:
            warnings.warn(
                f"a batch of {config.batch_size} documents leaves some of {ranks.count} processes without any: "
                "raise batch_size, or launch fewer",
                stacklevel=3,
            )
        refuse_other_documents(ranks, config, corpus)

        def enter() -> str:
            held.enter_context(alone_in(folder))
            return enter_folder(folder, config, corpus, resume=resume)

        made_by = ranks.told_by_main(enter)
        if config.encoder == NO_ENCODER:
            predictor = fit_words(config, corpus)
            predictor.story["fingerprint"] = made_by
            return predictor
        torch.manual_seed(config.seed)  # before any weight is drawn
        encoder, tokenizer = load_encoder(config.encoder, config.pooling, config.dropout)
        # Before all documents are read, so that more layers than there are cost nothing.
        parts = split_layers(encoder, config.freeze_layers) if config.freeze_layers else None
        config = _within_window(config, encoder, tokenizer)
        if config.learning_rate is None:
            config = config.replace(learning_rate=rate_for_width(encoder.hidden_size))
        with ranks.first_here_goes_first():  # the others then find the tokens in the cache
            train, validation = (make_feed(split, tokenizer, config) for split in (corpus.train, corpus.validation))
        run = TrainingRun(config, train, validation, accelerator, folder, resume, ranks)
        names = _name_features(corpus.label_names, encoder, tokenizer, config) if config.name_prototypes else None
        held.enter_context(timed(run, corpus, encoder, parts, on_estimate))
        if parts is None:
            encoder, head, history = _train_stages(run, encoder, len(corpus.label_names), names)
        else:
            encoder, head, history = _train_upper_layers(run, *parts, len(corpus.label_names), names)
        for tracker in accelerator.trackers:
            tracker.finish()
        predictor = _with_decision(run, corpus, encoder, tokenizer, head, history)
        predictor.story["fingerprint"] = made_by  # of the settings as given, before the encoder settled some
        return predictor


def _with_decision(
    run: TrainingRun,
    corpus: Corpus,
    encoder: TextEncoder,
    tokenizer: PreTrainedTokenizerBase,
    head: LinearHead,
    history: dict[str, History],
) -> Predictor:
    """The finished model: what was trained, experts to mix in, and the decision, fitted on validation."""
    config, device, ranks = run.config, run.accelerator.device, run.ranks
    # In the precision in which texts will be read later: what is fitted here must fit there. Encoding is shared by
    # all ranks; the rest is the same on each, and takes no longer than on one.
    half = reading_precision(config.precision)
    val_embeddings = embed(encoder, run.validation, device, "Encoding validation", half=half, ranks=ranks)
    lexical, neighbours = None, None
    experts: dict[str, Scores] = {}
    if config.lexical:
        overall().begin("Fitting tf-idf")
        lexical = fit_lexical(corpus.train, corpus.validation, config.seed)
        experts["lexical"] = lexical.logits_in_blocks(corpus.validation.texts)
        overall().done(WORDS, 1)
    if config.neighbours:
        embeddings = embed(encoder, run.train, device, "Encoding the neighbours", half=half, ranks=ranks)
        neighbours = NearestNeighbours(half=True, device=str(device)).fit(embeddings, corpus.train.labels)
        experts["neighbours"] = neighbours.logits_in_blocks(val_embeddings)
    story = {**story_of(corpus), "history": history}
    frequencies = np.array(story["statistics"]["frequencies"])
    # The model has one layer, as other libraries expect it; the decision is fitted to what that layer says.
    head = head.merged()
    logits = head.logits_in_blocks(val_embeddings)

    def scores_with(logits: Scores, experts: dict[str, Scores]) -> tuple[Decision, dict[str, float]]:
        return fit_and_score(logits, experts, corpus.validation.labels, frequencies, config)

    overall().begin("Fitting the decision")
    decision, scores = scores_with(logits, experts)
    used = decision.mixture.used
    if lexical is not None and used == {"lexical": 1.0}:
        decision, scores = scores_with(experts["lexical"], {})
        warnings.warn(
            f"On validation the encoder adds nothing to words alone (macro-F1 {scores['macro_f1']:.3f}), so the model "
            f"is tf-idf + SVM: no encoder is saved. The recipe words trains the same in seconds; {_longer(config)} to "
            "give the encoder another chance.",
            stacklevel=4,
        )
        by_label = label_f1(decision, decision.scores(experts["lexical"], {}), corpus.validation.labels)
        story |= {"scores": {"validation": scores}, "label_f1": by_label, LEFT_OUT: config.encoder}
        overall().done(DECISION, 1)
        return words_model(words_alone(config), corpus, lexical, decision, story)
    story["scores"] = {"validation": scores}
    story["label_f1"] = label_f1(decision, decision.scores(logits, experts), corpus.validation.labels)
    if lexical is not None:
        alone, baseline = scores_with(experts["lexical"], {})
        story["scores"]["validation, tf-idf alone"] = baseline
        story[TFIDF_DECISION] = alone.to_dict()
        if scores["macro_f1"] < baseline["macro_f1"] - BEHIND:
            warnings.warn(
                f"on validation the model (macro-F1 {scores['macro_f1']:.3f}) does not beat tf-idf alone "
                f"({baseline['macro_f1']:.3f}): {_longer(config)}, or use the recipe words, which is tf-idf alone",
                stacklevel=4,
            )
    overall().done(DECISION, 1)
    return Predictor(
        config,
        corpus.label_names,
        encoder,
        tokenizer,
        head,
        decision,
        lexical if "lexical" in used else None,
        neighbours if "neighbours" in used else None,
        story=story,
        seen=SeenTexts.of(corpus.train.texts, corpus.validation.texts),
    )


def _longer(config: Config) -> str:
    return "train longer" if config.epochs else "train the encoder too"


def refuse_unusable(config: Config, corpus: Corpus) -> None:
    """What could only fail later, after the expensive part, is said at once."""
    spec = loss_spec(config.objective)
    if spec.takes == "label_embeddings" and config.max_chunks > 1:
        raise ValueError(f"objective {config.objective!r} cannot read documents in chunks: set max_chunks to 1")
    if config.freeze_layers and config.max_chunks > 1:
        raise ValueError("freeze_layers and max_chunks cannot be combined: set max_chunks to 1")
    if spec.takes == "label_embeddings" and not spec.joint:
        raise ValueError(f"{config.objective!r} alone collapses; add a pointwise loss: '{config.objective}+bce'")
    if config.classifier == "finetune" and loss_spec(config.finetune_objective).takes != "logits":
        raise ValueError(f"finetune_objective must be a pointwise loss such as bce, got {config.finetune_objective!r}")
    if len(corpus.train) == 0:
        raise ValueError("there are no training documents")
    if corpus.train.labels.nnz == 0:
        raise ValueError("no training document carries a label")
    if len(corpus.validation) == 0:
        raise ValueError("there are no validation documents: give more documents, or validation=(texts, labels)")
    if corpus.validation.labels.nnz == 0:
        raise ValueError("no validation document carries a label of the training documents")
    frequencies = np.asarray(corpus.train.labels.sum(axis=0)).ravel()
    if absent := [name for name, count in zip(corpus.label_names, frequencies, strict=True) if count == 0]:
        warnings.warn(f"no training document carries {listed(absent)}, so the model cannot learn it", stacklevel=4)


def make_feed(split: Split, tokenizer: PreTrainedTokenizerBase, config: Config) -> TokenFeed:
    """A split as token batches; tokens come from the cache where they were made before."""
    tokens = tokenize(split.texts, tokenizer)
    return TokenFeed(tokens, split.labels, config.max_length, config.max_chunks)


def _train_stages(
    run: TrainingRun, encoder: TextEncoder, num_labels: int, name_features: Tensor | None
) -> tuple[TextEncoder, LinearHead, dict[str, History]]:
    """What the objective asks for: pre-training and then probes or fine-tuning, or one supervised stage."""
    config = run.config
    if config.epochs == 0:
        head, _ = linear_evaluation(encoder, run)
        return encoder, head, {}
    objective = Objective(encoder, num_labels, config.objective, config, run.ranks, run.train.labels)
    if name_features is not None:
        objective.start_prototypes_from(name_features)
    if objective.head is not None:
        encoder, head, history = supervise(objective, run, "training", config.epochs)
        return encoder, head, {"training": history}
    encoder, head, history = pretrain(objective, run)
    if config.classifier == "probe":
        return encoder, head, {STAGE: history}
    tuning = Objective(encoder, num_labels, config.finetune_objective, config, run.ranks, run.train.labels)
    rate = config.finetune_learning_rate
    encoder, head, tuned = supervise(tuning, run, "finetuning", config.finetune_epochs, learning_rate=rate)
    return encoder, head, {STAGE: history, "finetuning": tuned}


def _train_upper_layers(
    run: TrainingRun, lower: TextEncoder, upper: TextEncoder, num_labels: int, name_features: Tensor | None
) -> tuple[TextEncoder, LinearHead, dict[str, History]]:
    """The same stages on the upper layers, over what the frozen lower ones make of each document once."""
    with run.accelerator.autocast():
        train, validation = (FrozenFeed(feed, lower, run.accelerator.device) for feed in (run.train, run.validation))
    inner = replace(run, train=train, validation=validation)
    upper, head, history = _train_stages(inner, upper, num_labels, name_features)
    return join_layers(lower, upper), head, history


def _name_features(
    names: Sequence[str], encoder: TextEncoder, tokenizer: PreTrainedTokenizerBase, config: Config
) -> Tensor:
    """What the encoder makes of the label names, [L, h]."""
    feed = make_feed(Split(names, unlabelled(len(names))), tokenizer, config)
    return torch.from_numpy(embed(encoder, feed, torch.device("cpu")))


def rate_for_width(width: int) -> float:
    """A learning rate for an encoder of this width: 1e-4 up to 384, and beyond in inverse proportion.

    AdamW moves every weight by about its rate. A wider layer adds up more of them, so the same rate moves its output
    further: what is best for MiniLM, 384 wide, makes an encoder of base size forget what it knew.
    """
    return 1e-4 * min(1, 384 / width)


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
